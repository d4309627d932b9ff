package broken

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
)

// The read-write lock of the articles: a mutex around a look at both sides and the change of one.
// Its keys are rwlock's. Its commands exist in Redis 2.2: SETNX and EXPIRE where a newer article has
// SET … NX EX.

// mutexRead is the readers' half.
//
//	SETNX mutex 1; EXPIRE mutex 5    0: another client is inside
//	GET key                          a writer: held
//	ZADD readers end token
//	DEL mutex                        even if another client holds it by now (rw/bare-mutex)
//
//	extend    ZADD readers end token      even if a writer swept the reader (rw/extend-resurrects)
//	release   ZREM readers token          0, for a swept reader, is no error (rw/expired-reader)
//
// A client that pauses inside for longer than the mutex lasts adds itself beside a writer that came
// in meanwhile (rw/mutex-outrun). A client that dies between SETNX and EXPIRE leaves a mutex that never
// expires (tx/crash-before-expire). The set of readers never expires.
type mutexRead struct{ token func() string }

// mutexWrite is the writer's half.
//
//	SETNX mutex 1; EXPIRE mutex 5    0: another client is inside
//	ZREMRANGEBYSCORE readers -inf now
//	ZCARD readers                    more than 0: readers hold the key
//	SETNX key token; EXPIRE key ttl  0: held
//	DEL mutex                        even if another client holds it by now (rw/bare-mutex)
//
//	extend    GET key; EXPIRE key ttl
//	release   GET key; DEL key            another's lock, if ours ended in between (set/compare-then-del)
//
// The writer has mutexRead's races. A stream of readers starves the writer.
type mutexWrite struct{ token func() string }

// readersFirst configures the locks of rwlock for the checks and looks of these locks.
var readersFirst = rwlock.Options{Prefer: rwlock.ReadersFirst}

func (mutexRead) Traits() protocol.Traits {
	return protocol.Traits{Shared: true, Check: rwlock.Read{}.Traits().Check}
}

func (mutexWrite) Traits() protocol.Traits {
	return protocol.Traits{Check: rwlock.Write{}.Traits().Check}
}

func (r mutexRead) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: "r:" + r.token(), Until: protocol.Until(now, ttl), How: protocol.Free}
	if _, err := protocol.Whole(ttl, time.Millisecond); err != nil {
		return l, err
	}
	return l, underMutex(c, key, func() error {
		held, err := redis.String(c.Do("GET", key))
		if err == nil {
			return &protocol.HeldError{Key: key, Value: held}
		}
		if err != redis.ErrNil {
			return protocol.Foreign(key, err)
		}
		_, err = c.Do("ZADD", readersOf(key), now.Add(ttl).UnixMilli(), l.Value)
		return err
	})
}

func (w mutexWrite) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: "w:" + w.token(), Until: protocol.Until(now, ttl), How: protocol.Free}
	seconds, err := protocol.Whole(ttl, time.Second)
	if err != nil {
		return l, err
	}
	return l, underMutex(c, key, func() error {
		if _, err := c.Do("ZREMRANGEBYSCORE", readersOf(key), "-inf", now.UnixMilli()); err != nil {
			return err
		}
		n, err := redis.Int(c.Do("ZCARD", readersOf(key)))
		if err != nil {
			return err
		}
		won := false
		if n == 0 {
			won, err = redis.Bool(c.Do("SETNX", key, l.Value))
		}
		if err == nil && !won {
			err = &protocol.HeldError{Key: key}
		}
		if err == nil {
			_, err = c.Do("EXPIRE", key, seconds)
		}
		return err
	})
}

func readersOf(key string) string { return protocol.Aux(key, "readers") }

// underMutex runs f under the mutex of 5 s.
func underMutex(c *protocol.Conn, key string, f func() error) error {
	mutex := protocol.Aux(key, "mutex")
	won, err := redis.Bool(c.Do("SETNX", mutex, 1))
	if err != nil {
		return err
	}
	if !won {
		return &protocol.HeldError{Key: key}
	}
	if _, err := c.Do("EXPIRE", mutex, 5); err != nil {
		return err
	}
	err = f()
	if _, e := c.Do("DEL", mutex); err == nil {
		err = e
	}
	return err
}

// Extend gives the reader a new end without a look at the set. A swept reader comes back beside the
// writer that swept it (rw/extend-resurrects).
func (mutexRead) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	_, err := protocol.Whole(ttl, time.Millisecond)
	l.Until = protocol.Until(now, ttl)
	return l, By(l, func(c *protocol.Conn) error {
		_, err := c.Do("ZADD", readersOf(l.Key), now.Add(ttl).UnixMilli(), l.Value)
		return err
	}), err
}

// Release removes the reader from the set, and reports no loss if a writer has swept it.
func (mutexRead) Release(l protocol.Lease) protocol.Change {
	return By(l, func(c *protocol.Conn) error {
		_, err := c.Do("ZREM", readersOf(l.Key), l.Value)
		return err
	})
}

func (mutexRead) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	return rwlock.Read{Options: readersFirst}.Inspect(c, now, key)
}

// Extend sets the key's TTL after a look at its value.
func (mutexWrite) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	expire, err := protocol.Expire(false, l.Key, ttl)
	l.Until = protocol.Until(now, ttl)
	return l, protocol.Change{If: protocol.Unguarded, Key: l.Key, Value: l.Value, Do: []protocol.Cmd{expire}}, err
}

// Release deletes the key after a look at its value.
func (mutexWrite) Release(l protocol.Lease) protocol.Change {
	return protocol.Change{If: protocol.Unguarded, Key: l.Key, Value: l.Value, Do: []protocol.Cmd{{"DEL", l.Key}}}
}

func (mutexWrite) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	return rwlock.Write{Options: readersFirst}.Inspect(c, now, key)
}
