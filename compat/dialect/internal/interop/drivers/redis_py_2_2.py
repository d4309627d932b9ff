"""redis-py 2.2.2: client.lock(), whole seconds. On Python 2.7."""

import redis

from protocol import Arguments, serve

a = Arguments()
client = redis.Redis(host=a.host, port=a.port)
lock = client.lock(a.name, timeout=int(a.ttl), sleep=a.poll)
serve(a, client, lock.acquire, lock.release)
