"""python-redis-lock 4.0.0: it waits on the list lock-signal:NAME, for as long as its lease."""

import redis
import redis_lock

from protocol import Arguments, serve

a = Arguments()
client = redis.StrictRedis(host=a.host, port=a.port)
lock = redis_lock.Lock(client, a.name, expire=int(a.ttl))
serve(a, client, lock.acquire, lock.release)
