package setlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// AdditiveExtend is redis-py's Lock since 3.0: Lua, but an extension adds to what is left
// instead of setting it. For comparison.
//
//	acquire and release                   Lua's
//	extend   the script: GET, PTTL, PEXPIRE key (left + ttl)
//
// A lock that adds a whole ttl after each third of its ttl grows by two thirds at each renewal.
// When its holder dies, the key stays for that much longer, and no other client gets the lock
// (set/extend-adds). Our Lease still counts only one ttl. redis-py sets the ttl, as [Lua] does,
// with extend(…, replace_ttl=True) and reacquire().
type AdditiveExtend struct{ Options }

// Acquire is Lua's.
func (k AdditiveExtend) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return Lua(k).Acquire(c, now, key, ttl)
}

var extendBy = redis.NewScript(-1, `
local left = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] or left < 0 then
	return false
end
redis.call('PEXPIRE', KEYS[1], left + ARGV[2])
return KEYS[2] and redis.call('INCR', KEYS[2]) or 1
`)

// Extend moves the end of the key, if it is still ours, by ttl.
func (k AdditiveExtend) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	ms, err := compat.Whole(ttl, time.Millisecond)
	args := []any{1, l.Key, l.Value, ms}
	draw := k.draws(l)
	if draw {
		args = []any{2, l.Key, compat.Aux(l.Key, "fence"), l.Value, ms}
	}
	l.Until = compat.Until(now, ttl)
	return l, compat.Change{Key: l.Key, Value: l.Value, Draw: draw, By: func(c *compat.Conn) ([]any, error) {
		drawn, err := extendBy.Do(c, args...)
		if err == nil && drawn == nil {
			err = compat.ErrLost
		}
		return []any{drawn}, c.Foreign(l.Key, err)
	}}, err
}

// Release is Lua's.
func (k AdditiveExtend) Release(l compat.Lease) compat.Change { return Lua(k).Release(l) }

// Traits are Lua's, except that an extension keeps the token.
func (k AdditiveExtend) Traits() compat.Traits { return compat.Traits{Check: Lua(k).check} }
