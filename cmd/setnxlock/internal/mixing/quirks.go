package mixing

import (
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
)

// quirks describes the behaviour of a client beyond its format: how its language reads the value, and how it
// treats a vanished or empty key.
type quirks struct {
	reader
	gone  gone
	falsy falsy

	rounds     bool // its clock is rounded to the second, not cut
	looseEqual bool // compares the text that GETSET returned with the parsed number by JavaScript's ==
	needsOld   bool // a GETSET that returns nothing is an error to it: it does not hold what it has written
	unasked    bool // GET, then SETEX: no SETNX
	atMost     bool // releases only until its lease ends, without the margin added to its timestamp
	whileLive  bool // releases only its own value, and only until it expires
	legacy     bool // still reads the timestamps that older versions wrote

	Source string
}

// gone is a client's reaction to a key that vanishes between SETNX and GET.
type gone uint8

const (
	goneDead  gone = iota // nil.to_i is 0, `or 1`: taken over
	goneHeld              // asks again later
	goneAgain             // asks again at once
)

// falsy is how a client treats an empty value.
type falsy uint8

const (
	falsyRead falsy = iota // read as a number
	falsyDead              // `existing or 1`
	falsyHeld              // `current_value and …`
)

// margins returns the offsets from the timestamp on the key at which the client may begin to treat it as
// expired: it waits a little longer, or it counts in whole seconds and ignores others' fractions.
func (m quirks) margins(f dialect.Format) []time.Duration {
	switch {
	case f.Grace > 0:
		return []time.Duration{f.Grace}
	case f.Stamp.Float || f.Stamp.Unit < time.Second:
		return nil
	case m.rounds: // half a second later; with a fraction of phase, so much sooner
		return []time.Duration{time.Second / 2, time.Second/2 - phase}
	case f.Inclusive:
		return []time.Duration{-phase}
	}
	return []time.Duration{time.Second}
}

// quirksOf describes the clients that read the value, from their source code; the executed table agrees where
// it has the client. Token clients that are missing here do not read the value.
var quirksOf = sync.OnceValue(func() map[string]quirks {
	return map[string]quirks{
		"redis-docs":          {reader: dutiful, gone: goneHeld, Source: "the page of SETNX; it leaves the reading to the reader"},
		"redis-py-2.2.3":      {reader: pyInt, falsy: falsyDead, Source: "redis/client.py: long(self.redis.get(self.name) or 1)"},
		"resque-lock":         {reader: rubyInt, Source: "lib/resque/plugins/lock.rb: now <= get(key).to_i"},
		"resque-lock-timeout": {reader: rubyInt, gone: goneAgain, Source: "lib/resque/plugins/lock_timeout.rb: lock_expiration && lock_expiration.to_i < now"},
		"lonely-job":          {reader: rubyInt, Source: "lib/resque-lonely_job.rb: get(key).to_i"},
		"mini-scheduler":      {reader: rubyInt, gone: goneHeld, Source: "distributed_mutex.rb: time && time.to_i < Time.now.to_i"},
		"Guanima":             {reader: netTry, gone: goneHeld, Source: "Guanima.Redis: TryParse"},
		"node-resque":         {reader: jsInt, rounds: true, Source: "src/plugins/QueueLock.ts: now <= parseInt(redisTimeout); expire(key, lockTimeout)"},
		"celery-once-1":       {reader: pyInt, unasked: true, Source: "celery_once/tasks.py: int(result) - now"},
		"ohm-0273623":         {reader: rubyInt, Source: "lib/ohm.rb: mutex"},
		"redis-mutex-0.9":     {reader: rubyInt, Source: "lib/redis/mutex.rb: get.to_i > now"},

		"redis-py-2.9":      {reader: pyFloat, falsy: falsyDead, Source: "redis/client.py: float(self.redis.get(self.name) or 1)"},
		"redis-mutex":       {reader: rubyFloat, gone: goneAgain, Source: "lib/redis_mutex.rb: begin … end until old_value = get"},
		"redis-mutex-3":     {reader: rubyFloat, Source: "lib/redis/mutex.rb: get.to_f > now"},
		"redis-objects-1.3": {reader: rubyFloat, Source: "lib/redis/lock.rb: get(key).to_f"},
		"retools-0.3":       {reader: pyFloat, gone: goneHeld, falsy: falsyHeld, atMost: true, Source: "retools/lock.py: current_value and float(current_value) < time.time(); time.time() - self.start_time < self.expires"},
		"redset":            {reader: pyFloat, gone: goneHeld, falsy: falsyHeld, Source: "redset/locks.py: current_value and self.has_expired(current_value)"},
		"chris-lamb":        {reader: pyFloat, gone: goneHeld, falsy: falsyHeld, Source: "chris-lamb.co.uk, Distributing locking with Python and Redis"},
		"ohm-0.1":           {reader: rubyFloat, Source: "lib/ohm.rb: mutex"},
		"redis-semaphore":   {reader: rubyFloat, Source: "lib/redis/semaphore.rb: simple_expiring_mutex"},
		"YiiRedis":          {reader: phpNumber, Source: "ARedisMutex.php: $expireTime > time()"},
		"setnx-locking":     {reader: rubyFloat, Source: "SETNX::Locking: get(key).to_f"},

		"jedis-lock":         {reader: javaLong, gone: goneHeld, Source: "JedisLock.java: Long.parseLong(currentValueStr) < System.currentTimeMillis()"},
		"npm-redis-lock-0.0": {reader: jsFloat, gone: goneHeld, falsy: falsyHeld, looseEqual: true, Source: "index.js: parseFloat(existingLockTimestamp) > Date.now(); result == existingLockTimestamp"},
		"ServiceStack":       {reader: netTry, gone: goneHeld, Source: "RedisLock.cs: long.TryParse"},
		"redigolock":         {reader: goInt, gone: goneHeld, Source: "redigolock.go: strconv.ParseInt"},

		"machinery":           {reader: goInt, gone: goneHeld, needsOld: true, Source: "v1/locks/redis/redis.go: strconv.Atoi; GetSet(…).Result() is redis.Nil"},
		"machinery-1.10":      {reader: goInt, gone: goneHeld, needsOld: true, Source: "the same: SetNX with an expiration, Expire after GetSet"},
		"bsm-redis-lock-2014": {reader: goIntZero, Source: "lock.go at b210f8b: the error of the parser is dropped"},

		"PT-redis-lock-0.1": {reader: rubySplit, whileLive: true, Source: "lib/redis/lock.rb: current_lock.to_s.split('-').first.to_i"},
		"PT-redis-lock":     {reader: rubySplit, whileLive: true, Source: "lib/redis/lock.rb: split('-')"},
		"PredisLock":        {reader: phpNumber, Source: "explode(':', $value): time() > $parts[0]"},

		"jedis-lock-1.0.1": {reader: afterColon, gone: goneHeld, Source: "JedisLock.java at 8a54e1e: Lock.fromString"},

		"ServiceStack-DistributedLock": {reader: netBytes, gone: goneHeld, Source: "Support/Locking/DistributedLock.cs: BitConverter.ToInt64"},

		"redis-objects-1.7": {legacy: true, Source: "lib/redis/lock.rb since 1.4.2: Backward compatibility code"},
	}
})
