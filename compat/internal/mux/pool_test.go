package mux

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// The Pool makes another connection beside busy ones. Its Dial holds up no caller, even if it hangs. Close
// cancels the Dial.
func TestGrowingHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newSilent()
		var dials, ended atomic.Int32
		p := &Pool{Most: 2, Whole: func() bool { return true }, Borrow: func(ctx context.Context, _ string) (redis.Conn, error) {
			if dials.Add(1) == 1 {
				return first, nil
			}
			<-ctx.Done()
			ended.Add(1)
			return nil, ctx.Err()
		}}
		var all sync.WaitGroup
		for i := range crowded + 3 {
			if i == crowded {
				synctest.Wait() // until all of them wait
			}
			all.Go(func() {
				began := time.Now()
				if _, _, err := p.do(context.Background(), say("GET", "k"), time.Minute, nil); err != nil || time.Since(began) != time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		}
		time.Sleep(time.Second)
		for range crowded + 3 {
			first.answers <- "v"
		}
		all.Wait()
		if n := dials.Load(); n != 2 {
			t.Errorf("%d Dials, want a second one for so many", n)
		}
		p.Close()
		synctest.Wait()
		if ended.Load() != 1 {
			t.Error("a Dial goes on after Close")
		}
	})
}

// The wait for a connection shortens the wait for the replies.
func TestOnePatienceForAll(t *testing.T) {
	for name, command := range map[string]string{"shared": "GET", "of its own": "BLPOP"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var own time.Duration
				p := &Pool{Most: 1, Whole: func() bool { return true }, Borrow: func(context.Context, string) (redis.Conn, error) {
					time.Sleep(600 * time.Millisecond)
					return &timed{silent: newSilent(), limit: &own}, nil
				}}
				s := p.Step("k")
				began := time.Now()
				_, err := s.DoWithTimeout(time.Second, command, "k")
				if took := time.Since(began); !errors.Is(err, limit.ErrTimeout) || took+own != time.Second {
					t.Errorf("after %v and %v: %v, want ErrTimeout after a second", took, own, err)
				}
				p.Close()
				synctest.Wait()
			})
		})
	}
}

// A timed connection reports the limits of its waits.
type timed struct {
	*silent
	limit *time.Duration
}

func (c *timed) DoWithTimeout(d time.Duration, _ string, _ ...any) (any, error) {
	*c.limit = d
	return nil, limit.ErrTimeout
}

// A Dial that ends with the patience of its step gives the error to this step only, and not as the caller's own end.
func TestADialThatWasGivenUpIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newSilent()
		var dials atomic.Int32
		p := &Pool{Most: 1, Whole: func() bool { return true }, Borrow: func(ctx context.Context, _ string) (redis.Conn, error) {
			if dials.Add(1) > 1 {
				return c, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		var all sync.WaitGroup
		all.Go(func() {
			if _, _, err := p.do(context.Background(), say("GET", "k"), time.Second, nil); !errors.Is(err, limit.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("whose patience ended: %v, want ErrTimeout", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if _, _, err := p.do(context.Background(), say("GET", "k"), time.Minute, nil); err != nil {
				t.Errorf("who has more patience: %v", err)
			}
		})
		time.Sleep(2 * time.Second)
		c.answers <- "v"
		all.Wait()
		p.Close()
		synctest.Wait()
	})
}

// No step fails when connections end all the time, for their age or for another dead one: the Pool has or makes
// another connection.
func TestEndsBesideSteps(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	p := &Pool{Most: 2, Whole: func() bool { return true }, Borrow: func(context.Context, string) (redis.Conn, error) { return s.Dial(), nil }}
	var over atomic.Bool
	var steps, ends sync.WaitGroup
	for i, end := range []func(*Conn){(*Conn).Retire, func(c *Conn) { c.mu.Lock(); c.retireAged(); c.endIfIdle(); c.mu.Unlock() }} {
		ends.Go(func() {
			for !over.Load() {
				if c, _, err := p.Get(context.Background(), 0); err != nil {
					t.Errorf("Get %d: %v", i, err)
				} else {
					end(c)
				}
			}
		})
	}
	for range 4 {
		steps.Go(func() {
			for range 1000 {
				step := p.Step("k")
				if _, err := step.DoWithTimeout(time.Minute, "PING"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	steps.Wait()
	over.Store(true)
	ends.Wait()
	p.Close()
}

// A connection to a server that can't serve us is shared no more.
func TestElsewhereIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		p := &Pool{Most: 1, Whole: func() bool { return true }, Borrow: func(context.Context, string) (redis.Conn, error) {
			c := newSilent()
			if dials.Add(1) == 1 {
				c.answers <- redis.Error("READONLY You can't write against a read only replica.")
			} else {
				c.answers <- "OK"
			}
			return c, nil
		}}
		for i, want := range []any{redis.Error("READONLY You can't write against a read only replica."), "OK"} {
			replies, _, err := p.do(context.Background(), say("SET", "k"), time.Minute, nil)
			if err != nil || len(replies) != 1 || replies[0] != want {
				t.Errorf("message %d: %v, %v", i+1, replies, err)
			}
		}
		p.Close()
		synctest.Wait()
	})
}

// A connection with a reply that no server gives to its command is out of step: its next replies may belong to other
// commands. The messages behind get none of them, and later messages go over another connection.
func TestOutOfStepIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := []*silent{newSilent(), newSilent()}
		p := &Pool{Most: 1, Whole: func() bool { return true }}
		p.Borrow = func(context.Context, string) (c redis.Conn, err error) {
			c, conns = conns[0], conns[1:]
			return c, nil
		}
		first, second := conns[0], conns[1]
		setnx := func(i int, want any) {
			step := p.Step("k")
			w := wire.Conn{Conn: &step}
			w.Begin(limit.Timed(context.Background(), limit.Real, time.Minute))
			if reply, err := w.Do("SETNX", "k", "v"); reply != want || (err == nil) != (want != nil) {
				t.Errorf("message %d: %v, %v, want %v", i, reply, err, want)
			}
			w.Return()
		}
		var all sync.WaitGroup
		for i := range 2 {
			all.Go(func() { setnx(i, nil) })
			synctest.Wait()
		}
		for _, reply := range []any{"PONG", int64(1), int64(0)} { // nobody has asked for the first
			first.answers <- reply
		}
		all.Wait()
		second.answers <- int64(0)
		setnx(2, int64(0))
		p.Close()
		synctest.Wait()
	})
}

// A borrowed connection that breaks in the middle of a Step's commands may have sent the first ones.
func TestBrokeInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pool{Most: 1, Whole: func() bool { return true }, Borrow: func(context.Context, string) (redis.Conn, error) {
			return breaking{newSilent()}, nil
		}}
		s := p.Step("k")
		s.Send("SET", "k", "v") //nolint:errcheck // nothing is sent before Do
		if _, err := s.Do("WATCH", "k"); err == nil || s.Unsent() {
			t.Errorf("it broke (%v) and claims to have written nothing", err)
		}
		s.Close()
	})
}

// A breaking connection breaks in each Send.
type breaking struct{ *silent }

func (breaking) Send(string, ...any) error { return net.ErrClosed }
