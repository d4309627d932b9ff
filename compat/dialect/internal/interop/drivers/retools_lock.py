"""retools 0.3: a context manager. While it waits, it sleeps a second; with
timeout=0 it tries once, and the caller must ask again."""

import time

import redis
from retools.lock import Lock, LockTimeout

from protocol import Arguments, serve

a = Arguments()
client = redis.StrictRedis(host=a.host, port=a.port)
lock = Lock(a.name, expires=a.ttl, timeout=0, redis=client)


def acquire():
    while True:
        try:
            return lock.__enter__()
        except LockTimeout:
            time.sleep(a.poll)


serve(a, client, acquire, lambda: lock.__exit__(None, None, None))
