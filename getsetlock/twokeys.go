package getsetlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/dialect"
)

// TwoKeys is the lock of mlanett's redis-lock: the owner stands on one key, the
// deadline, in whole seconds, on another, so that an owner can be compared and a
// dead one's time read. Redis 2.2 and later. One round trip when both keys are
// free, three for a takeover, two for a refusal, an extension or a release.
//
//	MSETNX lock:owner:K O lock:expire:K T       1: ours
//	WATCH both; GET both                        an unexpired timestamp: UNWATCH, held
//	MULTI; MSET both; EXEC                      nil: another was faster, and nothing was written
//
// The gem deletes both keys and asks again, between which a third may step in;
// it can't tell the difference. It takes a key without the other for dead; here
// that is held by somebody, as all that can't be read is.
//
// A lease's Value is the owner: it stays what it is when the lease is extended.
// Clocks must agree, as for the other locks here. On a cluster both keys must
// hash to one slot: K needs a hash tag, "{report}".
type TwoKeys struct {
	// Fence draws a number from INCR in the transaction that takes the keys. It
	// grows with every acquisition; a refused attempt may burn one.
	Fence bool

	// Margin is how much longer than the deadline says we leave others' leases alone.
	Margin time.Duration

	// Owner returns the owner of the next acquisition, different each time and
	// for each client. nil: host-RANDOM:pid, which reads as the gem's host:pid.
	Owner func() string
}

// deadline is how the second key is written: whole seconds, expired when the
// next has begun.
func (t TwoKeys) deadline() Dialect {
	return Dialect{Name: "mlanett-redis-lock", Unit: time.Second, Whole: true, Margin: t.Margin}
}

// pair is what both keys hold.
type pair struct{ owner, deadline any } // nil or []byte

func (p pair) free() bool { return p.owner == nil && p.deadline == nil }

func (p pair) is(owner string) bool {
	held, _ := redis.String(p.owner, nil)
	return p.owner != nil && held == owner
}

// read reads both keys, under WATCH if asked to.
func (t TwoKeys) read(c *compat.Conn, key string, watch bool) (pair, error) {
	owner, deadline := dialect.Pair(key)
	cmds := []compat.Cmd{{"GET", owner}, {"GET", deadline}}
	if watch {
		cmds = append([]compat.Cmd{{"WATCH", owner, deadline}}, cmds...)
	}
	replies, err := c.Pipe(cmds...)
	if err != nil {
		return pair{}, err
	}
	for _, r := range replies {
		if refused, ok := r.(redis.Error); ok {
			if watch {
				c.Unwatch()
			}
			return pair{}, c.Foreign(key, refused)
		}
	}
	replies = replies[len(replies)-2:]
	return pair{replies[0], replies[1]}, nil
}

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe: our
// lease gets shorter, and fewer leases of others look expired.
func (t TwoKeys) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, until, err := t.lease(key, now, ttl)
	if err != nil {
		return l, err
	}
	owner, deadline := dialect.Pair(key)
	for try := 0; try < 2; try++ {
		won, err := t.set(c, "MSETNX", &l, owner, l.Value, deadline, until)
		if won == int64(1) || err != nil {
			return l, err
		}
		held, err := t.read(c, key, true)
		if err != nil {
			return l, err
		}
		if held.free() {
			c.Unwatch()
			continue // released since the MSETNX: ask again, once (getset/vanished-key)
		}
		if !t.dead(held, now) {
			c.Unwatch()
			return l, t.held(key, held)
		}
		replies, err := c.Exec(t.fenced(key, compat.Cmd{"MSET", owner, l.Value, deadline, until})...)
		if err == nil && replies == nil {
			return l, t.held(key, pair{})
		}
		if err == nil && t.Fence {
			l.Fence = replies[1].(int64)
		}
		l.How = compat.TakenOver
		return l, err
	}
	return l, &compat.HeldError{Key: key}
}

// set runs a command that makes both keys, with the fence's if there is one.
func (t TwoKeys) set(c *compat.Conn, name string, l *compat.Lease, args ...any) (any, error) {
	if !t.Fence {
		return c.Do(name, args...)
	}
	replies, err := c.Exec(t.fenced(l.Key, append(compat.Cmd{name}, args...))...)
	if err != nil {
		return nil, err
	}
	if replies[0] != int64(0) { // the number of an attempt that was refused is older than that of the next client
		l.Fence = replies[1].(int64)
	}
	return replies[0], nil
}

func (t TwoKeys) fenced(key string, cmd compat.Cmd) []compat.Cmd {
	if !t.Fence {
		return []compat.Cmd{cmd}
	}
	return []compat.Cmd{cmd, {"INCR", compat.Aux(key, "fence")}}
}

// lease is what we write and believe when we ask for ttl at now.
func (t TwoKeys) lease(key string, now time.Time, ttl time.Duration) (l compat.Lease, until string, err error) {
	l = compat.Lease{Key: key, Until: compat.Until(now, ttl), How: compat.Free}
	if ttl < time.Second {
		return l, "", fmt.Errorf("%w: a ttl of %v is shorter than the second that this lock counts in", compat.ErrInvalid, ttl)
	}
	if t.Owner != nil {
		l.Value = t.Owner()
	} else {
		l.Value = dialect.TokenHostPID.Write(key, now, dialect.Random())
	}
	return l, t.deadline().Format(now.Add(ttl), nil), nil
}

// dead reports whether the pair is whole, and its deadline has expired.
func (t TwoKeys) dead(held pair, now time.Time) bool {
	until, _ := redis.String(held.deadline, nil)
	return held.owner != nil && held.deadline != nil && t.deadline().Dead(until, now)
}

func (t TwoKeys) held(key string, held pair) error {
	owner, _ := redis.String(held.owner, nil)
	text, _ := redis.String(held.deadline, nil)
	until, ok := t.deadline().Parse(text)
	return &compat.HeldError{Key: key, Value: owner, Until: until, Foreign: !held.free() && (!ok || held.owner == nil)}
}

// Extend moves the end of l to now+ttl.
func (t TwoKeys) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	_, until, err := t.lease(l.Key, now, ttl)
	if err != nil {
		return l, compat.Change{}, err
	}
	_, deadline := dialect.Pair(l.Key)
	cmds := []compat.Cmd{{"SET", deadline, until}}
	draw := t.Fence && l.Fence == 0 // adopted, or its number was lost with the reply
	if draw {
		cmds = t.fenced(l.Key, cmds[0])
	}
	old := l
	l.Until = compat.Until(now, ttl)
	return l, compat.Change{Key: l.Key, Value: l.Value, Draw: draw, By: t.ifOurs(old, cmds...)}, nil
}

// Release deletes both keys if the owner is still ours. It may come late: a client that took
// over has changed the owner.
func (t TwoKeys) Release(l compat.Lease) compat.Change {
	owner, deadline := dialect.Pair(l.Key)
	return compat.Change{Key: l.Key, Value: l.Value, By: t.ifOurs(l, compat.Cmd{"DEL", owner, deadline})}
}

// ifOurs runs cmds in one EXEC on the condition that we are the owner when they
// run. The keys have no TTL, so that an EXEC which aborts means that another
// wrote one of them: it did not run, and is tried once more, for it may have
// been an extension of our own (tx/renewal-aborts-release).
func (t TwoKeys) ifOurs(l compat.Lease, cmds ...compat.Cmd) func(c *compat.Conn) ([]any, error) {
	return func(c *compat.Conn) ([]any, error) {
		for try := 0; try < 2; try++ {
			held, err := t.read(c, l.Key, true)
			if err != nil {
				return nil, err
			}
			if !held.is(l.Value) {
				c.Unwatch()
				return nil, compat.ErrLost
			}
			replies, err := c.Exec(cmds...)
			if err != nil || replies != nil {
				return replies, err
			}
		}
		return nil, compat.ErrAborted
	}
}

// Inspect reads both keys: one round trip. State.Value is the owner.
func (t TwoKeys) Inspect(c *compat.Conn, now time.Time, key string) (compat.State, error) {
	s := compat.State{Key: key, Status: compat.StatusFree, TTL: compat.NoTTL}
	held, err := t.read(c, key, false)
	if err != nil || held.free() {
		return s, err
	}
	e := new(compat.HeldError)
	errors.As(t.held(key, held), &e)
	s.Value, s.Until, s.Format, s.Clock = e.Value, e.Until, t.deadline().Name, "clients"
	switch {
	case e.Foreign:
		s.Status = compat.StatusForeign
	case t.dead(held, now):
		s.Status = compat.StatusDead
	default:
		s.Status = compat.StatusHeld
	}
	return s, nil
}

// Traits say that it checks the server.
func (t TwoKeys) Traits() compat.Traits { return compat.Traits{Check: t.check} }

// check returns ErrUnsafeServer if there is no WATCH, or no MULTI. No other lock excludes this
// fleet: its own clients can't do without them either.
func (t TwoKeys) check(c *compat.Conn, key string) error {
	const use = "a server that has both, as the other clients of these keys do"
	return ability.Check(c, key, false, ability.Need{Ability: ability.Multi, Use: use}, ability.Need{Ability: ability.Watch, Use: use})
}
