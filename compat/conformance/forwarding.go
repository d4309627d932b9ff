package conformance

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
)

// embedding forwards by being one.
type embedding struct{ protocol.Algorithm }

// forwarding puts the algorithm into a wrapper that only forwards: it stays the same lock. It is shared as that is, and
// sends the same commands in the same writes: it is checked, pinned, extended in a batch, handed off and repaired like
// it.
func (c *suite) forwarding(t testing.TB) {
	ctx := within(t)
	c.conduct(t, ctx, "warm", c.algorithm) // the server knows its scripts from here on
	want := c.conduct(t, ctx, "plain", c.algorithm)
	if got := c.conduct(t, ctx, "embedded", embedding{c.algorithm}); got != want {
		t.Errorf("embedded it behaves as %+v, want %+v", got, want)
	}
}

// conduct is what tells one lock from another, to its server.
type conduct struct {
	shared, rotates bool
	writes          int
	sent            string
}

// conduct takes two pinned keys and two others, renews the latter together, hands one off, releases all, and repairs a
// key.
func (c *suite) conduct(t testing.TB, ctx context.Context, name string, a protocol.Algorithm) (is conduct) {
	source, net, mock := c.Sources[0], new(faulty.Network), now()
	source.Keep = 2
	b := compat.NewBackend(over(net)(source), a)
	can := b.Abilities()
	is.shared, is.rotates = can.Shared, can.Rotates
	o := c.options()
	o.Clock, o.NoRenew = mock, false
	events := newEvents()
	o.Observer = events.Observe
	k := compat.NewLocker(b, o)
	var locks []*compat.Lock
	for i := range 4 {
		lock := c.taken(t, ctx, k, c.key("forwarding-"+name+string(rune('0'+i))), time.Minute)
		locks = append(locks, lock)
	}
	for _, lock := range locks[:2] { // one by one: those that pin are renewed at once, in any order
		must.Do(t, lock.Extend(ctx, 3*time.Minute))
	}
	events.forget()
	mock.Add(27 * time.Second)
	events.await(t, 2, compat.EventExtended, compat.EventFailed)
	locks[2].Token() // that is known cannot be handed off
	if next, err := locks[2].Handoff(ctx, time.Minute); err == nil {
		locks[2] = next
	} else if !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%s: Handoff: %v", name, err)
	}
	for _, lock := range locks {
		if err := lock.Release(ctx); err != nil {
			t.Errorf("%s: Release: %v", name, err)
		}
	}
	key := c.prefix + c.key("forwarding-"+name+"-dead")
	must.Get(do(ctx, source, key, "SET", key, protocol.NewToken()))(t)
	st, err := b.Inspect(ctx, mock.Now, key)
	if err == nil {
		err = b.Repair(ctx, mock.Now, st, 20*time.Second)
	}
	if err != nil && !errors.Is(err, compat.ErrHeld) {
		t.Errorf("%s: Repair: %v", name, err)
	}
	for _, m := range net.Sent() {
		if m.Name == "UNWATCH" { // sent in the background, at any moment
			continue
		}
		if m.At == 0 {
			is.writes++
		}
		is.sent += " " + m.Name
	}
	return is
}

// now returns a mock clock at the present.
func now() *clock.Mock {
	mock := clock.NewMock()
	mock.Set(time.Now().Round(0)) // no monotonic reading: it is not the computer's clock
	return mock
}

// events is an Observer that can be waited for.
type events chan compat.Event

// newEvents returns a queue with room for every event between two looks.
func newEvents() events { return make(events, 4096) }

func (e events) Observe(event compat.Event) { e <- event }

func (e events) forget() {
	for len(e) > 0 {
		<-e
	}
}

// await waits for n events of these kinds.
func (e events) await(t testing.TB, n int, kinds ...compat.Kind) {
	t.Helper()
	for came := 0; came < n; {
		select {
		case event := <-e:
			if slices.Contains(kinds, event.Kind) {
				came++
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d events %v came", came, n, kinds)
		}
	}
}

// wait waits for events until so, or until none has come for a while.
func (e events) wait(idle time.Duration, so func() bool) {
	for !so() {
		select {
		case <-e:
		case <-time.After(idle):
			return
		}
	}
}

// A line is of those that wait for a connection: how many came, and how many of them have gone.
type line struct {
	came, gone atomic.Int64
	news       chan struct{}
}

func (l *line) count(n *atomic.Int64) {
	n.Add(1)
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// until waits until the line is so, or ended has a value.
func (l *line) until(ctx context.Context, t testing.TB, ended <-chan error, so func(came, gone int64) bool) (err error, over bool) {
	for !so(l.came.Load(), l.gone.Load()) {
		select {
		case err := <-ended:
			return err, true
		case <-l.news:
		case <-ctx.Done():
			t.Fatalf("%d came for a connection, %d have gone, and it goes on for ever", l.came.Load(), l.gone.Load())
		}
	}
	return nil, false
}

// narrow gives a source one connection; the others join the line.
func narrow(l *line) func(compat.Source) compat.Source {
	free, net := make(chan struct{}, 1), new(faulty.Network)
	net.OnDial(func(ctx context.Context) error {
		select {
		case free <- struct{}{}:
			return nil
		default:
		}
		l.count(&l.came)
		defer l.count(&l.gone)
		select {
		case free <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	net.OnClose(func() { <-free })
	return func(s compat.Source) compat.Source {
		s.Idle, s.Keep = nil, 0 // it is no promise here
		return over(net)(s)
	}
}
