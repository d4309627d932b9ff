package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
)

// limits asks for ttls of no lease: each is ErrInvalid, and nothing is sent.
func (c *suite) limits(t testing.TB) {
	ctx := within(t)
	key, net := c.key("limits"), new(faulty.Network)
	k := c.New(over(net), c.options())
	lock := c.taken(t, ctx, k, key, patient)
	until, other := lock.Until(), c.key("limits-free")
	net.Expect(nil)
	for _, ttl := range []time.Duration{0, -1, -time.Second, math.MinInt64, time.Millisecond, 2 * time.Millisecond, math.MaxInt64} {
		_, locked := k.Lock(ctx, other, ttl)
		_, tried := k.TryLock(ctx, other, ttl)
		_, adopted := k.Adopt(ctx, key, "any", ttl)
		_, handed := lock.Handoff(ctx, ttl)
		done := k.Do(ctx, other, ttl, func(context.Context) error { return nil })
		for step, err := range map[string]error{
			"Lock": locked, "TryLock": tried, "Adopt": adopted, "Handoff": handed, "Do": done, "Extend": lock.Extend(ctx, ttl),
		} {
			want(t, fmt.Sprintf("%s with a ttl of %v", step, ttl), err, compat.ErrInvalid)
		}
	}
	for _, m := range net.Sent() {
		if m.Name != "UNWATCH" { // of a connection that goes back to its pool behind the acquisition
			t.Errorf("%s was sent for a ttl that makes no lease", m.Name)
		}
	}
	if st, err := c.client().Inspect(ctx, key); err != nil || !st.Holds(lock.Token()) || !lock.Until().Equal(until) {
		t.Errorf("after it: %+v, %v, until %v; want it held until %v", st, err, lock.Until(), until)
	}
	release(t, ctx, lock)
}

// oneConnection needs no more than a pool of one connection, for every step. While another client has it, a step ends
// with ErrTimeout, after Options.Timeout, and nothing is taken.
func (c *suite) oneConnection(t testing.TB) {
	ctx := within(t)
	key, mock, waits := c.key("one-connection"), now(), &line{news: make(chan struct{}, 1)}
	o := c.options()
	o.Clock, o.Timeout = mock, 2*time.Second
	var sources []compat.Source
	k := c.New(func(s compat.Source) compat.Source {
		s = narrow(waits)(s)
		sources = append(sources, s)
		return s
	}, o)
	lock, err := c.take(ctx, k, key, patient)
	if err == nil {
		err = lock.Extend(ctx, patient)
	}
	if err == nil {
		err = lock.Release(ctx) // before anything else: it may have pinned the connection
	}
	if err == nil {
		_, err = k.Inspect(ctx, key)
	}
	if err != nil {
		t.Fatalf("with one connection: %v", err)
	}
	for _, s := range sources {
		conn, err := s.Get(ctx, c.prefix+key)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	contexts := []context.Context{ctx}
	if c.algorithm != nil { // what is made of several has limits of its own
		contexts = append(contexts, context.Background())
	}
	for _, asked := range contexts {
		ended := make(chan error, 1)
		go func() {
			_, err := k.TryLock(asked, key, patient)
			ended <- err
		}()
		// Time goes on when each server that is asked at once keeps somebody waiting, and not again
		// before all of them have been told that theirs was up: however busy the machine is.
		err, over := waits.until(ctx, t, ended, func(came, gone int64) bool { return came-gone >= int64(len(sources)) })
		for !over {
			came := waits.came.Load()
			mock.Add(o.Timeout)
			if err, over = waits.until(ctx, t, ended, func(_, gone int64) bool { return gone >= came }); !over {
				err, over = waits.until(ctx, t, ended, func(came, gone int64) bool { return came > gone })
			}
		}
		if !errors.Is(err, compat.ErrTimeout) || errors.Is(err, context.Canceled) || errors.Is(err, compat.ErrUnknown) {
			t.Errorf("TryLock without a connection: %v, want ErrTimeout", err)
		}
		waits.until(ctx, t, nil, func(came, gone int64) bool { return came == gone }) //nolint:errcheck // who waited may go after who asked
	}
	if st, err := c.client().Inspect(ctx, key); err != nil || st.Value != "" {
		t.Errorf("after that: %+v, %v; want a free key", st, err)
	}
}

// closing closes a client: Close releases every lock, ends every wait and every context, and nothing can be taken any
// more.
func (c *suite) closing(t testing.TB) {
	ctx := within(t)
	o := c.options()
	o.NoRenew = false
	k := c.New(plain, o)
	held := c.taken(t, ctx, c.rival(), c.key("closing-held"), patient)
	var locks []*compat.Lock
	for _, name := range []string{"closing-1", "closing-2"} {
		lock := c.taken(t, ctx, k, c.key(name), patient)
		locks = append(locks, lock)
	}
	waited := make(chan error, 1)
	go func() {
		_, err := k.Lock(ctx, c.key("closing-held"), patient)
		waited <- err
	}()
	if err := k.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	want(t, "a wait ended by Close", <-waited, compat.ErrClosed)
	for i, lock := range locks {
		if lock.Context().Err() == nil {
			t.Errorf("the context of lock %d outlives Close", i)
		}
		want(t, "Release after Close", lock.Release(ctx), compat.ErrReleased)
		if st, err := c.client().Inspect(ctx, c.key([]string{"closing-1", "closing-2"}[i])); err != nil || st.Value != "" {
			t.Errorf("after Close: %+v, %v; want a free key", st, err)
		}
	}
	release(t, ctx, held)
	_, tried := k.TryLock(ctx, c.key("closing-1"), patient)
	_, locked := k.Lock(ctx, c.key("closing-1"), patient)
	_, adopted := k.Adopt(ctx, c.key("closing-1"), "any", patient)
	for step, err := range map[string]error{"TryLock": tried, "Lock": locked, "Adopt": adopted} {
		want(t, step+" after Close", err, compat.ErrClosed)
	}
}
