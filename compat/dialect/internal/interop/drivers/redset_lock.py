"""redset 0.5.1: a context manager."""

import redis
from redset.locks import Lock

from protocol import Arguments, serve

a = Arguments()
client = redis.StrictRedis(host=a.host, port=a.port)
lock = Lock(client, a.name, expires=a.ttl, timeout=3600, poll_interval=a.poll)
serve(a, client, lock.__enter__, lambda: lock.__exit__(None, None, None))
