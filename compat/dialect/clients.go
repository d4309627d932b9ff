package dialect

import "time"

var (
	seconds = Stamp{Unit: time.Second}
	floats  = Stamp{Unit: time.Second, Float: true, Decimals: 7} // a float64 of a current time has no more
	millis  = Stamp{Unit: time.Millisecond}
	nanos   = Stamp{Unit: time.Nanosecond}
)

const (
	raw        = "NAME" // no prefix: only these clients meet others
	one        = time.Second
	integer    = "1795238718"
	fraction   = "1795238718.94"
	inMillis   = "1795238718058"
	inNanos    = "1795238718058123456"
	leadingF   = "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab"
	hexadec    = "94213c24e0f911f0a9d30242ac120002"
	hostAndPid = "web1.example:4711"
	base64ID   = "0Vb9nDEyTnSlqYwC8vEL2QpZ"
	padded     = "0Vb9nDEyTnSlqYwC8vEL2Q=="
)

// formats describe the clients in the field.
var formats = []Format{
	{
		Name: "redis-docs", Kind: Seconds, About: "the SETNX page of the Redis documentation: now + timeout + 1",
		Examples: []string{integer}, KeyName: "lock.NAME",
		Stamp: seconds, Plus: one, Win: WinExpired, Release: ReleaseLive,
	},
	{
		Name: "redis-py-2.2.3", Kind: Seconds, About: "redis-py 2.0.0 to 2.2.3; 2147483649 means no timeout; a fraction makes it throw",
		Examples: []string{integer, "2147483649"}, KeyName: raw,
		Stamp: seconds, Win: WinExpired, Release: ReleaseNotEarly,
	},
	{
		Name: "resque-lock", Kind: Seconds, About: "resque-lock 1.1, among Resque's own keys",
		Examples: []string{integer}, KeyName: "resque:lock:NAME",
		Stamp: seconds, Plus: one, Win: WinExpired, Release: ReleaseBare,
	},
	{
		Name: "resque-lock-timeout", Kind: Seconds, About: "resque-lock-timeout with a timeout, and resque-lock-retry",
		Examples: []string{integer}, KeyName: "resque:lock:NAME",
		Stamp: seconds, Win: WinExpired, Release: ReleaseLive,
	},
	{
		Name: "lonely-job", Kind: Seconds, About: "resque-lonely_job since 0.0.4; it takes a lock over in the same second in which it ends",
		Examples: []string{integer}, KeyName: "resque:lonely_job:NAME",
		Stamp: seconds, Plus: one, Inclusive: true, Win: WinExpired, Release: ReleaseBare,
	},
	{
		Name: "mini-scheduler", Kind: Seconds, About: "mini_scheduler and Discourse's DistributedMutex",
		Examples: []string{integer}, KeyName: raw,
		Stamp: seconds, Win: WinWatched, Release: ReleaseBare,
	},
	{
		Name: "Guanima", Kind: Seconds, About: "Guanima.Redis for .NET",
		Examples: []string{integer}, KeyName: raw,
		Stamp: seconds, Win: WinExpired, Release: ReleaseLive,
	},
	{
		Name: "node-resque", Kind: Seconds, About: "node-resque's QueueLock and JobLock: a takeover is a plain SET, so two can win it",
		Examples: []string{integer}, KeyName: "resque:lock:NAME",
		Stamp: seconds, Plus: one, Win: WinAlways, Release: ReleaseBare, TTL: TTLSeconds,
	},
	{
		Name: "celery-once-1", Kind: Seconds, About: "celery-once before 2: GET, then SETEX, so two can win a free key",
		Examples: []string{integer}, KeyName: "qo_NAME",
		Stamp: seconds, Win: WinAlways, Release: ReleaseBare, TTL: TTLAtomic,
	},
	{
		Name: "ohm-0273623", Kind: Seconds, About: "Ohm at commit 0273623",
		Examples: []string{integer}, KeyName: "NAME:_lock",
		Stamp: seconds, Win: WinExpired, Release: ReleaseBare,
	},
	{
		Name: "redis-mutex-0.9", Kind: Seconds, About: "redis-mutex 0.9.0, a gem",
		Examples: []string{integer}, KeyName: "Redis::Mutex:NAME",
		Stamp: seconds, Inclusive: true, Win: WinExpired, Release: ReleaseCompare,
	},

	{
		Name: "redis-py-2.9", Kind: FloatSeconds, About: "redis-py 2.2.4 to 2.9.1; 2147483649.0 means no timeout",
		Examples: []string{fraction, "1310551200.0", "2147483649.0"}, KeyName: raw,
		Stamp: floats, Win: WinExpired, Release: ReleaseNotEarly,
	},
	{
		Name: "redis-mutex", Kind: FloatSeconds, About: "redis-mutex since 4.0, a gem: it changed the key's name, so 3 and 4 do not exclude each other",
		Examples: []string{fraction}, KeyName: "RedisMutex:NAME",
		Stamp: floats, Inclusive: true, Win: WinExpired, Release: ReleaseCompare,
	},
	{
		Name: "redis-mutex-3", Kind: FloatSeconds, About: "redis-mutex 1.0 to 3, a gem",
		Examples: []string{fraction}, KeyName: "Redis::Mutex:NAME",
		Stamp: floats, Inclusive: true, Win: WinExpired, Release: ReleaseCompare,
	},
	{
		Name: "redis-objects-1.3", Kind: FloatSeconds, About: "redis-objects 0.2.4 to 1.4.0, a gem, with :expiration",
		Examples: []string{fraction}, KeyName: raw,
		Stamp: floats, Plus: one, Win: WinExpired, Release: ReleaseLive,
	},
	{
		Name: "retools-0.3", Kind: FloatSeconds, About: "retools 0.1 to 0.3",
		Examples: []string{fraction}, KeyName: raw,
		Stamp: floats, Plus: one, Win: WinEqual, Release: ReleaseLive, TTL: TTLSeconds,
	},
	{
		Name: "redset", Kind: FloatSeconds, About: "redset; it waits a hundredth of a second longer than the value says",
		Examples: []string{fraction}, KeyName: raw,
		Stamp: floats, Grace: 10 * time.Millisecond, Win: WinEqual, Release: ReleaseBare,
	},
	{
		Name: "chris-lamb", Kind: FloatSeconds, About: "the snippet by Chris Lamb that many Python programs carry",
		Examples: []string{fraction}, KeyName: raw,
		Stamp: floats, Plus: one, Win: WinEqual, Release: ReleaseBare,
	},
	{
		Name: "ohm-0.1", Kind: FloatSeconds, About: "Ohm 0.0.3x to 0.1",
		Examples: []string{fraction}, KeyName: "NAME:_lock",
		Stamp: floats, Win: WinExpired, Release: ReleaseBare,
	},
	{
		Name: "redis-semaphore", Kind: FloatSeconds, About: "redis-semaphore 0.3.1, the mutex around its stale locks",
		Examples: []string{fraction}, KeyName: "SEMAPHORE:NAME:release_locks",
		Stamp: floats, Win: WinEqual, Release: ReleaseLive,
	},
	{
		Name: "YiiRedis", Kind: FloatSeconds, About: "YiiRedis's ARedisMutex",
		Examples: []string{fraction}, KeyName: raw,
		Stamp: floats, Win: WinEqual, Release: ReleaseLive,
	},
	{
		Name: "setnx-locking", Kind: FloatSeconds, About: "SETNX::Locking, a Ruby module",
		Examples: []string{fraction}, KeyName: raw,
		Stamp: floats, Win: WinExpired, Release: ReleaseLive,
	},

	{
		Name: "jedis-lock", Kind: Millis, About: "jedis-lock 1.0.0, and redis-quartz",
		Examples: []string{inMillis}, KeyName: raw,
		Stamp: millis, Plus: time.Millisecond, Win: WinEqual, Release: ReleaseBare,
	},
	{
		Name: "npm-redis-lock-0.0", Kind: Millis, About: "redis-lock 0.0.2 to 0.0.9, for Node; it overwrites what it cannot parse",
		Examples: []string{inMillis}, KeyName: "lock.NAME",
		Stamp: millis, Plus: time.Millisecond, Inclusive: true, Win: WinEqual, Release: ReleaseLive,
	},
	{
		Name: "ServiceStack", Kind: Millis, About: "ServiceStack.Redis's RedisLock since October 2012; under WATCH since 4.0.44",
		Examples: []string{inMillis}, KeyName: raw,
		Stamp: millis, Plus: time.Millisecond, Inclusive: true, Win: WinEqual, Release: ReleaseBare,
	},
	{
		Name: "redigolock", Kind: Millis, About: "redigolock, for Go",
		Examples: []string{inMillis}, KeyName: "L:{NAME}",
		Stamp: millis, Win: WinEqual, Release: ReleaseLive,
	},

	{
		Name: "machinery", Kind: Nanos, About: "machinery's locks/redis before 1.10.3, for Go; it is never released",
		Examples: []string{inNanos}, KeyName: "machinery_lock_NAME",
		Stamp: nanos, Win: WinExpired, Release: ReleaseNever,
	},
	{
		Name: "machinery-1.10", Kind: Nanos, About: "machinery's locks/redis since 1.10.3, for Go: the key has a TTL too; it is never released",
		Examples: []string{inNanos}, KeyName: "machinery_lock_NAME",
		Stamp: nanos, Win: WinExpired, TTL: TTLAtomic, Release: ReleaseNever,
	},
	{
		Name: "bsm-redis-lock-2014", Kind: Nanos, About: "bsm/redis-lock in October 2014, for Go",
		Examples: []string{inNanos}, KeyName: raw,
		Stamp: nanos, Win: WinExpired, Release: ReleaseLive,
	},

	{
		Name: "PT-redis-lock-0.1", Kind: OwnedSeconds, About: "PatrickTulskie's redis-lock 0.1, a gem",
		Examples: []string{"1795238718-4711"}, KeyName: "lock:NAME",
		Stamp: Stamp{Unit: time.Second, Owner: OwnerPID}, Plus: one, Win: WinEqual, Release: ReleaseCompare,
	},
	{
		Name: "PT-redis-lock", Kind: OwnedSeconds, About: "PatrickTulskie's redis-lock 0.2.0, a gem",
		Examples: []string{"1795238718-4711-70123456789"}, KeyName: "lock:NAME",
		Stamp: Stamp{Unit: time.Second, Owner: OwnerPIDThread}, Plus: one, Win: WinEqual, Release: ReleaseCompare,
	},
	{
		Name: "PredisLock", Kind: OwnedSeconds, About: "PredisLock, for PHP",
		Examples: []string{"1795238718:4711"}, KeyName: "lock:NAME",
		Stamp: Stamp{Unit: time.Second, Owner: OwnerColonPID}, Win: WinExpired, Release: ReleaseLive,
	},

	{
		Name: "jedis-lock-1.0.1", Kind: OwnedMillis, About: "jedis-lock's master of July 2015, 1.0.1-SNAPSHOT; it takes over what it cannot parse",
		Examples: []string{leadingF + ":" + inMillis}, KeyName: raw,
		Stamp: Stamp{Unit: time.Millisecond, Owner: OwnerUUID}, Plus: time.Millisecond, Win: WinEqual, Release: ReleaseBare,
	},

	{
		Name: "ServiceStack-DistributedLock", Kind: BinSeconds, About: "ServiceStack.Redis's Support.Locking.DistributedLock, since 2011",
		Examples: []string{"\x3e\x2b\x01\x6b\x00\x00\x00\x00"}, KeyName: raw,
		Stamp: Stamp{Unit: time.Second, Binary: true}, Win: WinWatched, Release: ReleaseWatched,
	},

	{
		Name: "redis-in-action", Kind: InAction, About: "the book Redis in Action, in Python, Java, Go and Clojure",
		Examples: []string{leadingF}, KeyName: "lock:NAME",
		Token: TokenUUID, TTL: TTLSeconds, Repair: true, Release: ReleaseWatched,
	},

	{
		Name: "redis-py-2.10", Kind: Python, About: "redis-py 2.10.0 to 2.10.6, Lock and LuaLock; through it tooz, dogpile.cache, django-redis",
		Examples: []string{hexadec}, KeyName: raw,
		Token: TokenHex, TTL: TTLMillis, Endless: true, Release: ReleaseWatched,
	},
	{
		Name: "redis-py-3", Kind: Python, About: "redis-py since 3.0: SET NX PX; also redbeat, celery-once 3, django-redis, and this module's setlock and txlock",
		Examples: []string{hexadec}, KeyName: raw,
		Token: TokenHex, TTL: TTLAtomic, Endless: true, Release: ReleaseScript,
	},

	{
		Name: "npm-redlock", Kind: Python, About: "redlock for Node, 2 to 5, on one server",
		Examples: []string{hexadec}, KeyName: raw,
		Token: TokenHex, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "rq", Kind: Python, About: "rq's scheduler since 2, for Python: the scheduler's name",
		Examples: []string{hexadec}, KeyName: "rq:scheduler-lock:NAME",
		Token: TokenHex, TTL: TTLAtomic, Release: ReleaseScript,
	},

	{
		Name: "rq-1", Kind: Owned, About: "rq's scheduler before 2, for Python: the process's number",
		Examples: []string{"4711"}, KeyName: "rq:scheduler-lock:NAME",
		Token: TokenPID, TTL: TTLAtomic, Unread: true, Release: ReleaseBare,
	},
	{
		Name: "resque-scheduler", Kind: Owned, About: "resque-scheduler's master lock",
		Examples: []string{hostAndPid}, KeyName: raw,
		Token: TokenHostPID, TTL: TTLSeconds, Release: ReleaseCompare,
	},
	{
		Name: "node-resque-scheduler", Kind: Owned, About: "node-resque's master lock",
		Examples: []string{hostAndPid}, KeyName: raw,
		Token: TokenHostPID, TTL: TTLSeconds, Release: ReleaseBare,
	},
	{
		Name: "Beaker", Kind: Owned, About: "Beaker's ext:redis; its lease is 900 s",
		Examples: []string{"3fa9c1-4711-140235673298944"}, KeyName: "beaker_lock:NAME",
		Token: TokenBeaker, TTL: TTLMillis, Release: ReleaseWatched,
	},
	{
		Name: "ShedLock", Kind: Owned, About: "ShedLock's Redis provider; NAME is the environment and the name",
		Examples: []string{"ADDED:2017-03-04T05:06:07.123@web1"}, KeyName: "job-lock:NAME",
		Token: TokenShedLock, TTL: TTLMillis, Unread: true, Release: ReleaseBare,
	},
	{
		Name: "spring", Kind: Owned, About: "Spring Integration 4's RedisLockRegistry; NAME is the registry's key with the lock's",
		Examples: []string{"\x04web1\x06report\x04main\x00\x00\x01\xa1\xfc\x90\xea\x6a"}, KeyName: raw,
		Token: TokenSpring, TTL: TTLMillis, Release: ReleaseBare,
	},
	{
		Name: "locky", Kind: Owned, About: "locky, for Node: the caller's text",
		Examples: []string{"john"}, KeyName: "lock:resource:NAME",
		Token: TokenText, TTL: TTLSeconds, Endless: true, Release: ReleaseBare,
	},

	{
		Name: "sherlock", Kind: Scripted, About: "sherlock, for Python",
		Examples: []string{leadingF}, KeyName: raw,
		Token: TokenUUID, TTL: TTLAtomic, Endless: true, Release: ReleaseScript,
	},
	{
		Name: "retools-0.4", Kind: Scripted, About: "retools 0.4: a script instead of 0.3's timestamp",
		Examples: []string{leadingF}, KeyName: raw,
		Token: TokenUUID, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "spring-5", Kind: Scripted, About: "Spring Integration 5's RedisLockRegistry; NAME is the registry's key, a colon and the lock's",
		Examples: []string{leadingF}, KeyName: raw,
		Token: TokenUUID, TTL: TTLAtomic, Release: ReleaseCompare,
	},
	{
		Name: "spring-6", Kind: Scripted, About: "Spring Integration 6's RedisLockRegistry, SPIN_LOCK; NAME is the registry's key, a colon and the lock's",
		Examples: []string{leadingF}, KeyName: raw,
		Token: TokenUUID, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "npm-redis-semaphore", Kind: Scripted, About: "redis-semaphore's Mutex, for Node",
		Examples: []string{leadingF}, KeyName: "mutex:NAME",
		Token: TokenUUID, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "pottery", Kind: Scripted, About: "pottery's Redlock, for Python, on one server",
		Examples: []string{leadingF}, KeyName: "redlock:NAME",
		Token: TokenUUID, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "Bull", Kind: Scripted, About: "Bull's lock of a job, for Node; NAME is the queue, a colon and the job",
		Examples: []string{leadingF}, KeyName: "bull:NAME:lock",
		Token: TokenUUID, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "BullMQ", Kind: Scripted, About: "BullMQ's lock of a job, for Node; NAME is the queue, a colon and the job",
		Examples: []string{leadingF + ":0"}, KeyName: "bull:NAME:lock",
		Token: TokenUUIDCount, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "python-redis-lock", Kind: Scripted, About: "python-redis-lock; its waiters wait on a list that a release pushes to",
		Examples: []string{base64ID}, KeyName: "lock:NAME",
		Token: TokenBase64, TTL: TTLAtomic, Endless: true, Signal: "lock-signal:NAME", Release: ReleaseScript,
	},
	{
		Name: "redlock-py", Kind: Scripted, About: "redlock-py, on one server",
		Examples: []string{"aZ3fQ9xY0bC7dE1gH5iJ2k"}, KeyName: raw,
		Token: TokenLetters, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "redsync", Kind: Scripted, About: "redsync, for Go, on one server",
		Examples: []string{padded}, KeyName: raw,
		Token: TokenBase64Pad, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "bsm-redislock", Kind: Scripted, About: "bsm/redislock, for Go, without metadata",
		Examples: []string{"0Vb9nDEyTnSlqYwC8vEL2Q"}, KeyName: raw,
		Token: TokenBase64URL, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "rueidislock", Kind: Scripted, About: "rueidislock, for Go, with a KeyMajority of 1; by its default it wants two of the keys rueidislock:0:NAME to rueidislock:2:NAME",
		Examples: []string{"\x01\xfe\x02\xfd\x03\xfc\x04\xfb\x05\xfa\x06\xf9\x07\xf8\x08\xf7\x09\xf6\x0a\xf5\x0b\xf4\x0c\xf3"}, KeyName: "rueidislock:0:NAME",
		Token: TokenBytes, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "rq-scheduler", Kind: Scripted, About: "rq-scheduler, for Python; NAME is scheduler_lock; it writes the time at which it took the lock, which no client reads",
		Examples: []string{fraction}, KeyName: "rq:NAME",
		Token: TokenStart, TTL: TTLAtomic, Unread: true, Release: ReleaseBare,
	},
	{
		Name: "npm-redis-exp-lock", Kind: Scripted, About: "redis-exp-lock, for Node",
		Examples: []string{"a3f7"}, KeyName: raw,
		Token: TokenText, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "node-redis-lock", Kind: Scripted, About: "node-redis-lock, for Node",
		Examples: []string{leadingF}, KeyName: raw,
		Token: TokenUUID, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "warlock", Kind: Scripted, About: "node-redis-warlock since 0.1, for Node; older versions name the key differently",
		Examples: []string{padded}, KeyName: "NAME:lock",
		Token: TokenBase64Pad, TTL: TTLAtomic, Release: ReleaseScript,
	},
	{
		Name: "npm-redis-lock-0.1", Kind: Scripted, About: "redis-lock since 0.1, for Node: writes what 0.0 wrote, with a TTL, but no longer reads it",
		Examples: []string{inMillis}, KeyName: "lock.NAME",
		Token: TokenMillis, TTL: TTLAtomic, Unread: true, Release: ReleaseLive,
	},

	{
		Name: "laravel-5.5", Kind: Flag, About: "Laravel's cache lock, 5.5 to 5.7, and Horizon",
		Examples: []string{"1"}, KeyName: raw,
		Token: TokenFlag, TTL: TTLSeconds, Endless: true, Unread: true, Release: ReleaseBare,
	},
	{
		Name: "SncRedisBundle", Kind: Flag, About: "SncRedisBundle 1.1.8 to 1.1.10, for Symfony",
		Examples: []string{"1"}, KeyName: raw,
		Token: TokenFlag, TTL: TTLSeconds, Unread: true, Release: ReleaseBare,
	},
	{
		Name: "redis-objects-endless", Kind: Flag, About: "redis-objects before 1.4.2, a gem, without :expiration: it never expires",
		Examples: []string{"1"}, KeyName: raw,
		Token: TokenFlag, Unread: true, Release: ReleaseBare,
	},
	{
		Name: "redis-objects-1.7", Kind: Flag, About: "redis-objects since 1.4.2, a gem: an empty value, SET PX NX",
		Examples: []string{""}, KeyName: raw,
		Token: TokenFlag, TTL: TTLAtomic, Unread: true, Release: ReleaseLive,
	},
	{
		Name: "resque-lock-timeout-0", Kind: Flag, About: "resque-lock-timeout with a timeout of 0: it never expires",
		Examples: []string{"true"}, KeyName: "resque:lock:NAME",
		Token: TokenFlag, Unread: true, Release: ReleaseBare,
	},

	{
		Name: "BookSleeve", Kind: Watched, About: "BookSleeve's TakeLock on servers before 2.6.12: WATCH, EXISTS, MULTI, SETEX, EXEC",
		Examples: []string{"web1"}, KeyName: raw,
		Token: TokenText, TTL: TTLAtomic, Release: ReleaseWatched,
	},

	{
		Name: "mlanett-redis-lock", Kind: TwoKeys, About: "mlanett's redis-lock, a gem: the owner on one key, the deadline on lock:expire:NAME, both by MSETNX",
		Examples: []string{hostAndPid}, KeyName: "lock:owner:NAME",
		Stamp: seconds, Win: WinWatched, Token: TokenHostPID, Release: ReleaseWatched,
	},
}
