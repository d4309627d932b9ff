"""rq-scheduler 0.14.0: the lock that its Scheduler takes before it looks for jobs. Its lease is the
interval and ten seconds. It does not wait: the caller must ask again. The key is rq:scheduler_lock."""

import time

import redis
from rq_scheduler import Scheduler

from protocol import Arguments, serve

a = Arguments()
client = redis.Redis(host=a.host, port=a.port)
scheduler = Scheduler(connection=client, interval=a.ttl - 10)


def acquire():
    while not scheduler.acquire_lock():
        time.sleep(a.poll)


serve(a, client, acquire, scheduler.remove_lock)
