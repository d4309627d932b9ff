package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// A scenario is something that a late client of theirs or ours can cause.
type scenario struct {
	name string
	run  func(t *testing.T)
}

// scenarios are those that this client can cause.
func (c client) scenarios(t testing.TB) []scenario {
	list := []scenario{{"recognised", c.recognised}, {"late release", c.lateRelease}, {"overtaken", c.overtaken}}
	if c.format(t).Kind.Timed() {
		list = append(list, scenario{"late takeover", c.lateTakeover}, scenario{"vanished key", c.vanishedKey})
		if !c.overwrites { // clients that take over blindly can both hold: see lateTakeover
			list = append(list, scenario{"contenders", c.contenders}, scenario{"set back", c.setBack})
		}
		if !c.deletes {
			list = append(list, scenario{"paused release", c.pausedRelease})
		}
	}
	if c.removes != "" {
		list = append(list, scenario{"paused release", c.pausedRelease})
	}
	if c.gone {
		list = append(list, scenario{"gone is dead", c.goneIsDead})
	}
	if c.ends != "" {
		list = append(list, scenario{"death before the TTL", c.deathBeforeTTL})
	}
	return list
}

// recognised: a client of theirs writes what its Format says, to the grain. dialect.Recognise lists
// the format among the likeliest, finds nothing wrong, and reports the lock as dead when it is.
func (c client) recognised(t *testing.T) {
	t.Helper()
	f := c.format(t)
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	p := c.start(t, s.addr, long)
	before := time.Now()
	p.acquire()
	now := time.Now()
	value := s.value(t)
	left := must.Get(redis.Int64(s.conn.Do("PTTL", s.key)))(t)
	if (left >= 0) != (f.TTL != dialect.TTLNone) {
		t.Errorf("the key's TTL is %d ms, its Format says %q", left, f.TTL)
	}
	ttl := time.Duration(left) * time.Millisecond
	found := dialect.Recognise(s.key, value, ttl, now)
	named := slices.ContainsFunc(found, func(g dialect.Finding) bool { // several clients can write alike
		return slices.Contains(g.Formats(), f.Name) && g.Confidence() == found[0].Confidence()
	})
	if !named || found[0].Status != dialect.Alive || found[0].Wrong != nil || f.Kind.Timed() && found[0].Kind != f.Kind {
		t.Errorf("%q with a TTL of %v is recognised as %+v, want %s, alive", value, ttl, found, f.Name)
	}
	if !f.Kind.Timed() {
		if _, ok := f.Token.Read(value); !ok {
			t.Errorf("%q is not %s", value, f.Token)
		}
		return
	}
	until, _, ok := f.Stamp.Parse(value)
	least, most := before.Add(long+f.Plus-f.Stamp.Grain()), now.Add(long+f.Plus+f.Stamp.Grain())
	if !ok || until.Before(least) || until.After(most) {
		t.Errorf("%q is read as %v (%v), want it between %v and %v", value, until, ok, least, most)
	}
	found = dialect.Recognise(s.key, value, compat.NoTTL, now.Add(2*long))
	if len(found) == 0 || found[0].Kind != f.Kind || found[0].Status != dialect.Dead {
		t.Errorf("%q is recognised as %+v later, want it dead", value, found)
	}
}

// lateRelease: a client of theirs works on past its lease, we take the lock over, and then it
// releases. A client that does not compare, or compares only timestamps, deletes our lock
// (any/release-after-expiry; redis-py#415), and our next extension reports it.
func (c client) lateRelease(t *testing.T) {
	t.Helper()
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	p := c.start(t, s.addr, c.lease)
	p.acquire()
	l := s.lock(t, long)
	ours := s.value(t)
	answer := p.do("release")
	left := s.value(t)
	err := l.Extend(context.Background(), long)
	switch {
	case c.deletes && (left != "" || !errors.Is(err, compat.ErrLost)):
		t.Errorf("a late release of theirs (%q) left %q on the key, and our extension says %v; want it gone, and ErrLost", answer, left, err)
	case !c.deletes && (left != ours || err != nil):
		t.Errorf("a late release of theirs (%q) left %q on the key, and our extension says %v; want our %q", answer, left, err, ours)
	}
	l.Release(context.Background()) //nolint:errcheck // its outcome is the extension's
}

// overtaken: we work on past our lease, they take the lock over, and then we release. Their lock
// remains.
func (c client) overtaken(t *testing.T) {
	t.Helper()
	addr := realredis.Start(t)
	p := c.start(t, addr, long)
	for _, a := range c.algorithms(t) {
		s := us(t, addr, c, a, long)
		mine := must.Get(s.a.Acquire(s.conn, time.Now(), s.key, c.lease))(t)
		p.acquire()
		theirs := s.value(t)
		if _, err := s.conn.Run(s.a.Release(mine)); !errors.Is(err, compat.ErrLost) {
			t.Errorf("%s: a late release of ours: %v, want ErrLost", a.name, err)
		}
		if got := s.value(t); got != theirs {
			t.Errorf("%s: a late release of ours left %q on the key, want their %q", a.name, got, theirs)
		}
		if got := p.do("release"); got != "released" {
			t.Errorf("%s: they say %q", a.name, got)
		}
	}
}

// tooLate: a client of theirs has read the timestamp of a dead lock, we take the lock over, and
// then its write arrives. It returns the client's answer, or "" if the client goes on asking.
func (c client) tooLate(t *testing.T, s side, ours, theirs time.Duration) (l *compat.Lock, answer string) {
	t.Helper()
	s.dead(t, c, -3*time.Second)
	g := newGate(t, s.addr, s.key)
	p := c.start(t, g.addr, theirs)
	g.hold(c.late)
	p.send("acquire")
	if answer := g.await(p, c.late, 1); answer != "" {
		t.Fatalf("their takeover: %q, before its %s", answer, c.late)
	}
	l, err := s.locks.TryLock(context.Background(), s.key, ours)
	if err != nil || l.Lease().How != protocol.TakenOver {
		t.Fatalf("our takeover: %v", err)
	}
	asked := g.count(c.acquires())
	g.pass(c.late)
	answer = g.await(p, c.acquires(), asked+1)
	p.kill()
	return l, answer
}

// lateTakeover: a client that checks what its GETSET replaced knows that it came too late, but has
// overwritten our timestamp (getset/loser-overwrites): our next extension returns ErrLost. A client
// that does not check holds the lock as well (getset/double-takeover).
func (c client) lateTakeover(t *testing.T) {
	t.Helper()
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	l, answer := c.tooLate(t, s, long, 2*long) // two clients that write the same second cannot be distinguished
	if holds := answer == "held"; holds != c.overwrites || answer != "" && !holds {
		t.Errorf("their late %s: they say %q; want them to hold as well: %v", c.late, answer, c.overwrites)
	}
	if got := s.value(t); got == l.Token() {
		t.Errorf("their late %s left our %q on the key, want it overwritten", c.late, got)
	}
	if err := l.Extend(context.Background(), long); !errors.Is(err, compat.ErrLost) {
		t.Errorf("after their late %s, our extension: %v, want ErrLost", c.late, err)
	}
	l.Release(context.Background()) //nolint:errcheck // ErrLost, again
}

// setBack: the late client's lease is shorter than ours. Its timestamp is on the key, and when it
// expires a third client takes the lock, which we believe to be ours
// (getset/stale-getset-sets-back). We learn of it only at the next extension.
func (c client) setBack(t *testing.T) {
	t.Helper()
	const ours = time.Minute
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], ours)
	l, answer := c.tooLate(t, s, ours, c.lease)
	if answer != "" {
		t.Errorf("they say %q", answer)
	}
	third := us(t, s.addr, c, c.algorithms(t)[0], ours).lock(t, long) // of another process: in ours it would wait for l
	if !time.Now().Before(l.Until()) || third.Lease().How != protocol.TakenOver {
		t.Errorf("a third has the lock, %s, at %v; want it taken over while we believe in it, until %v", third.Lease().How, time.Now(), l.Until())
	}
	if err := l.Extend(context.Background(), ours); !errors.Is(err, compat.ErrLost) {
		t.Errorf("our extension: %v, want ErrLost", err)
	}
	if err := third.Release(context.Background()); err != nil {
		t.Errorf("the third's release: %v", err)
	}
	l.Release(context.Background()) //nolint:errcheck // ErrLost, again
}

// pausedRelease: a client of theirs that checks before it deletes has checked, works past its
// lease, we take the lock over, and then its DEL arrives (getset/paused-release).
func (c client) pausedRelease(t *testing.T) {
	t.Helper()
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	g := newGate(t, s.addr, s.key)
	p := c.start(t, g.addr, c.lease)
	p.acquire()
	del := "DEL"
	if c.removes != "" {
		del = c.removes
	}
	g.hold(del)
	p.send("release")
	if answer := g.await(p, del, 1); answer != "" {
		t.Fatalf("they say %q before their %s", answer, del)
	}
	l := s.lock(t, long)
	g.pass(del)
	p.expect("released")
	if got := s.value(t); got != "" {
		t.Errorf("their late %s left %q on the key", del, got)
	}
	if err := l.Extend(context.Background(), long); !errors.Is(err, compat.ErrLost) {
		t.Errorf("our extension: %v, want ErrLost", err)
	}
	l.Release(context.Background()) //nolint:errcheck // ErrLost, again
}

// deathBeforeTTL: a client of theirs dies between the command that creates the key and the one that
// sets its TTL (tx/crash-before-expire; redis-py#818). A timestamp expires by itself. A token does
// not: we leave it as its fleet does; without NoRepair we repair a value that has not changed for a
// lease.
func (c client) deathBeforeTTL(t *testing.T) {
	t.Helper()
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	g := newGate(t, s.addr, s.key)
	p := c.start(t, g.addr, c.lease)
	g.hold(c.ends)
	p.send("acquire")
	if answer := g.await(p, c.ends, 1); answer != "" {
		t.Fatalf("they say %q before their %s", answer, c.ends)
	}
	p.kill()
	g.drop(c.ends)
	if ttl, err := redis.Int(s.conn.Do("TTL", s.key)); ttl != -1 || err != nil {
		t.Fatalf("the key's TTL: %d, %v; want none", ttl, err)
	}
	st, err := s.locks.Inspect(context.Background(), s.key)
	if persistent := st.Status == compat.StatusPersistent; err != nil || persistent != c.immortal {
		t.Errorf("Inspect: %+v, %v; want it persistent: %v", st, err, c.immortal)
	}
	if c.immortal {
		fleet := must.Get(txlock.Named(c.dialect))(t)
		fleet.NoRepair = false
		s = us(t, s.addr, c, algorithm{new: func(time.Duration) protocol.Algorithm { return fleet }}, long)
	}
	start := time.Now()
	l := s.lock(t, c.lease)
	if took, limit := time.Since(start), 2*c.lease+c.rounding(t)+slack; took > limit {
		t.Errorf("recovered after %v, want %v at most", took, limit)
	}
	if err := l.Release(context.Background()); err != nil {
		t.Errorf("our release: %v", err)
	}
}

// vanishedKey: a client of theirs is refused, the lock is released, and then the client reads the
// key. A missing key is neither an expired lock nor a timestamp (errorception/redis-lock#3: it
// became NaN, and the lock could not be recovered): we can read what the client then writes.
func (c client) vanishedKey(t *testing.T) {
	t.Helper()
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	g, p := c.readsMissingKey(t, s)
	g.pass("GET")
	p.expect("held")
	st, err := s.locks.Inspect(context.Background(), s.key)
	if err != nil || st.Status != compat.StatusHeld || st.Until.Before(time.Now()) {
		t.Errorf("they hold it; Inspect: %+v, %v", st, err)
	}
	if got := p.do("release"); got != "released" || s.value(t) != "" {
		t.Errorf("they say %q, and the key holds %q", got, s.value(t))
	}
}

// goneIsDead: some clients treat a missing key as an expired lock (getset/vanished-key). If we take
// the lock meanwhile, GETSET tells them that they were late, but their timestamp is on the key and
// we cannot release the lock: it stays until that time. SET tells them nothing, and both hold the
// lock.
func (c client) goneIsDead(t *testing.T) {
	t.Helper()
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], long)
	g, p := c.readsMissingKey(t, s)
	g.hold(c.late)
	g.pass("GET")
	if answer := g.await(p, c.late, 1); answer != "" {
		t.Fatalf("they say %q before their %s", answer, c.late)
	}
	l := s.lock(t, long)
	if l.Lease().How != protocol.Free {
		t.Errorf("we took the lock %s, want it free", l.Lease().How)
	}
	asked := g.count(c.acquires())
	g.pass(c.late)
	if answer := g.await(p, c.acquires(), asked+1); (answer == "held") != c.overwrites || answer != "" && answer != "held" {
		t.Errorf("they say %q; want them to hold, as we do: %v", answer, c.overwrites)
	}
	if err := l.Release(context.Background()); !errors.Is(err, compat.ErrLost) || s.value(t) == "" {
		t.Errorf("our release: %v, and the key holds %q; want ErrLost and their time", err, s.value(t))
	}
}

// readsMissingKey makes our lock refuse a client of theirs, and releases it before the client's GET
// arrives.
func (c client) readsMissingKey(t *testing.T, s side) (*gate, *process) {
	t.Helper()
	g := newGate(t, s.addr, s.key)
	p := c.start(t, g.addr, 2*long)
	l := s.lock(t, long)
	g.hold("GET")
	p.send("acquire")
	if answer := g.await(p, "GET", 1); answer != "" {
		t.Fatalf("we hold the lock, and they say %q", answer)
	}
	must.Do(t, l.Release(context.Background()))
	return g, p
}

// contenders: two processes of theirs and two goroutines of ours wait for a dead lock, and all see
// it expire at the same moment. They get it one after the other. A GETSET that came too late may
// have left a timestamp that nobody releases; then the next client waits for it to expire
// (redis-py#384; redis-mutex#5 calls it starvation). That is why the sections stage does not begin
// this way.
func (c client) contenders(t *testing.T) {
	t.Helper()
	const lease, each = 3 * time.Second, 2
	s := us(t, realredis.Start(t), c, c.algorithms(t)[0], lease)
	var fleet []*process
	for range each {
		fleet = append(fleet, c.start(t, s.addr, lease))
	}
	m := watch(t, s.addr)
	s.dead(t, c, 500*time.Millisecond)
	for _, p := range fleet {
		p.send("work 1")
	}
	var all sync.WaitGroup
	for i := range each {
		all.Go(func() { s.work(t, fmt.Sprintf("ours-%d", i), 1, lease, c.poll) })
	}
	all.Wait()
	for _, p := range fleet {
		p.expect("worked 1 lost 0")
	}
	if v := judge(t, m.stop(t), s.key); v.theirs != each || v.ours != each || v.overlaps != 0 {
		t.Errorf("%d sections of theirs, %d of ours, %d overlaps; want %d, %d and none", v.theirs, v.ours, v.overlaps, each, each)
	}
}
