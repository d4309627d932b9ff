"""redlock-py 1.0.8, with one server."""

import redis
from redlock import Redlock

from protocol import Arguments, serve

a = Arguments()
client = redis.StrictRedis(host=a.host, port=a.port)
locks = Redlock([client], retry_count=10 ** 9, retry_delay=a.poll)
held = []


def acquire():
    held.append(locks.lock(a.name, int(a.ttl * 1000)))


serve(a, client, acquire, lambda: locks.unlock(held.pop()))
