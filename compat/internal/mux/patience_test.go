package mux

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// silent imitates a server that answers on request only.
type silent struct {
	answers chan any
	closed  chan struct{}
}

func newSilent() *silent { return &silent{make(chan any, 99), make(chan struct{}, 1)} }

func (s *silent) Close() error { s.end(); return nil }
func (s *silent) Err() error   { return nil }

func (s *silent) Do(string, ...any) (any, error) { s.end(); return nil, net.ErrClosed }

func (s *silent) Send(string, ...any) error { return nil }
func (s *silent) Flush() error              { return nil }

func (s *silent) Receive() (any, error) {
	select {
	case a := <-s.answers:
		return a, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *silent) DoContext(context.Context, string, ...any) (any, error) { return s.Do("") }
func (s *silent) ReceiveContext(context.Context) (any, error)            { s.end(); return nil, net.ErrClosed } // as redigo, when it is killed
func (s *silent) ReceiveWithTimeout(time.Duration) (any, error)          { return s.Receive() }

func (s *silent) end() {
	select {
	case s.closed <- struct{}{}:
	default:
	}
}

// Each caller waits for its own patience and no longer. No other caller gets a late reply.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilent()
		c := New(s)
		began := time.Now()
		type outcome struct {
			took time.Duration
			got  any
			err  error
		}
		ask := func(patience time.Duration) <-chan outcome {
			done := make(chan outcome, 1)
			go func() {
				replies, err := c.Do(context.Background(), patience, say("GET", "k"))
				o := outcome{took: time.Since(began), err: err}
				if err == nil {
					o.got = replies[0]
				}
				done <- o
			}()
			synctest.Wait()
			return done
		}
		long, short, never := ask(900*time.Millisecond), ask(300*time.Millisecond), ask(0)
		if o := <-short; !errors.Is(o.err, limit.ErrTimeout) || errors.Is(o.err, ErrNotSent) || o.took != 300*time.Millisecond {
			t.Errorf("patience of 300 ms: %v after %v", o.err, o.took)
		}
		if _, ok := c.load(); ok {
			t.Error("a connection on which somebody waited in vain takes new messages")
		}
		s.answers <- "the first's"
		if o := <-long; o.err != nil || o.got != "the first's" {
			t.Errorf("patience of 900 ms: %v, %v", o.got, o.err)
		}
		s.answers <- "the second's, who is gone"
		s.answers <- "the third's"
		if o := <-never; o.err != nil || o.got != "the third's" {
			t.Errorf("no limit: %v, %v", o.got, o.err)
		}
		synctest.Wait()
		if c.err == nil || len(s.closed) == 0 && !c.shutting {
			t.Error("the connection is not at its end when nobody waits for it any more")
		}
	})
}

// Callers give up at any moment, also while a reply is being read. Each caller gets its own reply in time, or an
// error at the end of its patience. A caller that waits longer is not disturbed.
func TestPatienceInAnyOrder(t *testing.T) {
	for seed := range uint64(2000) {
		synctest.Test(t, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(seed, 1))
			s := newSilent()
			c := New(s)
			began := time.Now()
			var all sync.WaitGroup
			var last time.Duration
			var answers []time.Duration
			for i := range 1 + draw.IntN(5) {
				patience := time.Duration(draw.IntN(5)) * 100 * time.Millisecond
				due := last + time.Duration(draw.IntN(3))*100*time.Millisecond
				last, answers = due, append(answers, due)
				all.Go(func() {
					replies, err := c.Do(context.Background(), patience, say("GET", "k"))
					took := time.Since(began)
					got := fmt.Sprint(replies)
					answered := err == nil && got == fmt.Sprintf("[%d]", i) && took == due
					slow := errors.Is(err, limit.ErrTimeout) && !errors.Is(err, ErrNotSent) && took == patience
					switch {
					case patience > 0 && due > patience && slow:
					case (patience == 0 || due < patience) && answered:
					case due == patience && (answered || slow):
					default:
						t.Errorf("seed %d: the reply of %d came after %v, its patience was %v: it got %v, %v after %v", seed, i, due, patience, got, err, took)
					}
				})
				synctest.Wait() // the callers write in order
			}
			for i, due := range answers {
				time.Sleep(due - time.Since(began))
				s.answers <- fmt.Sprint(i)
			}
			all.Wait()
			c.Close()
		})
	}
}

// A server that reads nothing holds up a caller no longer than the caller waits, even if other callers wait for longer.
func TestEndWhileWriting(t *testing.T) {
	const within = 300 * time.Millisecond
	for name, wait := range map[string]func(*Conn) error{
		"patience": func(c *Conn) error {
			_, err := c.Do(context.Background(), within, say("GET", "k"))
			return err
		},
		"limit": func(c *Conn) error {
			ctx, stop := limit.Within(context.Background(), limit.Real, within)
			defer stop()
			_, err := c.Do(ctx, 0, say("GET", "k"))
			return err
		},
		"deadline": func(c *Conn) error {
			ctx, stop := context.WithTimeout(context.Background(), within)
			defer stop()
			if _, err := c.Do(ctx, 0, say("GET", "k")); err != context.DeadlineExceeded {
				return err
			}
			return limit.ErrTimeout
		},
	} {
		for _, alone := range []bool{true, false} { // alone it writes itself
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				defer there.Close()
				c := New(redis.NewConn(here, 0, 0))
				began, before, done, behind := time.Now(), make(chan error, 1), make(chan error, 1), make(chan error, 1)
				patient := func(done chan error) {
					_, err := c.Do(context.Background(), time.Minute, say("GET", "k"))
					done <- err
				}
				if !alone {
					go patient(before)
					there.Read(make([]byte, 100)) //nolint:errcheck // a message, and no more
				}
				go func() { done <- wait(c) }()
				synctest.Wait()
				go patient(behind)
				if err, took := <-done, time.Since(began); !errors.Is(err, limit.ErrTimeout) || errors.Is(err, ErrNotSent) || took != within {
					t.Errorf("%s, alone %v: %v after %v, want ErrTimeout after %v", name, alone, err, took, within)
				}
				want := within
				if !alone {
					want = time.Minute
					if err, took := <-before, time.Since(began); !errors.Is(err, limit.ErrTimeout) || errors.Is(err, ErrNotSent) || took != want {
						t.Errorf("%s: the first: %v after %v, want ErrTimeout after %v", name, err, took, want)
					}
				}
				if err, took := <-behind, time.Since(began); !errors.Is(err, ErrNotSent) || took != want {
					t.Errorf("%s, alone %v: behind it: %v after %v, want ErrNotSent after %v", name, alone, err, took, want)
				}
				synctest.Wait()
			})
		}
	}
}

// A connection takes no new messages after its age without a reply, even if its callers wait longer.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilent()
		c := New(s)
		done := make(chan error, 1)
		go func() {
			_, err := c.Do(context.Background(), time.Hour, say("GET", "k"))
			done <- err
		}()
		time.Sleep(age - time.Millisecond)
		if _, ok := c.load(); !ok {
			t.Error("retired too soon")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if _, ok := c.load(); ok {
			t.Error("a silent connection takes new messages")
		}
		s.answers <- "late"
		if err := <-done; err != nil {
			t.Errorf("its reply: %v", err)
		}
		synctest.Wait()
	})
}

// An idle connection goes back when its age comes. None of its timers fires after that.
func TestIdleIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilent()
		c := New(s)
		s.answers <- "v"
		m := say("GET", "k")
		m.pool = new(sync.Pool)
		if _, err := c.Do(context.Background(), time.Minute, m); err != nil {
			t.Fatal(err)
		}
		m.recycle()
		time.Sleep(age - time.Millisecond)
		if _, ok := c.load(); !ok {
			t.Error("it takes no messages, and is younger")
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(s.closed) != 1 || m.timer.Stop() || c.aging.Stop() {
			t.Error("it is not at its end, or something rings")
		}
	})
}

// All messages may be abandoned before the write that is to carry them. The connection goes on.
func TestNothingIsLeftToWrite(t *testing.T) {
	s := newSilent()
	c := New(s)
	defer c.Close()
	c.mu.Lock()
	c.waiting, c.writing, c.pending = 1, true, []*Message{say("GET", "k")}
	c.abandon(c.pending[0], context.Canceled) //nolint:errcheck // it gives the cause back
	c.mu.Unlock()
	c.writeAll()
	s.answers <- "v"
	if got, err := c.Do(context.Background(), time.Minute, say("GET", "k")); err != nil || len(got) != 1 || got[0] != "v" {
		t.Errorf("the next message got %v, %v", got, err)
	}
}

// No timer of a message outlives the message. The timer would keep a dead connection in memory until the patience of
// its callers ends, or for a century.
func TestNothingRingsForTheDead(t *testing.T) {
	for name, end := range map[string]func(*Conn, *silent){
		"broken": func(_ *Conn, s *silent) { s.end() },
		"closed": func(c *Conn, _ *silent) { c.Close() },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSilent()
			c := New(s)
			messages := []*Message{say("GET", "k"), say("GET", "k"), say("GET", "k")}
			for _, m := range messages {
				go c.Do(t.Context(), 0, m) //nolint:errcheck // each gets the error
				synctest.Wait()
			}
			c.mu.Lock()
			c.pending, c.sent = c.sent[2:], c.sent[:2]
			c.mu.Unlock()
			end(c, s)
			synctest.Wait()
			for i, m := range messages {
				if m.err == nil || m.timer.Stop() {
					t.Errorf("%s: message %d ended with %v, and its timer runs", name, i, m.err)
				}
			}
		})
	}
}
