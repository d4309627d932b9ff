"""Beaker 1.10.0: RedisSynchronizer. Its lease is 900 s, a constant of the class;
while it waits, it sleeps 0.2 s."""

import time

import redis
from beaker.ext.redisnm import RedisSynchronizer

from protocol import Arguments, serve


class Synchronizer(RedisSynchronizer):
    pass


a = Arguments()
Synchronizer.LOCK_EXPIRATION = int(a.ttl)
client = redis.StrictRedis(host=a.host, port=a.port)
lock = Synchronizer(a.name, client)


def acquire():
    while not lock.do_acquire_write_lock(False):
        time.sleep(a.poll)


serve(a, client, acquire, lock.do_release_write_lock)
