"""redis-py 2.10.6: redis.lock.Lock, SETNX and PEXPIRE."""

import redis
from redis.lock import Lock

from protocol import Arguments, serve

a = Arguments()
client = redis.StrictRedis(host=a.host, port=a.port)
lock = Lock(client, a.name, timeout=a.ttl, sleep=a.poll)
serve(a, client, lock.acquire, lock.release)
