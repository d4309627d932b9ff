"""redis-py 2.9.1: client.lock(), float seconds."""

import redis

from protocol import Arguments, serve

a = Arguments()
client = redis.StrictRedis(host=a.host, port=a.port)
lock = client.lock(a.name, timeout=a.ttl, sleep=a.poll)
serve(a, client, lock.acquire, lock.release)
