"""redis-py 4.3.4, as Debian has it: client.lock(), SET NX PX and a script."""

import redis

from protocol import Arguments, serve

a = Arguments()
client = redis.Redis(host=a.host, port=a.port)
lock = client.lock(a.name, timeout=a.ttl, sleep=a.poll)
serve(a, client, lock.acquire, lock.release)
