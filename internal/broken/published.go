package broken

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// Published returns broken locks from articles, a book and a client library. On every server on
// which one of them works, a lock of this module without the flaw works, too.
func Published() []Lock {
	return []Lock{
		{Name: "set:published", Says: "SET NX PX; released by GET and DEL, as is widely copied",
			New: func(token func() string, fence bool) protocol.Algorithm {
				return getThenDel{setlock.Watched{Options: setlock.Options{Fence: fence, Token: token}}}
			}},
		{Name: "set:redis-py", Says: "SET NX PX; a script releases, and extends by adding to what is left, as redis-py's does",
			New: func(token func() string, fence bool) protocol.Algorithm {
				return additiveExtend{setlock.Lua{Options: setlock.Options{Fence: fence, Token: token}}}
			}},
		{Name: "tx:classic/published", Says: "tx:classic with the TTL repair of Redis in Action",
			New: func(token func() string, fence bool) protocol.Algorithm {
				return RepairAtOnce{txlock.Options{Fence: fence, Token: token}}
			}},
		{Name: "rw:read/published", Says: "a reader as in the articles: a mutex around GET and ZADD", Shared: true,
			New: func(token func() string, _ bool) protocol.Algorithm { return mutexRead{token} }},
		{Name: "rw:write/published", Says: "a writer as in the articles: a mutex around ZREMRANGEBYSCORE, ZCARD and SETNX",
			New: func(token func() string, _ bool) protocol.Algorithm { return mutexWrite{token} }},
		{Name: "semaphore/book", Says: "a semaphore of two as in Redis in Action: a sorted set, swept and ranked by the clients' clocks", Shared: true, Most: two,
			New: func(token func() string, _ bool) protocol.Algorithm { return bookSemaphore{semaphore{token}} }},
		{Name: "semaphore/fair", Says: "the fair semaphore of Redis in Action, of two: ranked by a counter, which a step of its own increments", Shared: true, Most: two,
			New: func(token func() string, _ bool) protocol.Algorithm { return fairSemaphore{semaphore{token}} }},
		{Name: "semaphore/lists", Says: "redis-semaphore of two, with its stale_client_timeout: a list of tokens, and a hash of their holders' times", Bare: true, Shared: true, Most: two,
			New: func(token func() string, _ bool) protocol.Algorithm { return listSemaphore{semaphore{token}} }},
	}
}

// getThenDel is the lock of SET from many articles, without a script: the client compares,
// then deletes.
//
//	SET key token NX PX ttl     OK: ours; nil: held
//	GET key                     ours?
//	PEXPIRE key ttl             even if another client holds the key by now
//	DEL key                     even if another client holds the key by now
//
// Between the GET and the DEL the lease may end and another client may take the key. That client's
// lock is then deleted, and a third client gets in beside it (set/compare-then-del). In the same
// way, an extension may change the end of another client's lock.
type getThenDel struct{ setlock.Watched }

func (k getThenDel) Extend(now time.Time, l protocol.Lease, ttl time.Duration, _ bool) (protocol.Lease, protocol.Change, error) {
	l, ch, err := k.Watched.Extend(now, l, ttl, false) // a new value would put our token on another client's lock
	ch.If = protocol.Unguarded
	return l, ch, err
}

func (k getThenDel) Release(l protocol.Lease) protocol.Change {
	ch := k.Watched.Release(l)
	ch.If = protocol.Unguarded
	return ch
}

func (k getThenDel) Traits() protocol.Traits { return protocol.Traits{Check: k.Watched.Traits().Check} }

// additiveExtend is redis-py's Lock since 3.0: setlock.Lua, but an extension adds its ttl to the
// remaining one.
//
//	acquire and release                   Lua's
//	extend   the script: GET, PTTL, PEXPIRE key (left + ttl)
//
// A lock that adds a whole ttl after each third of its ttl grows by two thirds at each renewal.
// When its holder dies, the key stays for that much longer, and no other client gets the lock
// (set/extend-adds). Our Lease still counts only one ttl. redis-py sets the ttl, as setlock.Lua
// does, with extend(…, replace_ttl=True) and reacquire().
type additiveExtend struct{ setlock.Lua }

var extendBy = redis.NewScript(-1, `
local left = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] or left < 0 then
	return false
end
redis.call('PEXPIRE', KEYS[1], left + ARGV[2])
return KEYS[2] and redis.call('INCR', KEYS[2]) or 1
`)

func (k additiveExtend) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	ms, err := protocol.Whole(ttl, time.Millisecond)
	args := []any{1, l.Key, l.Value, ms}
	draw := k.Fence && l.Fence == 0
	if draw {
		args = []any{2, l.Key, protocol.Aux(l.Key, "fence"), l.Value, ms}
	}
	l.Until = protocol.Until(now, ttl)
	return l, protocol.Change{Key: l.Key, Value: l.Value, TakeFence: draw, Custom: func(c *protocol.Conn) ([]any, error) {
		drawn, err := extendBy.Do(c, args...)
		if err == nil && drawn == nil {
			err = protocol.ErrLost
		}
		return []any{drawn}, protocol.Foreign(l.Key, err)
	}}, err
}

func (k additiveExtend) Traits() protocol.Traits { return protocol.Traits{Check: k.Lua.Traits().Check} }

// RepairAtOnce is txlock.Classic with the TTL repair of Redis in Action: a refused client that
// finds a key without a TTL gives it one.
//
//	SETNX key token             0: held
//	TTL key                     -1
//	EXPIRE key ttl              even if another client holds the key by now
//
// On Redis 2.2–2.6 the repair revives a lock that has just expired (tx/ttl-repair-revives). The
// repair may also shorten the lease of a holder that is about to set its TTL (tx/ttl-repair).
type RepairAtOnce struct{ txlock.Options }

// Acquire makes one attempt to hold key until now+ttl.
func (r RepairAtOnce) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := r.classic().Acquire(c, now, key, ttl)
	if !errors.Is(err, protocol.ErrHeld) {
		return l, err
	}
	expire, _ := protocol.Expire(r.Millis, key, ttl) // Acquire has accepted the ttl
	left, failed := redis.Int64(c.Do("TTL", key))
	if failed == nil && left == -1 {
		// Before 2.8, TTL answers -1 for a missing key, too: the key may have
		// expired since the SETNX, and this TTL goes to the next holder.
		_, failed = c.Do(expire[0].(string), expire[1:]...)
	}
	if failed != nil {
		return l, failed
	}
	return l, err
}

// Traits returns the traits of Classic without its repair.
func (r RepairAtOnce) Traits() protocol.Traits { return r.classic().Traits() }

func (r RepairAtOnce) classic() txlock.Classic {
	return txlock.Classic{Options: r.Options, NoRepair: true}
}
