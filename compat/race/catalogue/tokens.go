package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/race/catalogue/broken"
	"github.com/setnxlock/setnxlock/txlock"
)

// tokened is what clients with a token on the key have in common: SETNX, then
// EXPIRE; and no margin in what they believe.
type tokened struct {
	txlock.Options // Extend, Release and Inspect, where a client has nothing worse
}

func (tokened) Traits() compat.Traits { return compat.Traits{} }

func (t tokened) lease(key string, now time.Time, ttl time.Duration) compat.Lease {
	return compat.Lease{Key: key, Value: t.Token(), Until: now.Add(ttl)}
}

func (t tokened) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := t.lease(key, now, ttl)
	err := create(c, l)
	if err == nil {
		_, err = c.Do("EXPIRE", key, int64(ttl/time.Second))
	}
	return l, err
}

// watch watches the key, and finds out whether it is the lease's still.
func watch(c *compat.Conn, l compat.Lease) error {
	held, exists, err := c.Watch(l.Key)
	if err == nil && (!exists || held != l.Value) {
		c.Unwatch()
		err = compat.ErrLost
	}
	return err
}

// remove deletes the key that is watched, and takes an EXEC that was aborted for a lock that is lost.
func remove(c *compat.Conn, l compat.Lease) error {
	replies, err := c.Exec(compat.Cmd{"DEL", l.Key})
	if err == nil && replies == nil {
		err = compat.ErrLost
	}
	return err
}

// bareDel releases whatever lock there is (Laravel up to 5.7, jedis-lock, most
// timestamp clients).
type bareDel struct{ tokened }

func (bareDel) Release(l compat.Lease) compat.Change { return stamped{}.Release(l) }

// retryDel compares, deletes, and sends the DEL again over another connection if
// no reply came: "at least once" for a command that must run at most once.
type retryDel struct{ tokened }

func (retryDel) Release(l compat.Lease) compat.Change {
	return broken.By(l, func(c *compat.Conn) error {
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if held != l.Value {
			return compat.ErrLost
		}
		if _, err = c.Do("DEL", l.Key); c.Err() != nil {
			_, err = redial(c).Do("DEL", l.Key)
		}
		return err
	})
}

// watchOnly watches the key that it releases and does without MULTI: the DEL runs
// at once, whatever has become of the key (redis-py 2.10.0–2.10.5, do_release).
type watchOnly struct{ tokened }

func (watchOnly) Release(l compat.Lease) compat.Change {
	return broken.By(l, func(c *compat.Conn) error {
		if _, err := c.Do("WATCH", l.Key); err != nil {
			return err
		}
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if held != l.Value {
			c.Unwatch()
			return compat.ErrLost
		}
		if _, err := c.Do("DEL", l.Key); err != nil {
			return err
		}
		c.Unwatch()
		return nil
	})
}

// giveUp releases under WATCH and takes an EXEC that was aborted for a lock that
// is lost: it leaves the key.
type giveUp struct{ tokened }

func (giveUp) Release(l compat.Lease) compat.Change {
	return broken.By(l, func(c *compat.Conn) error {
		if err := watch(c, l); err != nil {
			return err
		}
		return remove(c, l)
	})
}

// busyRelease shares one connection between its release and its renewal, whose
// timer fires in between: the EXPIRE touches the key that the release watches.
type busyRelease struct{ giveUp }

func (busyRelease) Release(l compat.Lease) compat.Change {
	return broken.By(l, func(c *compat.Conn) error {
		if err := watch(c, l); err != nil {
			return err
		}
		if _, err := c.Do("EXPIRE", l.Key, 10); err != nil { // the renewal
			return err
		}
		return remove(c, l)
	})
}

// reconnecting releases under WATCH through a client library that, when the
// connection has broken, makes another and goes on: the WATCH was the first one's.
type reconnecting struct{ tokened }

func (reconnecting) Release(l compat.Lease) compat.Change {
	return broken.By(l, func(c *compat.Conn) error {
		if err := watch(c, l); err != nil {
			return err
		}
		err := remove(c, l)
		if c.Err() != nil {
			err = remove(redial(c), l)
		}
		return err
	})
}

// lateRenew releases while its renewal is already on the way: nobody waited for
// the renewing thread before the DEL.
type lateRenew struct{ tokened }

func (t lateRenew) Release(l compat.Lease) compat.Change {
	return broken.By(l, func(c *compat.Conn) error {
		if _, err := c.Run(t.tokened.Release(l)); err != nil {
			return err
		}
		_, err := c.Do("EXPIRE", l.Key, 10) // the renewal
		return err
	})
}

// blindRenew extends whatever lock there is (Redisson's watchdog in 2016, redlock-rb).
type blindRenew struct{ tokened }

func (b blindRenew) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	l.Until = now.Add(ttl)
	return l, broken.By(l, func(c *compat.Conn) error { return renew(c, l, ttl) }), nil
}

// renew gives the key another end, if there is one.
func renew(c *compat.Conn, l compat.Lease, ttl time.Duration) error {
	there, err := redis.Bool(c.Do("EXPIRE", l.Key, int64(ttl/time.Second)))
	if err == nil && !there {
		err = compat.ErrLost
	}
	return err
}

// uncheckedRenew sends EXPIRE and takes it for done: its reply is not read.
type uncheckedRenew struct{ tokened }

func (u uncheckedRenew) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	l.Until = now.Add(ttl)
	return l, broken.By(l, func(c *compat.Conn) error {
		_, err := c.Do("EXPIRE", l.Key, int64(ttl/time.Second))
		return err
	}), nil
}

// appendRenew extends and counts its renewals in the value, under WATCH. If the key
// expires unnoticed between the two, what it appends to is a new key without an end.
type appendRenew struct{ tokened }

func (appendRenew) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	ch := compat.Change{Key: l.Key, Value: l.Value, Do: []compat.Cmd{{"EXPIRE", l.Key, int64(ttl / time.Second)}, {"APPEND", l.Key, "+"}}}
	l.Value, l.Until = l.Value+"+", now.Add(ttl)
	return l, ch, nil
}

// halfQueued takes the key and draws its fence in one MULTI, and looks at EXEC's
// first reply only. A server that could not queue the SET answers with the fence.
type halfQueued struct{ tokened }

func (h halfQueued) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := h.lease(key, now, ttl)
	replies, err := c.Pipe(compat.Cmd{"MULTI"}, compat.Cmd{"SET", key, l.Value, "NX", "PX", ttl.Milliseconds()},
		compat.Cmd{"INCR", compat.Aux(key, "fence")}, compat.Cmd{"EXEC"})
	if err != nil {
		return l, err
	}
	done, err := redis.Values(replies[3], nil)
	if err == nil && done[0] == nil {
		err = &compat.HeldError{Key: key}
	}
	return l, err
}

// lateLease counts its lease from when it learned that it has one, by which time
// the server has been counting for as long as the reply took (retools 0.1–0.3).
type lateLease struct{ tokened }

func (t lateLease) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := t.tokened.Acquire(c, now, key, ttl)
	if err == nil {
		l.Until = clock(c, now).Add(ttl)
	}
	return l, err
}

// together puts SETNX and EXPIRE into one MULTI, so that no crash can come between
// them: the EXPIRE runs for a refused client too.
type together struct{ tokened }

func (t together) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := t.lease(key, now, ttl)
	replies, err := c.Exec(compat.Cmd{"SETNX", key, l.Value}, compat.Cmd{"EXPIRE", key, int64(ttl / time.Second)})
	if err == nil && replies[0] != int64(1) {
		err = &compat.HeldError{Key: key}
	}
	return l, err
}

// setexFallback asks for SET NX PX and, told that there is none, writes the key
// with SETEX: over any holder (redlock-py, PR 12).
type setexFallback struct{ tokened }

func (s setexFallback) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := s.lease(key, now, ttl)
	won, err := get(c, "SET", key, l.Value, "NX", "PX", ttl.Milliseconds())
	switch err.(type) {
	case nil:
		if won == "" {
			return l, &compat.HeldError{Key: key}
		}
		return l, nil
	case redis.Error:
		_, err = c.Do("SETEX", key, int64(ttl/time.Second), l.Value)
	}
	return l, err
}

// getsetOnly takes the key with GETSET and looks at what was there: nothing, ours.
// Each look takes the holder's TTL away (redis-semaphore's exists key).
type getsetOnly struct{ tokened }

func (g getsetOnly) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := g.lease(key, now, ttl)
	old, err := get(c, "GETSET", key, l.Value)
	if err != nil {
		return l, err
	}
	if old != "" {
		return l, &compat.HeldError{Key: key, Value: old}
	}
	_, err = c.Do("EXPIRE", key, int64(ttl/time.Second))
	return l, err
}

// staleWatch extends under a WATCH that no EXEC and no UNWATCH ends, and gives its
// connection back so. Its release gets the same connection from the pool.
type staleWatch struct{ giveUp }

func (staleWatch) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	l.Until = now.Add(ttl)
	return l, broken.By(l, func(c *compat.Conn) error {
		held, exists, err := c.Watch(l.Key)
		if err != nil {
			return err
		}
		if !exists || held != l.Value {
			return compat.ErrLost
		}
		return renew(c, l, ttl)
	}), nil
}

// unverifiedWatch keeps its connection and watches the key while it holds it, so
// that it need not compare when it gives it back. It begins when it has been told that the
// key is its own, and never reads what it watches.
type unverifiedWatch struct{ tokened }

func (u unverifiedWatch) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := u.tokened.Acquire(c, now, key, ttl)
	if err == nil {
		_, err = c.Do("WATCH", key)
	}
	return l, err
}

func (unverifiedWatch) Release(l compat.Lease) compat.Change {
	return broken.By(l, func(c *compat.Conn) error { return remove(c, l) })
}

// shortRepair is Redis in Action's lock of a client whose leases are 3 s long. What
// has no TTL gets one, any client's.
type shortRepair struct{ broken.RepairAtOnce }

func (s shortRepair) Acquire(c *compat.Conn, now time.Time, key string, _ time.Duration) (compat.Lease, error) {
	return s.RepairAtOnce.Acquire(c, now, key, 3*time.Second)
}
