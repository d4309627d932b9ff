package mixing

import (
	"math"
	"strconv"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// timed is a published client that writes a timestamp:
//
//	SETNX key T     1: ours
//	GET key         unexpired, by its own parser: held
//	GETSET key T    Win says how it learns that it was the first
//
// Some take over under WATCH, or by a plain SET that two can win.
type timed struct{ client }

// Acquire makes one attempt.
func (t timed) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: t.stamp(now, ttl), Until: now.Add(ttl), Ambiguous: true}
	if t.unasked {
		return t.set(c, now, l, ttl)
	}
	for range t.tries() {
		won, err := create(c, l, ttl, t.TTL)
		if won || err != nil {
			return l, err
		}
		held, exists, err := t.look(c, key)
		if err != nil {
			return l, err
		}
		if !exists && t.gone == goneAgain {
			continue
		}
		if dead, thrown := t.dead(held, exists, now); thrown != nil || !dead {
			return l, t.refuse(c, key, held, thrown)
		}
		return t.takeover(c, now, l, ttl, held, exists)
	}
	return l, &protocol.HeldError{Key: key}
}

// takeover replaces an expired value.
func (t timed) takeover(c *protocol.Conn, now time.Time, l protocol.Lease, ttl time.Duration, held string, exists bool) (protocol.Lease, error) {
	switch t.Win {
	case dialect.WinAlways:
		if _, err := c.Do("SET", l.Key, l.Value); err != nil {
			return l, err
		}
		return l, expire(c, l.Key, ttl, t.TTL)
	case dialect.WinWatched:
		replies, err := c.Exec(protocol.Cmd{"SET", l.Key, l.Value})
		if err == nil && replies == nil {
			err = &protocol.HeldError{Key: l.Key}
		}
		return l, err
	}
	old, there, err := get(c, "GETSET", l.Key, l.Value)
	if err != nil {
		return l, err
	}
	won, thrown := t.won(held, exists, old, there, now)
	switch {
	case thrown != nil:
		return l, thrown
	case !won:
		return l, &protocol.HeldError{Key: l.Key, Value: old} // and the key has our timestamp
	}
	return l, expire(c, l.Key, ttl, t.TTL)
}

// won reports whether a GETSET with this answer was the first.
func (t timed) won(held string, exists bool, old string, there bool, now time.Time) (bool, *Exception) {
	switch {
	case t.needsOld && !there:
		return false, &Exception{Reader: "GETSET"}
	case t.Win == dialect.WinExpired && !there:
		return true, nil // released in between
	case t.Win == dialect.WinExpired:
		return t.dead(old, there, now)
	case t.looseEqual: // result == existingLockTimestamp: a text and a number
		n, _ := t.reads(held)
		return jsNumber(old) == n, nil
	}
	return old == held && there == exists, nil
}

// set acquires as celery-once does: it reads, and writes if there is no unexpired value.
func (t timed) set(c *protocol.Conn, now time.Time, l protocol.Lease, ttl time.Duration) (protocol.Lease, error) {
	held, exists, err := get(c, "GET", l.Key)
	if err != nil {
		return l, err
	}
	if dead, thrown := t.dead(held, exists, now); thrown != nil || !dead {
		return l, t.refuse(c, l.Key, held, thrown)
	}
	_, err = c.Do("SETEX", l.Key, int64(ttl/time.Second), l.Value)
	return l, err
}

func (t timed) tries() int {
	if t.gone == goneAgain {
		return 2
	}
	return 1
}

// look reads the key, under WATCH if the takeover needs it.
func (t timed) look(c *protocol.Conn, key string) (string, bool, error) {
	if t.Win == dialect.WinWatched {
		return c.Watch(key)
	}
	return get(c, "GET", key)
}

func (t timed) refuse(c *protocol.Conn, key, held string, thrown *Exception) error {
	if t.Win == dialect.WinWatched {
		c.Unwatch()
	}
	if thrown != nil {
		return thrown
	}
	return &protocol.HeldError{Key: key, Value: held}
}

// dead reports whether a value is an expired timestamp, as the client reads it.
func (t timed) dead(value string, exists bool, now time.Time) (bool, *Exception) {
	if !exists && t.gone == goneHeld || exists && value == "" && t.falsy == falsyHeld {
		return false, nil
	}
	n, thrown := t.number(value, exists)
	if thrown != nil {
		return false, thrown
	}
	clock := t.clock(now)
	switch {
	case math.IsNaN(n):
		return true, nil // NaN > now and now <= NaN are both false
	case t.Inclusive:
		return n <= clock, nil
	}
	return n+float64(t.Grace)/float64(t.Stamp.Unit) < clock, nil
}

// number returns the value as the client reads it, also for a missing key.
func (k client) number(value string, exists bool) (float64, *Exception) {
	if value == "" && (!exists && k.gone == goneDead || k.falsy == falsyDead) {
		return 1, nil // `or 1`, nil.to_i: long ago
	}
	return k.reads(value)
}

// clock returns now in the client's unit.
func (t timed) clock(now time.Time) float64 {
	n := float64(now.UnixNano()) / float64(t.Stamp.Unit)
	switch {
	case t.rounds:
		return math.Round(n)
	case t.Stamp.Float:
		return n
	}
	return math.Floor(n)
}

// stamp returns the timestamp to write: fractions of the unit are cut off, not rounded up.
func (t timed) stamp(now time.Time, ttl time.Duration) string {
	until := now.Add(ttl + t.Plus)
	if !t.Stamp.Float {
		n := int64(t.clock(now))*int64(t.Stamp.Unit) + int64(ttl+t.Plus)
		until = time.Unix(0, n)
	}
	if t.Stamp.Float { // str(time.time() + timeout)
		s := strconv.FormatFloat(float64(until.UnixMilli())/1e3, 'f', -1, 64)
		if until.UnixMilli()%1000 == 0 {
			s += ".0"
		}
		return s
	}
	return t.Stamp.Write(until, t.owner())
}

func (t timed) owner() string {
	switch t.Stamp.Owner {
	case dialect.OwnerPID, dialect.OwnerColonPID:
		return t.token()
	case dialect.OwnerPIDThread:
		return "4711-" + t.token()
	case dialect.OwnerUUID:
		return uuid + t.token()
	}
	return ""
}
