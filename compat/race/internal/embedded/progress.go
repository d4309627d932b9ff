package embedded

import (
	"context"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A Probe finds out how long the lock stays taken if all clients die now: a
// fresh client waits for it with the shipping Locker.Lock, on another server.
type Probe struct {
	c   *plan.Setup
	s   *oldredis.Server
	end time.Time
}

// NewProbe starts a server of its own; Close ends it.
func NewProbe(c *plan.Setup) *Probe {
	return &Probe{c: c, s: oldredis.MustNew(c.Server, oldredis.Options{})}
}

// Close ends the server.
func (p *Probe) Close() { p.s.Close() }

// Free reports whether the client has the lock within Config.Within; of a lock
// of readers and writers, whether either would.
func (p *Probe) Free(snap oldredis.Snapshot) bool {
	for i := range p.c.Clients {
		if p.c.Form() == plan.Members && (i == 0 || p.c.Runs(i) != p.c.Runs(i-1)) && !p.freeFor(snap, i) {
			return false
		}
	}
	return p.c.Form() == plan.Members || p.freeFor(snap, p.c.Clients)
}

// freeFor is free for a client with the algorithm of client like.
func (p *Probe) freeFor(snap oldredis.Snapshot, like int) (ok bool) {
	p.s.Restore(snap)
	p.s.Reap()
	p.end = p.s.Now().Add(p.c.Within)
	defer func() {
		if r := recover(); r != nil {
			if _, late := r.(tooLate); !late {
				panic(r)
			}
			ok = false
		}
	}()
	fresh := &client.Agent{Setup: p.c, ID: 8}
	k := compat.NewOn(compat.Source{Get: p.dial, Bounded: true}, client.Unchecked{Algorithm: fresh.Algorithm(like)},
		compat.Options{
			Clock: waiting{p: p}, Rand: func() float64 { return 0 }, Poll: time.Second, NoRenew: true,
		})
	_, err := k.Lock(context.Background(), p.c.Key, p.c.TTL)
	return err == nil
}

func (p *Probe) dial(context.Context, string) (redis.Conn, error) { return p.s.Dial(), nil }

type tooLate struct{}

// waiting is a clock on which a pause is over as soon as it has begun, and
// time has passed on the server.
type waiting struct {
	clock.Clock
	p *Probe
}

func (w waiting) Now() time.Time                  { return w.p.s.Now() }
func (w waiting) Since(t time.Time) time.Duration { return w.Now().Sub(t) }
func (w waiting) Until(t time.Time) time.Duration { return t.Sub(w.Now()) }

func (w waiting) Timer(d time.Duration) *clock.Timer {
	w.p.s.Advance(d)
	if w.p.s.Now().After(w.p.end) {
		panic(tooLate{})
	}
	t := clock.NewMock().Timer(time.Hour)
	c := make(chan time.Time, 1)
	c <- w.Now()
	t.C = c
	return t
}

func (w waiting) AfterFunc(d time.Duration, f func()) *clock.Timer {
	return clock.NewMock().AfterFunc(d, f)
}
