package catalogue

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/broken"
)

// stamped is what clients with a timestamp on the key have in common: they read
// the key, and their leases end when the value says so, without any margin.
type stamped struct{}

func (stamped) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	return l, protocol.Change{}, protocol.ErrLost // it has no way to
}

func (stamped) Traits() protocol.Traits { return protocol.Traits{} }

// Release deletes the key, its own or not.
func (stamped) Release(l protocol.Lease) protocol.Change {
	return broken.By(l, func(c *protocol.Conn) error {
		_, err := c.Do("DEL", l.Key)
		return err
	})
}

// Inspect lets the Locker try: these clients look by trying.
func (stamped) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL}
	value, err := redis.String(c.Do("GET", key))
	if errors.Is(err, redis.ErrNil) {
		return s, nil
	}
	s.Value, s.Status = value, protocol.StatusDead
	return s, err
}

// get reads a string; none is "".
func get(c *protocol.Conn, cmd string, args ...any) (string, error) {
	value, err := redis.String(c.Do(cmd, args...))
	if errors.Is(err, redis.ErrNil) {
		return "", nil
	}
	return value, err
}

// create takes a free key.
func create(c *protocol.Conn, l protocol.Lease) error {
	won, err := redis.Bool(c.Do("SETNX", l.Key, l.Value))
	if err == nil && !won {
		err = &protocol.HeldError{Key: l.Key}
	}
	return err
}

// overtake takes a free key, or a dead one if it still is dead when overwritten.
func overtake(c *protocol.Conn, l protocol.Lease, dead func(held string) (bool, error)) (protocol.Lease, error) {
	err := create(c, l)
	if !errors.Is(err, protocol.ErrHeld) {
		return l, err
	}
	for _, cmd := range []redis.Args{{"GET", l.Key}, {"GETSET", l.Key, l.Value}} {
		held, err := get(c, cmd[0].(string), cmd[1:]...)
		if err != nil {
			return l, err
		}
		if ok, err := dead(held); err != nil {
			return l, err
		} else if !ok {
			return l, &protocol.HeldError{Key: l.Key, Value: held}
		}
	}
	return l, nil
}

// clockCheckedDel takes the lock as getsetlock.Classic does and releases it as the SETNX page says: "check the timeout
// didn't expire before unlocking the key with DEL". It compares nothing with the key.
type clockCheckedDel struct{ getsetlock.Classic }

func (clockCheckedDel) Release(l protocol.Lease) protocol.Change {
	return broken.By(l, func(c *protocol.Conn) error {
		if !clock(c, time.Time{}).Before(l.Until) {
			return protocol.ErrLost
		}
		_, err := c.Do("DEL", l.Key)
		return err
	})
}

// wholeSeconds writes a time as Time.now.to_i does.
func wholeSeconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// millis writes a time as Date.now() does.
func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// float writes a time in seconds with so many decimals.
func float(t time.Time, decimals int) string {
	return strconv.FormatFloat(float64(t.UnixNano())/1e9, 'f', decimals, 64)
}

// leading reads the number at the beginning of value, as Ruby's to_f, C's atof and JavaScript's
// parseFloat do. ok is false if it begins with none: 0 in Ruby, NaN in JavaScript.
func leading(value string) (n float64, ok bool) {
	end, dot := 0, false
	for end < len(value) && (value[end] >= '0' && value[end] <= '9' || value[end] == '.' && !dot) {
		dot = dot || value[end] == '.'
		end++
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(value[:end], "."), 64)
	return n, err == nil
}

// unix writes a time as a float of seconds.
func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// endless is the lock before clients were expected to die: SETNX, work, DEL. The key
// has neither a time on it nor a TTL (redis-objects, the first version).
type endless struct {
	stamped
	token func() string
}

func (e endless) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: e.token(), Until: now.Add(ttl)}
	return l, create(c, l)
}

// forgetful takes a reply that was lost for a refusal: it goes away, and what it
// may have taken stays.
type forgetful struct{ endless }

func (f forgetful) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := f.endless.Acquire(c, now, key, ttl)
	if err != nil {
		return l, protocol.ErrHeld
	}
	return l, nil
}

// naiveDel takes a dead lock over by removing it: the way that the SETNX page
// shows first, to say that it must not be gone.
type naiveDel struct{ stamped }

func (naiveDel) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: wholeSeconds(now.Add(ttl)), Until: now.Add(ttl)}
	err := create(c, l)
	if !errors.Is(err, protocol.ErrHeld) {
		return l, err
	}
	held, err := get(c, "GET", key)
	if err != nil {
		return l, err
	}
	if until, ok := leading(held); !ok || until >= unix(now) {
		return l, &protocol.HeldError{Key: key}
	}
	if _, err := c.Do("DEL", key); err != nil {
		return l, err
	}
	return l, create(c, l)
}

// equalOnly is the SETNX page to the letter: "If such a timestamp is equal to the
// current Unix time the lock is no longer valid." The page of 2009 had <=, and the
// conversion to Markdown ate the <.
type equalOnly struct{ stamped }

func (equalOnly) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: wholeSeconds(now.Add(ttl + time.Second)), Until: now.Add(ttl)}
	return overtake(c, l, func(held string) (bool, error) {
		until, ok := leading(held)
		return ok && int64(until) == now.Unix(), nil
	})
}

// oldStamp computes the time that it will write once, before it begins to wait.
type oldStamp struct{ stamped }

func (oldStamp) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: wholeSeconds(now.Add(ttl))}
	for try := 0; try < 2; try++ {
		if try > 0 {
			now = clock(c, now) // it reads the clock to judge others', not to write its own
		}
		if err := create(c, l); !errors.Is(err, protocol.ErrHeld) {
			l.Until = now.Add(ttl)
			return l, err
		}
	}
	return l, &protocol.HeldError{Key: key}
}

// resolveByReading settles a lost reply by looking whether the key has its own
// time on it. Two clients that ask in the same second write the same.
type resolveByReading struct{ stamped }

func (resolveByReading) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: wholeSeconds(now.Add(ttl)), Until: now.Add(ttl)}
	won, err := redis.Bool(c.Do("SETNX", key, l.Value))
	if c.Err() != nil {
		var held string
		held, err = get(redial(c), "GET", key)
		won = held == l.Value
	}
	if err == nil && !won {
		err = &protocol.HeldError{Key: key}
	}
	return l, err
}

// redisPy29 is redis-py's Lock up to 2.9: float seconds, taken over with GETSET,
// released if the value is not less than what it wrote. decimals are those that
// str() of a float leaves: 2 on Python before 2.7, for which the file was written
// that compares exactly.
type redisPy29 struct {
	stamped
	decimals int
	exactly  bool // released if the value equals what it wrote: before PR 384
}

func (r redisPy29) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	until := now.Add(ttl)
	l := protocol.Lease{Key: key, Value: float(until, r.decimals), Until: until}
	return overtake(c, l, func(held string) (bool, error) {
		n, err := pythons(held)
		return n < unix(now), err // ValueError leaves acquire()
	})
}

// pythons computes float(value or 1): a missing key counts as dead.
func pythons(value string) (float64, error) {
	return strconv.ParseFloat(cmp.Or(value, "1"), 64)
}

// Release stays silent when it does nothing.
func (r redisPy29) Release(l protocol.Lease) protocol.Change {
	return broken.By(l, func(c *protocol.Conn) error {
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		n, err := pythons(held)
		if err != nil {
			return err
		}
		if mine := unix(l.Until); n < mine || r.exactly && n != mine {
			return nil
		}
		_, err = c.Do("DEL", l.Key)
		return err
	})
}

// redisMutex is kenn/redis-mutex: float seconds, read by Ruby's to_f, to which
// what is no number is 0: dead since 1970.
type redisMutex struct{ stamped }

func (redisMutex) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: float(now.Add(ttl), 3), Until: now.Add(ttl)}
	return overtake(c, l, func(held string) (bool, error) {
		until, _ := leading(held)
		return until <= unix(now), nil
	})
}

// Release deletes the key if it still has its own time on it.
func (redisMutex) Release(l protocol.Lease) protocol.Change {
	return broken.By(l, func(c *protocol.Conn) error {
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if held != l.Value {
			return protocol.ErrLost
		}
		_, err = c.Do("DEL", l.Key)
		return err
	})
}

// lonelyJob is resque-lonely_job: whole seconds, read by Ruby's to_i, which cuts
// the fraction off, and gone by when it is less than now or the same.
type lonelyJob struct{ stamped }

func (lonelyJob) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: wholeSeconds(now.Add(ttl)), Until: now.Add(ttl)}
	return overtake(c, l, func(held string) (bool, error) {
		until, _ := leading(held)
		return int64(until) <= now.Unix(), nil
	})
}

// npmLock is npm redis-lock 0.0.x: milliseconds, read by parseFloat. What it can't
// read is NaN, and NaN is not greater than now: dead. first is its first release,
// which took a key that is gone for a value it can't read.
type npmLock struct {
	stamped
	first bool
}

func (n npmLock) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: millis(now.Add(ttl + time.Millisecond)), Until: now.Add(ttl + time.Millisecond)}
	err := create(c, l)
	if !errors.Is(err, protocol.ErrHeld) {
		return l, err
	}
	held, err := get(c, "GET", key)
	if err != nil {
		return l, err
	}
	if held == "" && !n.first { // gone since the SETNX: errorception/redis-lock, PR 4
		return l, &protocol.HeldError{Key: key}
	}
	until, number := leading(held)
	if number && until > float64(now.UnixMilli()) {
		return l, &protocol.HeldError{Key: key, Value: held}
	}
	old, err := get(c, "GETSET", key, l.Value)
	if err != nil {
		return l, err
	}
	if was, ok := leading(old); !ok || !number || was != until { // NaN equals nothing
		return l, &protocol.HeldError{Key: key, Value: old}
	}
	return l, nil
}

// Release deletes the key unless its own time has gone by.
func (npmLock) Release(l protocol.Lease) protocol.Change {
	return broken.By(l, func(c *protocol.Conn) error {
		until, err := strconv.ParseInt(l.Value, 10, 64)
		if err != nil || until <= clock(c, time.Time{}).UnixMilli() {
			return protocol.ErrLost
		}
		_, err = c.Do("DEL", l.Key)
		return err
	})
}

// jedisLock is jedis-lock's master: UUID:MILLISECONDS. A lock that has expired and
// one that is its own are the same to it, when it asks and when it renews, and what
// it can't read has expired.
type jedisLock struct {
	stamped
	uuid func() string
}

func (j jedisLock) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	return j.take(c, now, key, ttl, j.uuid())
}

func (j jedisLock) take(c *protocol.Conn, now time.Time, key string, ttl time.Duration, uuid string) (protocol.Lease, error) {
	l := lease(key, uuid, now, ttl)
	err := create(c, l)
	if !errors.Is(err, protocol.ErrHeld) {
		return l, err
	}
	held, err := get(c, "GET", key)
	if err != nil {
		return l, err
	}
	if !expiredOrMine(held, uuid, now) {
		return l, &protocol.HeldError{Key: key, Value: held}
	}
	old, err := get(c, "GETSET", key, l.Value)
	if err == nil && (old == "" || old != held) {
		err = &protocol.HeldError{Key: key, Value: old}
	}
	return l, err
}

// Extend does as renew(): it takes a free or dead lock for its own.
func (j jedisLock) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	uuid, _, _ := strings.Cut(l.Value, ":")
	return lease(l.Key, uuid, now, ttl), broken.By(l, func(c *protocol.Conn) error {
		held, err := get(c, "GET", l.Key)
		if err != nil {
			return err
		}
		if !expiredOrMine(held, uuid, now) {
			return protocol.ErrLost
		}
		if _, err := j.take(c, now, l.Key, ttl, uuid); err != nil {
			return protocol.ErrLost
		}
		return nil
	}), nil
}

func lease(key, uuid string, now time.Time, ttl time.Duration) protocol.Lease {
	return protocol.Lease{Key: key, Value: uuid + ":" + millis(now.Add(ttl)), Until: now.Add(ttl)}
}

func expiredOrMine(value, uuid string, now time.Time) bool {
	owner, until, ok := strings.Cut(value, ":")
	ms, err := strconv.ParseInt(until, 10, 64)
	return !ok || err != nil || ms < now.UnixMilli() || owner == uuid
}
