package interop

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// Bugs that users of old clients reported, reproduced with those clients, and how our lock in their
// dialect behaves. TestInterop has others as scenarios: redis-py#415 is lateRelease, redis-py#818
// deathBeforeTTL, errorception/redis-lock#3 vanishedKey.

// report returns the clients of a report.
func report(t *testing.T, names ...string) []client {
	t.Helper()
	t.Parallel()
	var list []client
	for _, name := range names {
		c := find(t, name)
		c.needs(t)
		list = append(list, c)
	}
	return list
}

// guarded is our Guarded in one client's dialect on another client's key.
func guarded(t testing.TB, addr, name, key string) side {
	t.Helper()
	d := must.Get(getsetlock.Named(name))(t)
	c := client{dialect: name}
	s := us(t, addr, c, algorithm{new: func(time.Duration) protocol.Algorithm {
		return getsetlock.Guarded{Options: getsetlock.Options{Dialect: d}}
	}}, long)
	s.key = key
	return s
}

// redis/redis-py#113: 2.2.4 wrote seconds with a fraction, and 2.2.3 threw an exception. Each of
// our dialects writes what its client reads, and treats the other's value as held.
func TestInteropReportFloatAgainstInt(t *testing.T) {
	c := report(t, "redis-py-2.2.2", "redis-py-2.9.1")
	addr := realredis.Start(t)
	old, young := c[0].start(t, addr, long), c[1].start(t, addr, long)

	young.acquire()
	if got := old.do("acquire"); !threw(got, "ValueError") {
		t.Errorf("2.2.2 at the lock of 2.9.1 says %q, want a ValueError", got)
	}
	s := guarded(t, addr, "redis-py-2.2.3", "report")
	theirs := s.value(t)
	if _, err := s.locks.TryLock(context.Background(), s.key, long); !errors.Is(err, compat.ErrHeld) || !errors.Is(err, compat.ErrForeign) {
		t.Errorf("we, as 2.2.3, at the lock of 2.9.1: %v, want ErrHeld and ErrForeign", err)
	}
	if got := s.value(t); got != theirs {
		t.Errorf("we left %q on the key, want %q", got, theirs)
	}
	if got := young.do("release"); got != "released" || s.value(t) != "" {
		t.Errorf("2.9.1 says %q, and the key holds %q", got, s.value(t))
	}

	old.acquire()
	if _, err := guarded(t, addr, "redis-py-2.9", "report").locks.TryLock(context.Background(), "report", long); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("we, as 2.9, at the lock of 2.2.2: %v, want ErrHeld", err)
	}
}

// redis/redis-py#384: the loser of a takeover leaves its timestamp, a little earlier than the
// winner's, and then the winner silently does not release the lock. It takes two of their clients.
// We wait until that time and no longer.
func TestInteropReportLoserOverwrites(t *testing.T) {
	c := report(t, "redis-py-2.9.1")[0]
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	s.dead(t, c, -3*time.Second)
	g := newGate(t, s.addr, s.key)
	loser, winner := c.start(t, g.addr, 2*time.Second), c.start(t, s.addr, long)
	g.hold("GETSET")
	loser.send("acquire")
	if answer := g.await(loser, "GETSET", 1); answer != "" {
		t.Fatalf("the loser says %q", answer)
	}
	winner.acquire()
	asked := g.count("SETNX")
	g.pass("GETSET")
	if answer := g.await(loser, "SETNX", asked+1); answer != "" {
		t.Errorf("the loser says %q", answer)
	}
	loser.kill()
	if got := winner.do("release"); got != "released" || s.value(t) == "" {
		t.Errorf("the winner says %q, and the key holds %q; want the loser's time", got, s.value(t))
	}
	start := time.Now()
	l := s.lock(t, long)
	if took := time.Since(start); took > 2*time.Second+slack {
		t.Errorf("we had the lock after %v", took)
	}
	must.Do(t, l.Release(context.Background()))
}

// nateware/redis-objects#234: a program that writes milliseconds, on the keys of one that writes
// seconds (compat/seconds-vs-milliseconds). redis-lock takes a live lock of seconds at once;
// jedis-lock cannot read a fraction and throws an exception. Our locks never take over a value in
// another unit, expired or not.
func TestInteropReportMillisAmongSeconds(t *testing.T) {
	c := report(t, "npm-redis-lock", "jedis-lock", "redis-py-2.9.1")
	addr := realredis.Start(t)
	npm := c[0].start(t, addr, long)
	s := guarded(t, addr, "redis-docs", c[0].key(t))
	l := s.lock(t, long)
	npm.acquire() // over ours
	if err := l.Extend(context.Background(), long); !errors.Is(err, compat.ErrLost) {
		t.Errorf("our extension: %v, want ErrLost", err)
	}
	if _, err := s.locks.TryLock(context.Background(), s.key, long); !errors.Is(err, compat.ErrForeign) {
		t.Errorf("we, as the docs, at milliseconds: %v, want ErrForeign", err)
	}
	if got := npm.do("release"); got != "released" || s.value(t) != "" {
		t.Errorf("redis-lock says %q, and the key holds %q: we did not leave it alone", got, s.value(t))
	}

	jedis, python := c[1].start(t, addr, long), c[2].start(t, addr, c[2].lease)
	python.acquire()
	if got := jedis.do("acquire"); !threw(got, "NumberFormatException") {
		t.Errorf("jedis-lock at float seconds says %q, want a NumberFormatException", got)
	}
	s = guarded(t, addr, "jedis-lock", "report")
	value := s.value(t)
	_, err := s.locks.TryLock(context.Background(), s.key, long)
	if !errors.Is(err, compat.ErrForeign) || s.value(t) != value {
		t.Errorf("we, as jedis-lock, at float seconds: %v, and left %q on the key, want ErrForeign and %q", err, s.value(t), value)
	}
}

// dv/redis-semaphore#23: GETSET and SET drop a key's TTL, and a token without a TTL never expires.
// The real client that writes timestamps does it to the real client that writes tokens; our locks
// in any timestamp dialect do not.
func TestInteropReportTTLTaken(t *testing.T) {
	c := report(t, "npm-redis-lock", "redis-py-2.10.6")
	addr := realredis.Start(t)
	holder := c[1]
	holder.lockName = "lock.report" // so that they meet
	p := holder.start(t, addr, long)
	p.acquire()
	s := guarded(t, addr, "npm-redis-lock-0.0", "lock.report")
	token := s.value(t)
	for _, name := range []string{"npm-redis-lock-0.0", "redis-docs", "redis-py-2.9", "jedis-lock", "redis-mutex", "node-resque"} {
		d := must.Get(getsetlock.Named(name))(t)
		o := getsetlock.Options{Dialect: d}
		for _, a := range []protocol.Algorithm{getsetlock.Guarded{Options: o}, getsetlock.Classic{Options: o}, getsetlock.Patient{Options: o, Lease: long}} {
			_, err := a.Acquire(s.conn, time.Now(), s.key, long)
			left, ttlErr := redis.Int(s.conn.Do("PTTL", s.key))
			if !errors.Is(err, compat.ErrHeld) || s.value(t) != token || left <= 0 || ttlErr != nil {
				t.Errorf("%T as %s: %v, and left %q with a TTL of %d ms; want ErrHeld and the token", a, name, err, s.value(t), left)
			}
		}
	}
	g := newGate(t, addr, s.key)
	npm := c[0].start(t, g.addr, long)
	npm.send("acquire")
	if answer := g.await(npm, "SETNX", 2); answer != "" { // it has looked once, and asks again
		t.Errorf("redis-lock at a token says %q", answer)
	}
	if left, err := redis.Int(s.conn.Do("PTTL", s.key)); left != -1 || err != nil {
		t.Errorf("redis-lock left a TTL of %d ms, %v; want none", left, err)
	}
	if got := p.do("release"); !threw(got, "LockError") {
		t.Errorf("redis-py at the key that was its own says %q, want a LockError", got)
	}
}

// bbangert/retools#18: the clients' clocks decide (getset/skewed-takeover). Ours is an hour fast,
// and the real client holds. Guarded trusts its clock; a Margin of more than an hour, and Patient,
// which trusts no clock, leave the lock alone.
func TestInteropReportClocks(t *testing.T) {
	c := report(t, "retools")[0]
	addr := realredis.Start(t)
	d := must.Get(getsetlock.Named(c.dialect))(t)
	fast := clock.NewMock()
	fast.Set(time.Now().Add(time.Hour))
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	t.Cleanup(func() { pool.Close() })
	try := func(a protocol.Algorithm) error {
		l, err := compat.New(pool, a, compat.Options{Clock: fast}).TryLock(context.Background(), c.key(t), long)
		if err == nil {
			l.Release(context.Background()) //nolint:errcheck // so that no timer is left
		}
		return err
	}
	p := c.start(t, addr, time.Minute)
	p.acquire()
	wide := d
	wide.Margin = 2 * time.Hour
	for _, a := range []protocol.Algorithm{
		getsetlock.Guarded{Options: getsetlock.Options{Dialect: wide}},
		getsetlock.Classic{Options: getsetlock.Options{Dialect: wide}},
		getsetlock.Patient{Options: getsetlock.Options{Dialect: d}, Lease: long},
	} {
		if err := try(a); !errors.Is(err, compat.ErrHeld) {
			t.Errorf("%T with a clock an hour fast: %v, want ErrHeld", a, err)
		}
	}
	if err := try(getsetlock.Guarded{Options: getsetlock.Options{Dialect: d}}); err != nil {
		t.Errorf("Guarded with a clock an hour fast: %v; it is said to take the lock", err)
	}
}

// ServiceStack/ServiceStack.Redis#215: a failed takeover changed the value. Our lock in that
// dialect changes nothing if it loses.
func TestReportFailedTakeoverLeavesNoTrace(t *testing.T) {
	d, err := getsetlock.Named("ServiceStack")
	if err != nil {
		t.Fatal(err)
	}
	s := oldredis.Run(t, "2.2")
	winner := s.Dial()
	dead, live := d.Format(s.Now().Add(-time.Minute), nil), d.Format(s.Now().Add(time.Minute), nil)
	winner.Do("SET", "k", dead)                                                  //nolint:errcheck
	faster := faulty.First(func() { winner.Do("GETSET", "k", live) }).Of("EXEC") //nolint:errcheck
	loser := protocol.NewConn(faulty.Over(s.Dial(), faster))
	_, err = getsetlock.Guarded{Options: getsetlock.Options{Dialect: d}}.Acquire(loser, s.Now(), "k", long)
	if value, _ := redis.String(winner.Do("GET", "k")); !errors.Is(err, compat.ErrHeld) || value != live {
		t.Errorf("%v, and the key holds %q; want ErrHeld and the winner's %q", err, value, live)
	}
}

// oaeproject/Hilary#793: the repair of a TTL revived a lock that had just been released, or changed
// the end of another client's lock. Ours compares, on every version, and changes neither.
func TestReportRepairAfterRelease(t *testing.T) {
	for _, version := range []string{"2.2", "2.4", "2.6", "7.0"} {
		for _, next := range []string{"", "0b2d0a1e-3f44-4e2e-8f0a-0123456789ab"} {
			fleet := must.Get(txlock.Named("redis-in-action"))(t)
			s := oldredis.Run(t, version)
			c := protocol.NewConn(s.Dial())
			c.Do("SET", "k", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab") //nolint:errcheck
			seen, err := fleet.Inspect(c, s.Now(), "k")
			if err != nil || seen.Status != compat.StatusPersistent {
				t.Fatalf("%+v, %v", seen, err)
			}
			c.Do("DEL", "k") //nolint:errcheck
			if next != "" {
				c.Do("SETEX", "k", 60, next) //nolint:errcheck
			}
			err = compat.NewBackend(compat.Pooled(s), fleet).Repair(context.Background(), s.Now, seen, long)
			value, _ := redis.String(c.Do("GET", "k"))
			ttl, _ := redis.Int(c.Do("TTL", "k"))
			if !errors.Is(err, compat.ErrHeld) || value != next || next != "" && ttl != 60 {
				t.Errorf("%s: %v, and the key holds %q with TTL %d; want ErrHeld and %q", version, err, value, ttl, next)
			}
		}
	}
}

// kenn/redis-mutex#5: waiters that could not get the lock kept writing their timestamps to it, so
// nobody ever got it. Our waiters write nothing; when the lock expires, the first to ask gets it.
func TestReportPhantomStarvation(t *testing.T) {
	d := must.Get(getsetlock.Named("redis-mutex"))(t)
	s := oldredis.Run(t, "2.2")
	c := s.Dial()
	value := d.Format(s.Now().Add(time.Minute), nil)
	c.Do("SET", "k", value) //nolint:errcheck
	a := getsetlock.Guarded{Options: getsetlock.Options{Dialect: d}}
	for second := range 60 {
		for range 4 {
			if _, err := a.Acquire(protocol.NewConn(s.Dial()), s.Now().Add(time.Duration(second)*time.Second), "k", time.Minute); !errors.Is(err, compat.ErrHeld) {
				t.Fatalf("after %d s: %v, want ErrHeld", second, err)
			}
		}
		if got, _ := redis.String(c.Do("GET", "k")); got != value {
			t.Fatalf("after %d s the key holds %q, want %q", second, got, value)
		}
	}
	if l, err := a.Acquire(protocol.NewConn(s.Dial()), s.Now().Add(time.Minute), "k", time.Minute); err != nil || l.How != protocol.TakenOver {
		t.Errorf("after a minute: %s, %v; want it taken over", l.How, err)
	}
}
