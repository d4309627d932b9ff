package redlock_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A member is a server of a quorum: its version, and the algorithm it has.
type member struct {
	version string
	algo    protocol.Algorithm
}

// fleet is one of each age.
var fleet = []member{
	{"2.0", getsetlock.Classic{}},
	{"2.2", txlock.Guarded{}},
	{"2.4", txlock.Renamed{}},
	{"2.6", txlock.Renamed{Options: txlock.Options{Millis: true}}},
	{"7.0", setlock.Lua{}},
}

// stamps is a fleet whose values change with each extension.
var stamps = []member{
	{"2.4", getsetlock.Guarded{}}, {"2.4", getsetlock.Guarded{}}, {"2.4", getsetlock.Guarded{}},
	{"2.4", getsetlock.Guarded{}}, {"2.4", getsetlock.Guarded{}},
}

var background = context.Background()

const ttl = 10 * time.Second

// A world is the servers of a fleet and the wires to them, on one mock clock.
type world struct {
	t       *testing.T
	clock   *clock.Mock
	members []member
	servers []*oldredis.Server
}

func newWorld(t *testing.T, members []member) *world {
	w := &world{t: t, clock: clock.NewMock(), members: members}
	w.clock.Set(time.Date(2014, 9, 23, 12, 0, 0, 0, time.UTC))
	t.Cleanup(func() { // what is cleaned in the background has its time
		for range 20 {
			w.clock.Add(50 * time.Millisecond)
		}
	})
	for _, m := range members {
		s := must.Get(oldredis.New(m.version, oldredis.Options{Clock: w.clock}))(t)
		t.Cleanup(func() { s.Close() })
		w.servers = append(w.servers, s)
	}
	return w
}

// quorum is a client's own, with wires of its own.
func (w *world) quorum(o redlock.Options) (*redlock.Quorum, []*wire) {
	o.Clock = w.clock
	var servers []compat.Backend
	var wires []*wire
	for i, m := range w.members {
		wires = append(wires, &wire{server: w.servers[i]})
		servers = append(servers, compat.NewBackend(wires[i].source(), m.algo))
	}
	return redlock.New(servers, o), wires
}

// alike is a world of n servers of today, and a client.
func alike(t *testing.T, n int, o redlock.Options) (*world, *redlock.Quorum, []*wire) {
	w := newWorld(t, slices.Repeat([]member{fleet[4]}, n))
	q, wires := w.quorum(o)
	return w, q, wires
}

// warm is alike when the client has checked the servers.
func warm(t *testing.T, n int, o redlock.Options) (*world, *redlock.Quorum, []*wire) {
	w, q, wires := alike(t, n, o)
	w.acquire(q, "warm")
	return w, q, wires
}

func (w *world) acquire(q *redlock.Quorum, key string) compat.Grant {
	w.t.Helper()
	return must.Get(q.Acquire(background, w.clock.Now, key, ttl))(w.t)
}

// values is what each server holds, by position, "" for nothing.
func (w *world) values(key string) []string {
	w.t.Helper()
	values := make([]string, len(w.servers))
	for i, s := range w.servers {
		c := s.Dial()
		v, err := redis.String(c.Do("GET", key))
		c.Close()
		if err != nil && err != redis.ErrNil {
			w.t.Fatal(err)
		}
		values[i] = v
	}
	return values
}

// held is a mark for each server: x for one that holds key, - for one that does not.
func (w *world) held(key string) string {
	w.t.Helper()
	marks := ""
	for _, v := range w.values(key) {
		marks += map[bool]string{true: "-", false: "x"}[v == ""]
	}
	return marks
}

func (w *world) wantHeld(key, marks string) {
	w.t.Helper()
	if got := w.held(key); got != marks {
		w.t.Errorf("%q is on %s, want %s", key, got, marks)
	}
}

// do sends one command of an onlooker to the i-th server.
func (w *world) do(i int, name string, args ...any) {
	w.t.Helper()
	c := w.servers[i].Dial()
	defer c.Close()
	must.Get(c.Do(name, args...))(w.t)
}

// in runs f beside the test, lets time pass in steps, each when nothing is left to do without it, and
// waits for f. The test runs in a bubble.
func (w *world) in(f func(), steps ...step) {
	w.t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	for i, s := range steps {
		synctest.Wait()
		if !s.when() {
			w.t.Fatalf("step %d: it never came to be", i)
		}
		w.clock.Add(s.pass)
	}
	synctest.Wait()
	select {
	case <-done:
	default:
		w.t.Fatal("it does not end")
	}
}

// untilLocked lets time pass until a client of q has the lock of "job", which is
// not before d has passed. q needs a long Timeout: time here passes while servers
// answer.
func (w *world) untilLocked(q *redlock.Quorum, d time.Duration) {
	w.t.Helper()
	k := compat.NewLocker(q, compat.Options{NoRenew: true, Clock: w.clock, Timeout: time.Hour})
	done := make(chan error, 1)
	go func() {
		_, err := k.Lock(background, "job", ttl)
		done <- err
	}()
	start := w.clock.Now()
	for w.clock.Since(start) < time.Hour {
		select {
		case err := <-done:
			if took := w.clock.Since(start); err != nil || took < d {
				w.t.Errorf("%v, after %v; want a lock after %v", err, took, d)
			}
			return
		default:
			w.clock.Add(50 * time.Millisecond)
			synctest.Wait()
		}
	}
	w.t.Fatal("an hour has passed")
}

// A step of time, before which something must have come to be.
type step struct {
	when func() bool
	pass time.Duration
}

// eventually waits for a condition.
func eventually(t *testing.T, so func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("it never came to be")
		}
	}
}

// What becomes of a command.
var (
	lost         = faulty.Fate{Loss: faulty.LostRequest}
	unanswered   = faulty.Fate{Loss: faulty.LostReply}
	hangs        = faulty.Fate{Before: faulty.Forever}
	runsAndHangs = faulty.Fate{After: faulty.Forever}
)

// dies takes the server away with what meets the fate.
func dies(f faulty.Fate) faulty.Fate {
	f.Cut = true
	return f
}

// A wire is the network before one server.
type wire struct {
	faulty.Network
	server compat.Pool
}

// GetContext heeds no context: it has ended when a dial that does not either comes to its end.
func (w *wire) GetContext(ctx context.Context) (redis.Conn, error) {
	return w.server.GetContext(context.WithoutCancel(ctx))
}

// source is that of the wire. It says that it is prompt, so that a dial that heeds no context
// holds up the quorum's step: the engine is not to come to its help.
func (w *wire) source() compat.Source {
	s := compat.Pooled(w.Pool(w))
	s.Bounded = true
	return s
}

// rest reports whether all that were asked have answered, but those that hang.
func rest(wires []*wire) bool {
	return !slices.ContainsFunc(wires, func(w *wire) bool { return w.Open() > w.Hanging() })
}

func (w *wire) hangs() bool { return w.Hanging() > 0 }

// ran reports whether the command name on key was sent.
func (w *wire) ran(name, key string) bool {
	return slices.ContainsFunc(w.Sent(), func(m faulty.Message) bool { return m.Name == name && m.Args[0] == key })
}
