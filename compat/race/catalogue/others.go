package catalogue

import (
	"strings"
	"sync"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/broken"
	"github.com/setnxlock/setnxlock/txlock"
)

// others are the locks that exist only to be broken, and ours with what a
// scenario needs to be different.
var others = []struct {
	name, says string
	make       func(token func() string) protocol.Algorithm
}{
	{"other/endless", "SETNX and DEL, without a TTL (redis-objects in 2009)",
		func(token func() string) protocol.Algorithm { return endless{token: token} }},
	{"other/forgetful", "SETNX and DEL, without a TTL; a reply that was lost counts as a refusal",
		func(token func() string) protocol.Algorithm { return forgetful{endless{token: token}} }},
	{"other/naive-del", "takes over an expired timestamp by DEL and SETNX",
		func(func() string) protocol.Algorithm { return naiveDel{} }},
	{"other/equal-only", "the SETNX page to the letter: expired is what equals now",
		func(func() string) protocol.Algorithm { return equalOnly{} }},
	{"other/old-stamp", "writes a time computed before it began to wait",
		func(func() string) protocol.Algorithm { return oldStamp{} }},
	{"other/resolve-by-reading", "settles a lost reply by finding its own time on the key",
		func(func() string) protocol.Algorithm { return resolveByReading{} }},
	{"other/redis-py-2.9", "float seconds (redis-py 2.2.4–2.9.1)",
		func(func() string) protocol.Algorithm { return redisPy29{decimals: 6} }},
	{"other/redis-py-on-python-2.6", "redis-py before PR 384, on a Python whose floats print two decimals",
		func(func() string) protocol.Algorithm { return redisPy29{decimals: 2, exactly: true} }},
	{"other/redis-mutex", "float seconds, read by Ruby's to_f (kenn/redis-mutex)",
		func(func() string) protocol.Algorithm { return redisMutex{} }},
	{"other/lonely-job", "whole seconds, expired when not after now (resque-lonely_job)",
		func(func() string) protocol.Algorithm { return lonelyJob{} }},
	{"other/npm-redis-lock", "milliseconds, read by parseFloat (npm redis-lock 0.0.2–0.0.9)",
		func(func() string) protocol.Algorithm { return npmLock{} }},
	{"other/npm-redis-lock-0.0.1", "milliseconds, read by parseFloat; no key counts as one that can't be read",
		func(func() string) protocol.Algorithm { return npmLock{first: true} }},
	{"other/jedis-lock", "UUID:milliseconds, expired or mine (jedis-lock's master)",
		func(token func() string) protocol.Algorithm { return jedisLock{uuid: token} }},

	{"other/bare-del", "SETNX, EXPIRE; releases by DEL (Laravel up to 5.7)", tokens(tokened{free: bareDel})},
	{"other/set-del", "SET NX PX; releases by DEL", tokens(tokened{take: setNXPX, free: bareDel})},
	{"other/check-then-set", "GET, and SET PX if there is no key; releases under WATCH", tokens(tokened{take: checkThenSet})},
	{"other/retry-del", "SETNX, EXPIRE; releases by GET and DEL, and repeats a DEL whose reply was lost",
		tokens(tokened{free: retryDel})},
	{"other/watch-only", "SETNX, EXPIRE; releases under WATCH without MULTI (redis-py 2.10.0–2.10.5)",
		tokens(tokened{free: watchOnly})},
	{"other/reconnecting", "SETNX, EXPIRE; releases under WATCH by a client that reconnects unasked",
		tokens(tokened{free: reconnecting})},
	{"other/give-up", "SETNX, EXPIRE; takes an aborted release for a lost lock", tokens(tokened{free: giveUp})},
	{"other/busy-release", "SETNX, EXPIRE; renews on the connection that releases, and takes an aborted release for a lost lock",
		tokens(tokened{free: busyRelease})},
	{"other/late-renew", "SETNX, EXPIRE; a renewal is on the way when it releases", tokens(tokened{free: lateRenew})},
	{"other/blind-renew", "SETNX, EXPIRE; extends whatever is there", tokens(tokened{renew: blindRenew})},
	{"other/unchecked-renew", "SETNX, EXPIRE; does not read the reply to its renewal",
		tokens(tokened{renew: uncheckedRenew})},
	{"other/append-renew", "SETNX, EXPIRE; counts its renewals in the value",
		func(token func() string) protocol.Algorithm {
			return appendRenew{tokened{Options: txlock.Options{Token: token}}}
		}},
	{"other/half-queued", "SET NX PX and INCR in one MULTI; looks at EXEC's first reply only",
		tokens(tokened{take: halfQueued})},
	{"other/late-lease", "SETNX, EXPIRE; counts its lease from the reply", tokens(tokened{take: lateLease})},
	{"other/setnx-expire", "SETNX, EXPIRE of as many seconds as integer division leaves", tokens(tokened{})},
	{"other/together", "SETNX and EXPIRE in one MULTI", tokens(tokened{take: inOneMulti})},
	{"other/setex-fallback", "SET NX PX, and SETEX where there is none (redlock-py, PR 12)",
		tokens(tokened{take: setexFallback})},
	{"other/getset-only", "GETSET, EXPIRE; ours if there was nothing (redis-semaphore)",
		tokens(tokened{take: getsetOnly})},
	{"other/stale-watch", "SETNX, EXPIRE; extends under a WATCH that it leaves on the connection",
		tokens(tokened{renew: staleWatch, free: giveUp})},
	{"other/unverified-watch", "SETNX, EXPIRE; watches from then on, and releases whatever it watches",
		tokens(tokened{take: unverifiedWatch, free: remove})},

	{"tx:classic/published-3s", "SETNX, then EXPIRE, with the published TTL repair; leases of 3 s whatever is asked for",
		func(token func() string) protocol.Algorithm {
			return shortRepair{broken.RepairAtOnce{Options: txlock.Options{Token: token}}}
		}},

	{"getset:published", "the lock of the SETNX page: taken over with GETSET, released by DEL if its own time is not over",
		func(token func() string) protocol.Algorithm {
			return clockCheckedDel{getsetlock.Classic{Options: getsetlock.Options{Nonce: token}}}
		}},
	{"getset:guarded/seconds", "getset:guarded with whole seconds",
		func(func() string) protocol.Algorithm {
			return getsetlock.Guarded{Options: getsetlock.Options{Dialect: getsetlock.Seconds}}
		}},
	{"getset:guarded/millis", "getset:guarded with milliseconds",
		func(func() string) protocol.Algorithm {
			return getsetlock.Guarded{Options: getsetlock.Options{Dialect: getsetlock.Millis}}
		}},
}

func tokens(t tokened) func(token func() string) protocol.Algorithm {
	return func(token func() string) protocol.Algorithm {
		t := t
		t.Token = token
		return t
	}
}

// Locks returns the scenarios' locks beside those of this module: the clients in the field, the
// explorer's broken test locks, and variants of ours.
func Locks() race.Locks { return locks() }

var locks = sync.OnceValue(func() race.Locks {
	all := plan.Broken()
	for _, o := range others {
		all[o.name] = race.Lock{Says: o.says, Bare: strings.HasPrefix(o.name, "other/"),
			New: func(token func() string, _ bool) protocol.Algorithm { return o.make(token) }}
	}
	return all
})
