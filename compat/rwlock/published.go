package rwlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// The read-write lock as articles have it: a mutex around a look at both sides and the change of
// one. Its keys are the same as Read's and Write's, and its races are not: it is here to be
// compared, shown and explored. Its commands are spelled so that they exist in Redis 2.2: SETNX
// and EXPIRE where a newer article has SET … NX EX.

// PublishedRead is the readers' half. It is not safe.
//
//	SETNX mutex 1; EXPIRE mutex 5    0: somebody is inside
//	GET key                          a writer: held
//	ZADD readers end token
//	DEL mutex                        even if another has it by now (rw/bare-mutex)
//
//	extend    ZADD readers end token      even if a writer swept it (rw/extend-resurrects)
//	release   ZREM readers token          whatever it answers (rw/expired-reader)
//
// A client that pauses inside for longer than the mutex lasts adds itself beside a writer that came
// in meanwhile (rw/mutex-outrun). One that dies between SETNX and EXPIRE leaves a mutex that never
// expires (tx/crash-before-expire). Nor does the set of readers.
type PublishedRead struct{ Options }

// PublishedWrite is the writer's half. It is not safe.
//
//	SETNX mutex 1; EXPIRE mutex 5    0: somebody is inside
//	ZREMRANGEBYSCORE readers -inf now
//	ZCARD readers                    somebody reads: held
//	SETNX key token; EXPIRE key ttl  0: held
//	DEL mutex                        even if another has it by now (rw/bare-mutex)
//
//	extend    GET key; EXPIRE key ttl
//	release   GET key; DEL key            another's, if ours ran out in between (set/compare-then-del)
//
// It has PublishedRead's races. A stream of readers starves it.
type PublishedWrite struct{ Options }

// Traits say that readers hold a key together, and that it checks the server.
func (r PublishedRead) Traits() compat.Traits { return compat.Traits{Shared: true, Check: r.check} }

// Traits say that it checks the server.
func (w PublishedWrite) Traits() compat.Traits { return compat.Traits{Check: w.check} }

// Acquire makes one attempt to read key until now+ttl.
func (r PublishedRead) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: r.token(reader), Until: compat.Until(now, ttl), How: compat.Free}
	if _, err := compat.Whole(ttl, time.Millisecond); err != nil {
		return l, err
	}
	return l, r.inside(c, key, func() error {
		held, err := redis.String(c.Do("GET", key))
		if err == nil {
			return &compat.HeldError{Key: key, Value: held}
		}
		if err != redis.ErrNil {
			return c.Foreign(key, err)
		}
		_, err = c.Do("ZADD", readersOf(key), at(now.Add(ttl)), l.Value)
		return err
	})
}

// Acquire makes one attempt to hold key alone until now+ttl.
func (w PublishedWrite) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: w.token(writer), Until: compat.Until(now, ttl), How: compat.Free}
	seconds, err := compat.Whole(ttl, time.Second)
	if err != nil {
		return l, err
	}
	return l, w.inside(c, key, func() error {
		if _, err := c.Do("ZREMRANGEBYSCORE", readersOf(key), "-inf", at(now)); err != nil {
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
			err = &compat.HeldError{Key: key}
		}
		if err == nil {
			_, err = c.Do("EXPIRE", key, seconds)
		}
		return err
	})
}

// inside runs f under the mutex.
func (o Options) inside(c *compat.Conn, key string, f func() error) error {
	won, err := redis.Bool(c.Do("SETNX", mutexOf(key), 1))
	if err != nil {
		return err
	}
	if !won {
		return &compat.HeldError{Key: key}
	}
	if _, err := c.Do("EXPIRE", mutexOf(key), int64(innerTTL/time.Second)); err != nil {
		return err
	}
	err = f()
	if _, e := c.Do("DEL", mutexOf(key)); err == nil {
		err = e
	}
	return err
}

// Extend gives the reader a new end, whether or not it is still there: swept meanwhile, it comes
// back beside the writer that swept it (rw/extend-resurrects).
func (r PublishedRead) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	_, err := compat.Whole(ttl, time.Millisecond)
	l.Until = compat.Until(now, ttl)
	return l, r.unseen(l, compat.Cmd{"ZADD", readersOf(l.Key), at(now.Add(ttl)), l.Value}), err
}

// Release takes the reader out of the set, whether or not it was still there.
func (r PublishedRead) Release(l compat.Lease) compat.Change {
	return r.unseen(l, compat.Cmd{"ZREM", readersOf(l.Key), l.Value})
}

// unseen is a change that takes no notice of what the server answers.
func (PublishedRead) unseen(l compat.Lease, cmd compat.Cmd) compat.Change {
	return compat.Change{Key: l.Key, Value: l.Value, By: func(c *compat.Conn) ([]any, error) {
		_, err := c.Do(cmd[0].(string), cmd[1:]...)
		return []any{"done"}, err
	}}
}

// Inspect is Read's.
func (r PublishedRead) Inspect(c *compat.Conn, now time.Time, key string) (compat.State, error) {
	return Read{Options{Prefer: ReadersFirst}}.Inspect(c, now, key)
}

// Extend sets the key's TTL after a look at its value.
func (w PublishedWrite) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	expire, err := compat.Expire(false, l.Key, ttl)
	l.Until = compat.Until(now, ttl)
	return l, compat.Change{If: compat.Unguarded, Key: l.Key, Value: l.Value, Do: []compat.Cmd{expire}}, err
}

// Release deletes the key after a look at its value.
func (w PublishedWrite) Release(l compat.Lease) compat.Change {
	return compat.Change{If: compat.Unguarded, Key: l.Key, Value: l.Value, Do: []compat.Cmd{{"DEL", l.Key}}}
}

// Inspect is Write's.
func (w PublishedWrite) Inspect(c *compat.Conn, now time.Time, key string) (compat.State, error) {
	return Write{Options{Prefer: ReadersFirst}}.Inspect(c, now, key)
}
