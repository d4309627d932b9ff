package mixing

import (
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// tokened is a published client that writes an owner, or a flag:
//
//	SETNX key v; EXPIRE key s    1: ours; a crash in between: it never expires
//	SET key v NX PX ms           ours, with its end
//
// None reads the value to acquire, except one that still reads the timestamps of its older
// versions. Some repair a key without a TTL.
type tokened struct{ client }

// Acquire makes one attempt.
func (t tokened) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: t.value(now, ttl), Until: now.Add(ttl), Ambiguous: t.Token == dialect.TokenFlag}
	won, err := t.make(c, l, ttl)
	switch {
	case won || err != nil:
		return l, err
	case t.Repair:
		return l, t.repair(c, key, ttl)
	case t.legacy:
		return l, t.takeOld(c, now, l, ttl)
	}
	return l, &protocol.HeldError{Key: key}
}

// make creates the key and sets its TTL.
func (t tokened) make(c *protocol.Conn, l protocol.Lease, ttl time.Duration) (bool, error) {
	if t.Kind == dialect.Watched {
		return t.makeWatched(c, l, ttl)
	}
	return create(c, l, ttl, t.TTL)
}

// makeWatched acquires as BookSleeve does: WATCH, EXISTS, MULTI, SETEX, EXEC.
func (t tokened) makeWatched(c *protocol.Conn, l protocol.Lease, ttl time.Duration) (bool, error) {
	if _, err := c.Do("WATCH", l.Key); err != nil {
		return false, err
	}
	exists, err := redis.Bool(c.Do("EXISTS", l.Key))
	if err != nil || exists {
		c.Unwatch()
		return false, err
	}
	replies, err := c.Exec(protocol.Cmd{"SETEX", l.Key, int64(ttl / time.Second), l.Value})
	return replies != nil, err
}

// repair does as Redis in Action: a client that finds no TTL on the key sets one, whoever holds it
// (tx/ttl-repair).
func (t tokened) repair(c *protocol.Conn, key string, ttl time.Duration) error {
	left, err := redis.Int64(c.Do("TTL", key))
	if err == nil && left < 0 {
		_, err = c.Do("EXPIRE", key, int64(ttl/time.Second))
	}
	if err == nil {
		err = &protocol.HeldError{Key: key}
	}
	return err
}

// takeOld does as redis-objects with the floats of its older versions: it reads the value with to_f, and
// overwrites it if it is not 0 and has expired, without checking that it is the first.
func (t tokened) takeOld(c *protocol.Conn, now time.Time, l protocol.Lease, ttl time.Duration) error {
	held, _, err := get(c, "GET", l.Key)
	if err != nil {
		return err
	}
	n, _ := rubyFloat.reads(held)
	if n == 0 || n >= float64(now.UnixMilli())/1e3 {
		return &protocol.HeldError{Key: l.Key, Value: held}
	}
	_, err = c.Do("SET", l.Key, l.Value, "PX", ttl.Milliseconds())
	return err
}

// The beginnings of tokens, before the twelve digits that make them unique.
const (
	hex  = "94213c24e0f911f0a9d3"
	uuid = "fb2d0a1e-3f44-4e2e-8f0a-"
)

func (t tokened) value(now time.Time, ttl time.Duration) string {
	if t.Token == dialect.TokenMillis {
		return strconv.FormatInt(now.Add(ttl).UnixMilli(), 10)
	}
	return write(t.Format, t.token())
}

// write returns a token in the client's form.
func write(f dialect.Format, token string) string {
	switch f.Token {
	case dialect.TokenHex:
		return hex + token
	case dialect.TokenUUID:
		return uuid + token
	case dialect.TokenHostPID:
		return "web" + token + ":4711"
	case dialect.TokenBeaker:
		return "3fa9c1-4711-" + token
	case dialect.TokenShedLock:
		return "ADDED:2020-01-02T00:00:00.000Z@web" + token
	case dialect.TokenSpring:
		return "\x04web1\x06report\x0c" + token + "\x00\x00\x01\x6f\x63\x07\x84\x00"
	case dialect.TokenFlag:
		return f.Examples[0]
	}
	return "john" + token
}
