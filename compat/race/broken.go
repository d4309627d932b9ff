package race

import (
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// broken are algorithms with one known fault each, kept to be caught: an
// explorer that lets one of them pass is broken itself.
var broken = map[string]entry{
	"broken/del-setnx": {says: "takes a dead timestamp over by DEL and SETNX instead of GETSET",
		make: func(c *Config, token func() string) compat.Algorithm {
			return delSetnx{getsetlock.Classic{Options: stamps(c, token)}}
		}},
	"broken/get-del": {says: "releases by GET and DEL, without WATCH",
		make: func(c *Config, token func() string) compat.Algorithm {
			return getDel{txlock.Guarded{Options: tokens(c, token)}}
		}},
	"broken/late-lease": {says: "counts its lease from the reply",
		make: func(c *Config, token func() string) compat.Algorithm {
			return lateLease{txlock.Guarded{Options: tokens(c, token)}}
		}, bare: true},
	"broken/no-repair": {says: "SETNX, then EXPIRE, and nobody mends what a crash in between leaves",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Classic{Options: tokens(c, token), TTLRepair: txlock.RepairNever}
		}},
	"broken/bare-del": {says: "cleans up after an unknown outcome by a DEL that compares nothing",
		make: func(c *Config, token func() string) compat.Algorithm {
			return bareDel{txlock.Guarded{Options: tokens(c, token)}}
		}, bare: true},
	"broken/unverified-watch": {says: "keeps its connection under a WATCH of which it does not know whose key it guards", pinned: 1,
		make: func(c *Config, token func() string) compat.Algorithm {
			return unverifiedWatch{txlock.Guarded{Options: tokens(c, token)}}
		}},
	"broken/blind-hand-over": {says: "hands its lock on as a new lease, and asks neither its clock nor the server whether it has the old one",
		make: func(c *Config, token func() string) compat.Algorithm {
			return blindHandOver{txlock.Guarded{Options: tokens(c, token)}}
		}, bare: true},
	"broken/list-release": {says: "releases by lists, and takes a list that is not there for an equal value",
		make: func(c *Config, token func() string) compat.Algorithm {
			return listRelease{txlock.Guarded{Options: tokens(c, token)}}
		}},
	"broken/multi-setnx-expire": {says: "SETNX and EXPIRE in one MULTI, which runs the EXPIRE for the loser too",
		make: func(c *Config, token func() string) compat.Algorithm {
			return setnxExpire{txlock.Classic{Options: tokens(c, token)}, token}
		}},
}

// blindHandOver is what Lock.HandOn would be without an extension and without a
// look at the end of the lease.
type blindHandOver struct{ txlock.Guarded }

func (blindHandOver) handOn(now time.Time, l compat.Lease, ttl time.Duration) compat.Lease {
	l.Until = compat.Until(now, ttl)
	return l
}

// listRelease is what compat.ReleaseListed would be in half the commands. A server
// that refuses the RPUSH, and runs the rest, removes whatever is on the key.
type listRelease struct{ txlock.Guarded }

func (listRelease) Release(c redis.Conn, _ time.Time, l compat.Lease) error {
	s := compat.Aux(l.Key, l.Value)
	replies, err := compat.Exec(c, compat.Cmd{"RPUSH", s, l.Key}, compat.Cmd{"SORT", s, "BY", "nosort", "GET", "*", "STORE", s},
		compat.Cmd{"LREM", s, 0, l.Value}, compat.Cmd{"RENAMENX", l.Key, s}, compat.Cmd{"DEL", s})
	e, refused := err.(redis.Error)
	if refused && strings.Contains(string(e), "no such key") || err == nil && replies[3] != int64(1) {
		return compat.ErrLost
	}
	return err
}

// delSetnx is getset/double-takeover: two clients see the same dead value, and
// the second one's DEL removes the first one's lock.
type delSetnx struct{ getsetlock.Classic }

func (d delSetnx) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Until: compat.Until(now, ttl), How: compat.Free}
	l.Value = getsetlock.Float.Format(now.Add(ttl), d.Nonce)
	for try := 0; try < 2; try++ {
		won, err := redis.Bool(c.Do("SETNX", key, l.Value))
		if won || err != nil {
			return l, err
		}
		if try == 1 {
			break
		}
		old, err := redis.String(c.Do("GET", key))
		if errors.Is(err, redis.ErrNil) {
			continue
		}
		if err != nil {
			return l, err
		}
		if until, ok := getsetlock.Float.Parse(old); !ok || !until.Before(now) {
			break
		}
		if _, err := c.Do("DEL", key); err != nil {
			return l, err
		}
	}
	return l, &compat.HeldError{Key: key}
}

// getDel is tx/watch-without-multi: between its GET and its DEL the key changes hands.
type getDel struct{ txlock.Guarded }

func (getDel) Release(c redis.Conn, _ time.Time, l compat.Lease) error {
	value, err := redis.String(c.Do("GET", l.Key))
	if errors.Is(err, redis.ErrNil) || err == nil && value != l.Value {
		return compat.ErrLost
	}
	if err != nil {
		return err
	}
	deleted, err := redis.Bool(c.Do("DEL", l.Key))
	if err == nil && !deleted {
		return compat.ErrLost
	}
	return err
}

// lateLease is any/lease-counted-from-reply. It reads the clock where an
// algorithm is not allowed to, through the connection's own.
type lateLease struct{ txlock.Guarded }

func (b lateLease) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := b.Guarded.Acquire(c, now, key, ttl)
	if w, ok := c.(*wire); ok && err == nil {
		w.a.got = true
		l.Until = compat.Until(w.a.now(), ttl)
	}
	return l, err
}

// bareDel is any/release-of-unknown.
type bareDel struct{ txlock.Guarded }

func (b bareDel) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := b.Guarded.Acquire(c, now, key, ttl)
	if err != nil {
		l.How = ""
	}
	return l, err
}

func (b bareDel) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	if l.How != "" {
		return b.Guarded.Release(c, now, l)
	}
	_, err := c.Do("DEL", l.Key)
	return err
}

// unverifiedWatch is tx/unverified-watch: an extension that was aborted begins to
// watch anew, and takes the key that it watches then for its own.
type unverifiedWatch struct{ txlock.Guarded }

func (b unverifiedWatch) ExtendKept(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, bool, error) {
	seconds, err := compat.WholeSeconds(ttl)
	if err != nil || !now.Before(l.Until) {
		return l, false, errors.Join(err, compat.ErrLost)
	}
	for range compat.Aborts {
		replies, s, err := compat.ExecAndWatch(c, l.Key, compat.Cmd{"EXPIRE", l.Key, seconds})
		if err != nil {
			return l, false, err
		}
		if value, exists, _ := s.Value(l.Key); replies != nil || !exists {
			l.Until = compat.Until(now, ttl)
			return l, value == l.Value, nil
		}
	}
	return l, false, compat.ErrAborted
}

// setnxExpire is the trap of facts/servers.md: a refused attempt moves the
// holder's end.
type setnxExpire struct {
	txlock.Classic
	token func() string
}

func (b setnxExpire) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: b.token(), Until: compat.Until(now, ttl), How: compat.Free}
	seconds, err := compat.WholeSeconds(ttl)
	if err != nil {
		return l, err
	}
	replies, err := compat.Exec(c, compat.Cmd{"SETNX", key, l.Value}, compat.Cmd{"EXPIRE", key, seconds})
	if err != nil {
		return l, err
	}
	if replies[0] != int64(1) {
		return l, &compat.HeldError{Key: key}
	}
	return l, nil
}
