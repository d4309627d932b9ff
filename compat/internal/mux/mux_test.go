package mux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Do sends a message over one connection, without a Pool, and waits for its replies.
func (c *Conn) Do(ctx context.Context, patience time.Duration, m *Message) ([]any, error) {
	if err := c.send(ctx, patience, m, false); err != nil {
		return nil, err
	}
	return c.wait(ctx, m)
}

func say(names ...any) *Message {
	m := newMessage()
	m.Add(names[0].(string), names[1:]...)
	return m
}

// Each caller gets its own replies over a shared connection.
func TestEachItsOwn(t *testing.T) { synctest.Test(t, eachItsOwn) } // on a busy machine a second passes without a reply

func eachItsOwn(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	c := New(s.Dial())
	defer c.Close()
	var wg sync.WaitGroup
	for g := range 50 {
		wg.Go(func() {
			for i := range 200 {
				key, value := fmt.Sprint("k", g), fmt.Sprint(g, "-", i)
				m := say("MULTI")
				m.Add("SET", key, value)
				m.Add("LPUSH", key, "x") // an error in the middle of others' replies
				m.Add("GET", key)
				m.Add("EXEC")
				replies, err := c.Do(context.Background(), time.Minute, m)
				if err != nil {
					t.Error(err)
					return
				}
				exec, _ := redis.Values(replies[4], nil)
				if got, _ := redis.String(exec[2], nil); got != value {
					t.Errorf("%s holds %q, want %q", key, got, value)
				}
				if _, ok := exec[1].(redis.Error); !ok {
					t.Errorf("LPUSH on a string: %v", exec[1])
				}
			}
		})
	}
	wg.Wait()
}

// Every caller on a broken connection gets the error once.
func TestBroken(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	inner := s.Dial()
	c := New(inner)
	if _, err := c.Do(context.Background(), 0, say("SET", "k", "v")); err != nil {
		t.Fatal(err)
	}
	s.Restart(oldredis.Keeping)
	if _, err := c.Do(context.Background(), 0, say("GET", "k")); err == nil || errors.Is(err, ErrNotSent) {
		t.Errorf("on a connection that is gone: %v", err)
	}
	if _, err := c.Do(context.Background(), 0, say("GET", "k")); !errors.Is(err, ErrNotSent) || strings.Contains(err.Error(), "\n") {
		t.Errorf("afterwards: %q, want on one line that it was not sent", err)
	}
	retired := New(s.Dial())
	defer retired.Close()
	retired.Retire()
	if _, err := retired.Do(context.Background(), 0, say("GET", "k")); !errors.Is(err, ErrNotSent) || strings.Contains(err.Error(), "nil") {
		t.Errorf("on one that takes no more: %q", err)
	}
}

// A connection of a redigo Pool keeps its own state for each command sent. It is killed during writes and reads, and
// every caller gets the error. The race detector proves that the kill does nothing forbidden by redigo.
func TestKilledUnderItsUsers(t *testing.T) {
	for range 50 {
		var server, users sync.WaitGroup
		pool := &redis.Pool{Dial: func() (redis.Conn, error) {
			here, there := net.Pipe()
			server.Go(func() {
				defer there.Close()
				for in := bufio.NewReader(there); ; {
					for range 3 { // *1, $4, PING
						if _, err := in.ReadString('\n'); err != nil {
							return
						}
					}
					if _, err := there.Write([]byte("+PONG\r\n")); err != nil {
						return
					}
				}
			})
			return redis.NewConn(here, 0, 0), nil
		}}
		c := New(pool.Get())
		first := make(chan struct{}, 8)
		for range cap(first) {
			users.Go(func() {
				for answered := false; ; answered = true {
					if _, err := c.Do(context.Background(), 0, say("PING")); err != nil {
						return
					}
					if !answered {
						first <- struct{}{}
					}
				}
			})
		}
		<-first
		c.Close()
		users.Wait()
		server.Wait()
		pool.Close()
	}
}

// A connection that a full server leaves in MULTI is not used again. A connection after an aborted EXEC is.
func TestRefusedExec(t *testing.T) {
	for _, test := range []struct {
		refusal string
		ends    bool
	}{
		{"ERR command not allowed when used memory > 'maxmemory'", true}, // Redis 2.0 to 2.4 queue the following commands
		{"EXECABORT Transaction discarded because of previous errors.", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newSilent()
			c := New(s)
			m := say("MULTI")
			m.Add("SET", "k", "v")
			m.Add("EXEC")
			s.answers <- "OK"
			s.answers <- "QUEUED"
			s.answers <- redis.Error(test.refusal)
			if replies, err := c.Do(context.Background(), 0, m); err != nil || replies[2] != redis.Error(test.refusal) {
				t.Errorf("%v, %v, want the refusal", replies, err)
			}
			synctest.Wait()
			if _, takes := c.load(); takes == test.ends {
				t.Errorf("%s: takes messages: %t", test.refusal, takes)
			}
			c.Close()
		})
	}
}

// The refusal of one caller's EXEC is no answer to the messages behind it: a server in MULTI may run them later.
func TestRefusedExecAnswersItsCallerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSilent()
		c := New(s)
		m := say("MULTI")
		m.Add("EXEC")
		go c.Do(context.Background(), 0, m) //nolint:errcheck // its outcome is TestRefusedExec's
		synctest.Wait()
		behind := make(chan error, 1)
		go func() {
			_, err := c.Do(context.Background(), 0, say("SETNX", "k", "v"))
			behind <- err
		}()
		synctest.Wait()
		s.answers <- "OK"
		s.answers <- redis.Error("ERR command not allowed when used memory > 'maxmemory'")
		if err := <-behind; err == nil || answer.Refused(err) || answer.Known(err) != nil || errors.Is(err, ErrNotSent) {
			t.Errorf("behind it: %#v, want an unknown outcome", err)
		}
		synctest.Wait()
	})
}
