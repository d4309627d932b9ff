package rwlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// The read-write lock as articles have it: a mutex around a look at both sides
// and the change of one. Its keys are the same as Read's and Write's, and its
// races are not: it is here to be compared, shown and explored. Its commands are
// spelled so that they exist in Redis 2.2: SETNX and EXPIRE where a newer
// article has SET … NX EX.

// PublishedRead is the readers' half. It is not safe.
//
//	SETNX {key}:mutex 1; EXPIRE {key}:mutex 5     0: somebody is inside
//	GET key                                       a writer: held
//	ZADD {key}:readers end token
//	DEL {key}:mutex                               whoever has it by now (rw/bare-mutex)
//
//	release   ZREM {key}:readers token            whatever it answers (rw/expired-reader)
//
// A client that is held up inside for longer than the mutex lasts adds itself
// beside a writer that came in meanwhile (rw/mutex-outrun). One that dies
// between SETNX and EXPIRE leaves a mutex that nothing ends (tx/crash-before-expire).
// The set of readers never ends by itself.
type PublishedRead struct{ Options }

// PublishedWrite is the writer's half. It is not safe.
//
//	SETNX {key}:mutex 1; EXPIRE {key}:mutex 5     0: somebody is inside
//	ZREMRANGEBYSCORE {key}:readers -inf now
//	ZCARD {key}:readers                           somebody reads: held
//	SETNX key token; EXPIRE key ttl               0: held
//	DEL {key}:mutex                               whoever has it by now (rw/bare-mutex)
//
//	release   GET key; DEL key                    another's, if ours ran out in between (rw/compare-then-del)
//
// It has PublishedRead's races. A stream of readers starves it.
type PublishedWrite struct{ Options }

// Shared says that readers hold a key together.
func (PublishedRead) Shared() bool { return true }

// Acquire makes one attempt to read key until now+ttl.
func (r PublishedRead) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: r.token(reader), Until: compat.Until(now, ttl), How: compat.Free}
	if _, err := compat.WholeMillis(ttl); err != nil {
		return l, err
	}
	return l, r.inside(c, key, func() error {
		held, err := redis.String(c.Do("GET", key))
		if err == nil {
			return &compat.HeldError{Key: key, Value: held}
		}
		if err != redis.ErrNil {
			return compat.Foreign(key, err)
		}
		_, err = c.Do("ZADD", readersOf(key), at(now.Add(ttl)), l.Value)
		return err
	})
}

// Acquire makes one attempt to hold key alone until now+ttl.
func (w PublishedWrite) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: w.token(writer), Until: compat.Until(now, ttl), How: compat.Free}
	seconds, err := compat.WholeSeconds(ttl)
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
func (o Options) inside(c redis.Conn, key string, f func() error) error {
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

// Extend gives the reader a new end, whether or not it is still there: swept
// meanwhile, it comes back beside the writer that swept it (rw/extend-resurrects).
func (r PublishedRead) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	if _, err := compat.WholeMillis(ttl); err != nil {
		return l, err
	}
	if _, err := c.Do("ZADD", readersOf(l.Key), at(now.Add(ttl)), l.Value); err != nil {
		return l, err
	}
	l.Until = compat.Until(now, ttl)
	return l, nil
}

// Release takes the reader out of the set, and does not look whether it was
// still there.
func (r PublishedRead) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	_, err := c.Do("ZREM", readersOf(l.Key), l.Value)
	return err
}

// Inspect is Read's.
func (r PublishedRead) Inspect(c redis.Conn, now time.Time, key string) (compat.State, error) {
	return Read{Options{Prefer: ReadersFirst}}.Inspect(c, now, key)
}

// Extend sets the key's TTL after a look at whose it is.
func (w PublishedWrite) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	seconds, err := compat.WholeSeconds(ttl)
	if err != nil {
		return l, err
	}
	if err := w.compared(c, l, "EXPIRE", l.Key, seconds); err != nil {
		return l, err
	}
	l.Until = compat.Until(now, ttl)
	return l, nil
}

// Release deletes the key after a look at whose it is.
func (w PublishedWrite) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	return w.compared(c, l, "DEL", l.Key)
}

func (w PublishedWrite) compared(c redis.Conn, l compat.Lease, name string, args ...any) error {
	held, err := redis.String(c.Do("GET", l.Key))
	if err == redis.ErrNil || err == nil && held != l.Value {
		return compat.ErrLost
	}
	if err != nil {
		return compat.Foreign(l.Key, err)
	}
	_, err = c.Do(name, args...)
	return err
}

// Inspect is Write's.
func (w PublishedWrite) Inspect(c redis.Conn, now time.Time, key string) (compat.State, error) {
	return Write{Options{Prefer: ReadersFirst}}.Inspect(c, now, key)
}
