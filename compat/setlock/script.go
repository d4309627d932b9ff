package setlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/session"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Script is the lock for servers that have scripts and no SET … NX PX: Redis
// 2.6.0–2.6.11, and proxies such as twemproxy 0.2. Every step is a script of
// one round trip.
//
//	EVALSHA take 1 key token ttl          1: ours; nil: held
//	EVALSHA extend 1 key token ttl        nil: not ours any more
//	EVALSHA release 1 key token           nil: not ours any more
//
// The articles' script is EXISTS, SET, EXPIRE. No other command runs during a script, but if one of
// its commands fails, those before it are not undone: an EXPIRE that is refused (a ttl out of
// range, an ACL, a renamed command) leaves a key that never expires (tx/crash-before-expire). So
// here the last command makes the key, with its TTL: EXISTS, PSETEX.
type Script struct{ Options }

var take = redis.NewScript(-1, takes)

const takes = `
if redis.call('EXISTS', KEYS[1]) == 1 then
	return false
end
local fence = 1
if KEYS[2] then
	fence = redis.call('INCR', KEYS[2])
	if fence >= 2^53 then -- a Lua number is a double
		fence = redis.call('GET', KEYS[2])
	end
end
redis.call('PSETEX', KEYS[1], ARGV[2], ARGV[1])
return fence
`

// Acquire makes one attempt to hold key until now+ttl.
func (k Script) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, ms, err := k.lease(now, key, ttl)
	if err != nil {
		return l, err
	}
	return k.take(c, l, ms)
}

func (k Script) take(c *protocol.Conn, l protocol.Lease, ms int64) (protocol.Lease, error) {
	args := []any{1, l.Key, l.Value, ms}
	if k.draws(l) {
		args = []any{2, l.Key, protocol.Aux(l.Key, "fence"), l.Value, ms}
	}
	w, err := c.Write(l.Key, protocol.Write{Do: []protocol.Cmd{append(protocol.Cmd{"EVALSHA", take.Hash()}, args...)}})
	if answer.NoScript(err) {
		w, err = c.Write(l.Key, protocol.Write{Do: []protocol.Cmd{append(protocol.Cmd{"EVAL", takes}, args...)}})
	}
	switch {
	case k.draws(l) && answer.NotString(err): // EXISTS and PSETEX take keys of any type
		_, err = c.Fence(l.Key, err)
		return l, err
	case err != nil:
		return l, err
	case w.Done == nil: // nothing was watched; but if EXEC says so, it did not run
		return l, protocol.ErrAborted
	case w.Done[0] == nil:
		return l, &protocol.HeldError{Key: l.Key}
	case w.Done[0] != int64(1) && !k.draws(l):
		return l, session.Unfit("the script", w.Done[0])
	case k.draws(l):
		l.Fence, err = c.Fence(l.Key, w.Done[0])
	}
	return l, err
}

// Extend moves the end of l to now+ttl.
func (k Script) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	return k.extend(protocol.Script, now, l, ttl, rotate)
}

// Release deletes the key if it still holds our token.
func (k Script) Release(l protocol.Lease) protocol.Change { return release(protocol.Script, l) }

// Traits make the Locker check the server.
func (k Script) Traits() protocol.Traits { return protocol.Traits{Rotates: true, Check: k.check} }

// check returns ErrUnsafeServer if the server does not let us run scripts.
func (k Script) check(c *protocol.Conn, key string) error {
	return k.checkScripts(c, key, older, ability.Need{Ability: ability.Milliseconds, Use: older})
}
