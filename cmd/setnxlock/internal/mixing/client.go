package mixing

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/broken"
)

// lease is the lease that all parties ask for.
const lease = 10 * time.Second

// A client is the common part of all foreign clients: none extends, and each believes that it holds
// its lock for the full lease.
type client struct {
	dialect.Format
	quirks
	token func() string
}

// short is a fleet with shorter leases than all others.
type short struct {
	protocol.Algorithm
	lease time.Duration
}

func (s short) Acquire(c *protocol.Conn, now time.Time, key string, _ time.Duration) (protocol.Lease, error) {
	return s.Algorithm.Acquire(c, now, key, s.lease)
}

// An Exception ends a client's acquire or release without a change: the client's language cannot
// read the value on the key. A waiter sees it as a refusal by a foreign value: the program tries
// again, or dies.
type Exception struct{ Reader, Value string }

func (e *Exception) Error() string { return fmt.Sprintf("%s throws at %.40q", e.Reader, e.Value) }

// Is makes an Exception an ErrHeld and an ErrForeign.
func (e *Exception) Is(target error) bool {
	return target == protocol.ErrHeld || target == protocol.ErrForeign
}

// Extend fails: these clients do not extend.
func (client) Extend(_ time.Time, l protocol.Lease, _ time.Duration, _ bool) (protocol.Lease, protocol.Change, error) {
	return l, protocol.Change{}, protocol.ErrLost
}

// Traits returns none.
func (client) Traits() protocol.Traits { return protocol.Traits{} }

// Inspect reports a key with a value as dead, so that a waiter tries: these clients look by trying.
func (client) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL}
	value, exists, err := get(c, "GET", key)
	if exists {
		s.Value, s.Status = value, protocol.StatusDead
	}
	return s, err
}

// Release releases the lock as the client does, late or not.
func (k client) Release(l protocol.Lease) protocol.Change {
	return broken.By(l, func(c *protocol.Conn) error { return k.release(c, l) })
}

// now reads the client's own clock in the midst of a release.
func now(c *protocol.Conn) time.Time {
	if k, ok := c.Conn.(interface{ Now() time.Time }); ok {
		return k.Now()
	}
	return time.Time{}
}

func (k client) release(c *protocol.Conn, l protocol.Lease) error {
	var at time.Time
	if k.Format.Release == dialect.ReleaseLive || k.whileLive {
		at = now(c)
	}
	switch k.Format.Release {
	case dialect.ReleaseNever:
		return nil
	case dialect.ReleaseLive:
		deadline := l.Until.Add(k.Plus)
		if k.atMost {
			deadline = l.Until
		}
		if !at.Before(deadline) {
			return protocol.ErrLost
		}
	case dialect.ReleaseNotEarly:
		return k.releaseNotEarly(c, l)
	case dialect.ReleaseCompare:
		held, _, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if held != l.Value || k.whileLive && !at.Before(l.Until.Add(k.Plus)) {
			return protocol.ErrLost
		}
	case dialect.ReleaseWatched:
		_, err := c.Run(protocol.Change{Key: l.Key, Value: l.Value, Do: []protocol.Cmd{{"DEL", l.Key}}})
		return err
	case dialect.ReleaseScript:
		return released(c.Do("EVAL", compareAndDelete, 1, l.Key, l.Value))
	}
	return released(c.Do("DEL", l.Key))
}

// compareAndDelete is the release script of all of them.
const compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

func released(n any, err error) error {
	if err == nil && n == int64(0) {
		return protocol.ErrLost
	}
	return err
}

// releaseNotEarly releases as redis-py does: it deletes any value except a timestamp earlier than its own. It
// reports nothing if it does nothing.
func (k client) releaseNotEarly(c *protocol.Conn, l protocol.Lease) error {
	held, exists, err := get(c, "GET", l.Key)
	if err != nil {
		return err
	}
	n, thrown := k.number(held, exists)
	if thrown != nil {
		return protocol.ErrLost
	}
	if mine, _ := k.reads(l.Value); n < mine {
		return nil
	}
	_, err = c.Do("DEL", l.Key)
	return err
}

// get reads a key; exists is false if it is missing.
func get(c *protocol.Conn, cmd string, args ...any) (value string, exists bool, err error) {
	value, err = redis.String(c.Do(cmd, args...))
	if errors.Is(err, redis.ErrNil) {
		return "", false, nil
	}
	return value, err == nil, err
}

// create takes a missing key, and sets its TTL, at once or by a second command.
func create(c *protocol.Conn, l protocol.Lease, ttl time.Duration, kind dialect.TTL) (bool, error) {
	if kind == dialect.TTLAtomic {
		_, won, err := get(c, "SET", l.Key, l.Value, "NX", "PX", ttl.Milliseconds())
		return won, err
	}
	won, err := redis.Bool(c.Do("SETNX", l.Key, l.Value))
	if won {
		err = expire(c, l.Key, ttl, kind)
	}
	return won, err
}

// expire sets a key's TTL behind its value.
func expire(c *protocol.Conn, key string, ttl time.Duration, kind dialect.TTL) (err error) {
	switch kind {
	case dialect.TTLNone:
	case dialect.TTLMillis:
		_, err = c.Do("PEXPIRE", key, ttl.Milliseconds())
	default:
		_, err = c.Do("EXPIRE", key, int64(ttl/time.Second))
	}
	return err
}
