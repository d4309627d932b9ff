"""The commands that the tests send to a client, one per line, and its answers.

    acquire    held                takes the lock, waiting for it
    release    released            releases it  
    work N     worked N lost K     N sections; K releases said that the lock was lost
    anything   threw TYPE: WHAT    the client's exception

Each driver is HOST PORT NAME TTL POLL, the last two in milliseconds.
"""

# The oldest client needs Python 2.7, so this must run on it too.
import random
import sys
import time


class Arguments:
    def __init__(self):
        self.host, port, self.name, ttl, poll = sys.argv[1:6]
        self.port, self.ttl, self.poll = int(port), int(ttl) / 1000.0, int(poll) / 1000.0


def section(redis, who):
    """The critical section: it changes a counter, which only the lock protects, and a log."""
    redis.rpush("interop:log", "enter " + who)
    count = int(redis.get("interop:count") or 0)
    redis.set("interop:count", count + 1)
    redis.rpush("interop:log", "leave " + who)


def serve(a, redis, acquire, release):
    who = "theirs-%d" % random.randrange(10 ** 9)

    def work(n):
        lost = 0
        for _ in range(n):
            acquire()
            section(redis, who)
            try:
                release()
            except Exception:
                lost += 1
            time.sleep(2 * a.poll * random.random())
        return "worked %d lost %d" % (n, lost)

    def do(word, *args):
        if word == "acquire":
            acquire()
            return "held"
        if word == "release":
            release()
            return "released"
        return work(int(args[0]))

    def say(answer):
        sys.stdout.write(answer.replace("\n", " ") + "\n")
        sys.stdout.flush()

    say("ready")
    for line in iter(sys.stdin.readline, ""):
        try:
            answer = do(*line.split())
        except Exception as e:
            answer = "threw %s: %s" % (type(e).__name__, e)
        say(answer)
