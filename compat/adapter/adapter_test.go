package adapter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each command with its argument.
func echo(_ context.Context, cmds []protocol.Cmd) ([]any, error) {
	replies := make([]any, len(cmds))
	for i, cmd := range cmds {
		replies[i] = cmd[1]
	}
	return replies, nil
}

// One sends while another receives, as redigo allows: each reply comes once, in order.
func TestOneSendsAnotherReceives(t *testing.T) {
	ended := false
	c := adapter.New(echo, func(broken bool) { ended = !broken })
	const n = 1000
	flushed := make(chan int, n)
	var both sync.WaitGroup
	both.Go(func() {
		defer close(flushed)
		for i := range n {
			c.Send("ECHO", fmt.Sprint(i)) //nolint:errcheck // Flush tells
			if err := c.Flush(); err != nil {
				t.Error(err)
				return
			}
			flushed <- i
		}
	})
	both.Go(func() {
		for i := range flushed {
			if got, err := redis.String(c.Receive()); err != nil || got != fmt.Sprint(i) {
				t.Errorf("reply %d: %q, %v", i, got, err)
			}
		}
	})
	both.Wait()
	if c.Close(); !ended {
		t.Error("it was not returned in order")
	}
}

// A ReceiveContext whose context has ended kills a connection under one that flushes. The client has it
// back when the exchange has ended, as one that is broken.
func TestKilledWhileItFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers, returned := make(chan struct{}), make(chan bool, 1)
		c := adapter.New(func(ctx context.Context, cmds []protocol.Cmd) ([]any, error) {
			<-answers
			return echo(ctx, cmds)
		}, func(broken bool) { returned <- broken })
		c.Send("ECHO", "x") //nolint:errcheck // Flush tells
		flushed := make(chan error, 1)
		go func() { flushed <- c.Flush() }()
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := redis.ReceiveContext(c, over); !errors.Is(err, context.Canceled) {
			t.Errorf("ReceiveContext: %v", err)
		}
		if err := <-flushed; !errors.Is(err, context.Canceled) || protocol.OutcomeOf(err) != protocol.Unknown {
			t.Errorf("Flush: %v, want that it was ended, with an unknown outcome", err)
		}
		if c.Err() == nil {
			t.Error("it can still be used")
		}
		c.Close()
		synctest.Wait()
		select {
		case <-returned:
			t.Error("the client has it back while the exchange is under way")
		default:
		}
		close(answers)
		if broken := <-returned; !broken {
			t.Error("the client takes it for a good one")
		}
	})
}

// An Exchange that was not sent says nothing of those before it in the same step: a lock that was taken, but for
// its TTL, is undone, or may have been taken.
func TestSecondExchangeIsNotSent(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	full := errors.New("no connection is free")
	lost := false
	source := compat.Source{Bounded: true, Get: func(context.Context, string) (redis.Conn, error) {
		c := s.Dial()
		return adapter.New(func(ctx context.Context, cmds []protocol.Cmd) ([]any, error) {
			if cmds[0][0] == "EXPIRE" && !lost {
				lost = true
				return nil, protocol.NotSent.Mark(full)
			}
			return protocol.NewConn(c).Pipe(cmds...)
		}, func(bool) { c.Close() }), nil
	}}
	l, err := compat.NewOn(source, txlock.Classic{}, compat.Options{}).TryLock(context.Background(), "k", time.Minute)
	if !lost {
		t.Fatal("no Exchange had an EXPIRE first")
	}
	c := s.Dial()
	defer c.Close()
	v, _ := redis.String(c.Do("GET", "k"))
	switch {
	case l != nil && l.Token() == v:
	case l == nil && (v == "" || errors.Is(err, compat.ErrUnknown)):
	default:
		t.Errorf("lock %v, %v; the key holds %q", l, err, v)
	}
}

// A step whose first Exchange was not sent did nothing, and says so: nobody looks for what it left.
func TestFirstExchangeIsNotSent(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	full, asked := errors.New("no connection is free"), 0
	source := compat.Source{Bounded: true, Get: func(context.Context, string) (redis.Conn, error) {
		return adapter.New(func(ctx context.Context, cmds []protocol.Cmd) ([]any, error) {
			asked++
			return nil, protocol.NotSent.Mark(full)
		}, func(bool) {}), nil
	}}
	for _, a := range []protocol.Algorithm{txlock.Classic{}, txlock.Renamed{}, getsetlock.ListCAS{}} {
		asked = 0
		_, err := compat.NewOn(source, unchecked{a}, compat.Options{}).TryLock(context.Background(), "k", time.Minute)
		if protocol.OutcomeOf(err) != protocol.NotSent || errors.Is(err, compat.ErrUnknown) || asked != 1 {
			t.Errorf("%T: %v after %d exchanges, want NotSent after 1", a, err, asked)
		}
	}
	if n, _ := redis.Int(s.Dial().Do("DBSIZE")); n != 0 {
		t.Errorf("%d keys", n)
	}
}

type unchecked struct{ protocol.Algorithm }

func (u unchecked) Traits() protocol.Traits {
	t := u.Algorithm.Traits()
	t.Check = nil
	return t
}
