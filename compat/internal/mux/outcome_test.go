package mux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// A shaky connection leads to a server that answers each command with its key. It writes and reads slowly, and breaks
// sometimes.
type shaky struct {
	*silent
	draw    *rand.Rand // used by the reading goroutine alone
	written func(key string)
	keys    []string
}

func (c *shaky) Send(_ string, args ...any) error {
	c.keys = append(c.keys, args[0].(string))
	return nil
}

func (c *shaky) Flush() error {
	for _, key := range c.keys {
		c.written(key)
		c.answers <- key
	}
	c.keys = nil
	time.Sleep(time.Millisecond)
	return nil
}

func (c *shaky) Receive() (any, error) {
	select {
	case key := <-c.answers:
		time.Sleep(time.Duration(c.draw.IntN(2)) * time.Millisecond)
		if c.draw.IntN(40) == 0 {
			return nil, io.EOF
		}
		return key, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

// Callers give up at any moment, and connections break at any moment. Each caller gets its own replies, or an error in
// time. A message that was not sent was not written, and no message is written twice.
func TestOutcomes(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) { outcomes(t, seed) })
	}
}

func outcomes(t *testing.T, seed uint64) {
	var written sync.Map
	var conns, answered atomic.Uint64
	p := &Pool{Most: 2, Whole: func() bool { return true }, Borrow: func(context.Context, string) (redis.Conn, error) {
		return &shaky{silent: newSilent(), draw: rand.New(rand.NewPCG(seed, conns.Add(1))), written: func(key string) {
			if _, again := written.LoadOrStore(key, true); again {
				t.Errorf("seed %d: %s was written twice", seed, key)
			}
		}}, nil
	}}
	var all sync.WaitGroup
	for caller := range uint64(20) {
		draw := rand.New(rand.NewPCG(seed, 1000+caller))
		all.Go(func() {
			for i := range 40 {
				within, began := time.Duration(1+draw.IntN(40))*time.Millisecond, time.Now()
				step := p.Step("")
				key := fmt.Sprint(caller, " ", i)
				for n := range draw.IntN(3) {
					step.Send("EVAL", fmt.Sprint(key, " ", n)) //nolint:errcheck // nothing is sent before Do
				}
				got, err := doWithin(&step, draw.IntN(4), within, key)
				if took := time.Since(began); took > within {
					t.Errorf("seed %d: %s took %v, want at most %v", seed, key, took, within)
				}
				if err == nil {
					answered.Add(1)
				}
				_, sent := written.Load(key)
				if err == nil && got != key || errors.Is(err, ErrNotSent) != step.Unsent() || step.Unsent() && sent {
					t.Errorf("seed %d: %s got %v, %v; written: %t", seed, key, got, err, sent)
				}
			}
		})
	}
	all.Wait()
	p.Close()
	time.Sleep(time.Second) // the last reads and writes end
	if n := answered.Load(); n < 200 {
		t.Errorf("seed %d: %d of 800 messages were answered, want at least 200", seed, n)
	}
}

// doWithin runs a command with one of the four limits that a caller can have.
func doWithin(step *Step, how int, within time.Duration, key string) (any, error) {
	if how == 0 {
		return step.DoWithTimeout(within, "EVAL", key)
	}
	ctx := context.Background()
	var stop func()
	switch how {
	case 1:
		ctx, stop = context.WithCancel(ctx)
		time.AfterFunc(within, stop)
	case 2:
		ctx, stop = limit.Within(ctx, limit.Real, within)
	default:
		ctx, stop = context.WithTimeout(ctx, within)
	}
	defer stop()
	return step.DoContext(ctx, "EVAL", key)
}
