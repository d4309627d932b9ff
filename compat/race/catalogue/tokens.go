package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/broken"
	"github.com/setnxlock/setnxlock/txlock"
)

// tokened is a client with a token on the key: SETNX, then EXPIRE, unless it takes the lock otherwise; and
// no margin in what it believes.
type tokened struct {
	txlock.Options // Extend, Release and Inspect, where a client has nothing worse

	take  func(c *protocol.Conn, now time.Time, l *protocol.Lease, ttl time.Duration) error
	renew func(c *protocol.Conn, l protocol.Lease, ttl time.Duration) error
	free  func(c *protocol.Conn, l protocol.Lease) error
}

func (tokened) Traits() protocol.Traits { return protocol.Traits{} }

func (t tokened) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: t.Token(), Until: now.Add(ttl)}
	take := t.take
	if take == nil {
		take = setnxExpire
	}
	err := take(c, now, &l, ttl)
	return l, err
}

func (t tokened) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	if t.renew == nil {
		return t.Options.Extend(now, l, ttl, rotate)
	}
	l.Until = now.Add(ttl)
	return l, broken.By(l, func(c *protocol.Conn) error { return t.renew(c, l, ttl) }), nil
}

func (t tokened) Release(l protocol.Lease) protocol.Change {
	if t.free == nil {
		return t.Options.Release(l)
	}
	return broken.By(l, func(c *protocol.Conn) error { return t.free(c, l) })
}

func setnxExpire(c *protocol.Conn, _ time.Time, l *protocol.Lease, ttl time.Duration) error {
	err := create(c, *l)
	if err == nil {
		_, err = c.Do("EXPIRE", l.Key, int64(ttl/time.Second))
	}
	return err
}

// watch watches the key, and finds out whether it is the lease's still.
func watch(c *protocol.Conn, l protocol.Lease) error {
	held, exists, err := c.Watch(l.Key)
	if err == nil && (!exists || held != l.Value) {
		c.Unwatch()
		err = protocol.ErrLost
	}
	return err
}

// remove deletes the watched key, and takes an aborted EXEC for a lost lock.
func remove(c *protocol.Conn, l protocol.Lease) error {
	replies, err := c.Exec(protocol.Cmd{"DEL", l.Key})
	if err == nil && replies == nil {
		err = protocol.ErrLost
	}
	return err
}

// bareDel deletes the key, its own or not (Laravel up to 5.7, jedis-lock, most timestamp clients).
func bareDel(c *protocol.Conn, l protocol.Lease) error {
	_, err := c.Do("DEL", l.Key)
	return err
}

// retryDel compares, deletes, and sends the DEL again over another connection if no reply came: "at
// least once" for a command for once only.
func retryDel(c *protocol.Conn, l protocol.Lease) error {
	held, err := get(c, "GET", l.Key)
	if err != nil {
		return err
	}
	if held != l.Value {
		return protocol.ErrLost
	}
	if _, err = c.Do("DEL", l.Key); c.Err() != nil {
		_, err = redial(c).Do("DEL", l.Key)
	}
	return err
}

// watchOnly watches the key before its release and does without MULTI: the DEL runs at once, on a
// changed key, too (redis-py 2.10.0–2.10.5, do_release).
func watchOnly(c *protocol.Conn, l protocol.Lease) error {
	if _, err := c.Do("WATCH", l.Key); err != nil {
		return err
	}
	held, err := get(c, "GET", l.Key)
	if err != nil {
		return err
	}
	if held != l.Value {
		c.Unwatch()
		return protocol.ErrLost
	}
	if _, err := c.Do("DEL", l.Key); err != nil {
		return err
	}
	c.Unwatch()
	return nil
}

// giveUp releases under WATCH and takes an aborted EXEC for a lost lock: it leaves the key.
func giveUp(c *protocol.Conn, l protocol.Lease) error {
	if err := watch(c, l); err != nil {
		return err
	}
	return remove(c, l)
}

// busyRelease shares one connection between its release and its renewal; the renewal's timer fires in
// between, and its EXPIRE touches the watched key.
func busyRelease(c *protocol.Conn, l protocol.Lease) error {
	if err := watch(c, l); err != nil {
		return err
	}
	if _, err := c.Do("EXPIRE", l.Key, 10); err != nil { // the renewal
		return err
	}
	return remove(c, l)
}

// reconnecting releases under WATCH through a reconnecting client library: the WATCH was the first
// connection's.
func reconnecting(c *protocol.Conn, l protocol.Lease) error {
	if err := watch(c, l); err != nil {
		return err
	}
	err := remove(c, l)
	if c.Err() != nil {
		err = remove(redial(c), l)
	}
	return err
}

// lateRenew releases while its renewal is already on the way, without waiting for the renewing thread.
func lateRenew(c *protocol.Conn, l protocol.Lease) error {
	if _, err := c.Run(txlock.Options{}.Release(l)); err != nil {
		return err
	}
	_, err := c.Do("EXPIRE", l.Key, 10) // the renewal
	return err
}

// blindRenew extends the key, its own or not (Redisson's watchdog in 2016, redlock-rb).
func blindRenew(c *protocol.Conn, l protocol.Lease, ttl time.Duration) error {
	there, err := redis.Bool(c.Do("EXPIRE", l.Key, int64(ttl/time.Second)))
	if err == nil && !there {
		err = protocol.ErrLost
	}
	return err
}

// uncheckedRenew sends EXPIRE and takes it for done: its reply is not read.
func uncheckedRenew(c *protocol.Conn, l protocol.Lease, ttl time.Duration) error {
	_, err := c.Do("EXPIRE", l.Key, int64(ttl/time.Second))
	return err
}

// appendRenew extends and counts its renewals in the value, under WATCH. If the key
// expires unnoticed between the two, what it appends to is a new key without an end.
type appendRenew struct{ tokened }

func (appendRenew) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	ch := protocol.Change{Key: l.Key, Value: l.Value, Do: []protocol.Cmd{{"EXPIRE", l.Key, int64(ttl / time.Second)}, {"APPEND", l.Key, "+"}}}
	l.Value, l.Until = l.Value+"+", now.Add(ttl)
	return l, ch, nil
}

// halfQueued takes the key and draws its fence in one MULTI, and looks at EXEC's
// first reply only. A server that could not queue the SET answers with the fence.
func halfQueued(c *protocol.Conn, _ time.Time, l *protocol.Lease, ttl time.Duration) error {
	replies, err := c.Pipe(protocol.Cmd{"MULTI"}, protocol.Cmd{"SET", l.Key, l.Value, "NX", "PX", ttl.Milliseconds()},
		protocol.Cmd{"INCR", protocol.Aux(l.Key, "fence")}, protocol.Cmd{"EXEC"})
	if err != nil {
		return err
	}
	done, err := redis.Values(replies[3], nil)
	if err == nil && done[0] == nil {
		err = &protocol.HeldError{Key: l.Key}
	}
	return err
}

// lateLease counts its lease from the reply, and so by the reply's delay too long (retools 0.1–0.3).
func lateLease(c *protocol.Conn, now time.Time, l *protocol.Lease, ttl time.Duration) error {
	err := setnxExpire(c, now, l, ttl)
	if err == nil {
		l.Until = clock(c, now).Add(ttl)
	}
	return err
}

// inOneMulti puts SETNX and EXPIRE into one MULTI, so no crash can come between them: the EXPIRE runs
// for a refused client too.
func inOneMulti(c *protocol.Conn, _ time.Time, l *protocol.Lease, ttl time.Duration) error {
	replies, err := c.Exec(protocol.Cmd{"SETNX", l.Key, l.Value}, protocol.Cmd{"EXPIRE", l.Key, int64(ttl / time.Second)})
	if err == nil && replies[0] != int64(1) {
		err = &protocol.HeldError{Key: l.Key}
	}
	return err
}

// setexFallback asks for SET NX PX and, refused, writes the key with SETEX: over any holder
// (redlock-py, PR 12).
func setexFallback(c *protocol.Conn, now time.Time, l *protocol.Lease, ttl time.Duration) error {
	err := setNXPX(c, now, l, ttl)
	if _, refused := err.(redis.Error); refused {
		_, err = c.Do("SETEX", l.Key, int64(ttl/time.Second), l.Value)
	}
	return err
}

// setNXPX takes the lock in one command.
func setNXPX(c *protocol.Conn, _ time.Time, l *protocol.Lease, ttl time.Duration) error {
	won, err := get(c, "SET", l.Key, l.Value, "NX", "PX", ttl.Milliseconds())
	if err == nil && won == "" {
		err = &protocol.HeldError{Key: l.Key}
	}
	return err
}

// checkThenSet looks whether the key is there, and then writes it.
func checkThenSet(c *protocol.Conn, _ time.Time, l *protocol.Lease, ttl time.Duration) error {
	held, err := get(c, "GET", l.Key)
	if err == nil && held != "" {
		err = &protocol.HeldError{Key: l.Key}
	}
	if err == nil {
		_, err = c.Do("SET", l.Key, l.Value, "PX", ttl.Milliseconds())
	}
	return err
}

// getsetOnly takes the key with GETSET and looks at the old value: nothing, ours. Each look takes the
// holder's TTL away (redis-semaphore's exists key).
func getsetOnly(c *protocol.Conn, _ time.Time, l *protocol.Lease, ttl time.Duration) error {
	old, err := get(c, "GETSET", l.Key, l.Value)
	if err != nil {
		return err
	}
	if old != "" {
		return &protocol.HeldError{Key: l.Key, Value: old}
	}
	_, err = c.Do("EXPIRE", l.Key, int64(ttl/time.Second))
	return err
}

// staleWatch extends under a WATCH without EXEC or UNWATCH, and gives its connection back so. Its
// release gets the same connection from the pool.
func staleWatch(c *protocol.Conn, l protocol.Lease, ttl time.Duration) error {
	held, exists, err := c.Watch(l.Key)
	if err != nil {
		return err
	}
	if !exists || held != l.Value {
		return protocol.ErrLost
	}
	return blindRenew(c, l, ttl)
}

// unverifiedWatch keeps its connection and watches the key while it holds it, and releases without a
// comparison. It begins when it has been told that the key is its own, and never reads what it
// watches.
func unverifiedWatch(c *protocol.Conn, now time.Time, l *protocol.Lease, ttl time.Duration) error {
	err := setnxExpire(c, now, l, ttl)
	if err == nil {
		_, err = c.Do("WATCH", l.Key)
	}
	return err
}

// shortRepair is Redis in Action's lock of a client whose leases are 3 s long. What
// has no TTL gets one, any client's.
type shortRepair struct{ broken.RepairAtOnce }

func (s shortRepair) Acquire(c *protocol.Conn, now time.Time, key string, _ time.Duration) (protocol.Lease, error) {
	return s.RepairAtOnce.Acquire(c, now, key, 3*time.Second)
}
