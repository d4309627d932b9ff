package setlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Added is redis-py's Lock since 3.0: Lua, but an extension adds to what is left
// instead of setting it. For comparison.
//
//	acquire and release                   Lua's
//	extend   the script: GET, PTTL, PEXPIRE key (left + ttl)
//
// A lock that is renewed each third of its ttl by a whole ttl grows by two thirds
// at each renewal: when its holder dies, the key stands for as much longer, and
// nobody gets it (set/extend-adds). The lease we believe in is ttl all the same.
// redis-py sets, as Lua does, with extend(…, replace_ttl=True) and reacquire().
type Added struct{ Options }

// Acquire is Lua's.
func (k Added) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return Lua(k).Acquire(c, now, key, ttl)
}

var extendBy = redis.NewScript(-1, `
local left = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] or left < 0 then
	return false
end
redis.call('PEXPIRE', KEYS[1], left + ARGV[2])
return KEYS[2] and redis.call('INCR', KEYS[2]) or 0
`)

// Extend moves the end of the key, if it is still ours, by ttl.
func (k Added) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	return k.extend(c, now, l, ttl, extendBy)
}

// Release is Lua's.
func (k Added) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	return Lua(k).Release(c, now, l)
}

// Check is Lua's.
func (k Added) Check(c redis.Conn, key string) error { return Lua(k).Check(c, key) }
