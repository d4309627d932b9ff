package mux

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func say(names ...any) *Message {
	m := NewMessage()
	m.Add(names[0].(string), names[1:]...)
	return m
}

// Each gets its own replies, whoever else is on the connection.
func TestEachItsOwn(t *testing.T) {
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

// A connection that breaks is told to everybody on it, and to nobody twice.
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
	if _, err := c.Do(context.Background(), 0, say("GET", "k")); !errors.Is(err, ErrNotSent) {
		t.Errorf("afterwards: %v", err)
	}
}
