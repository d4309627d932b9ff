package stock

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// in runs f in virtual time with a Stock of two connections. get takes a new connection from the Stock.
func in(t *testing.T, f func(s *Stock, get func() *Conn)) {
	synctest.Test(t, func(t *testing.T) {
		server := oldredis.Run(t, "7.0")
		s := &Stock{Most: 2}
		defer s.Close()
		f(s, func() *Conn {
			c, err := s.Get(context.Background(), func(context.Context) (redis.Conn, error) { return server.Dial(), nil })
			if err != nil {
				t.Fatal(err)
			}
			return c
		})
	})
}

// A lease gets the connection under WATCH of its own key, in any order of the pins, and gets it once.
func TestUnpinFindsTheLeasesOwn(t *testing.T) {
	in(t, func(s *Stock, get func() *Conn) {
		first, second := get(), get()
		one, two := first.Pin(), second.Pin()
		if c := s.Unpin(two); c != second {
			t.Errorf("the second lease got %p, want %p", c, second)
		}
		if c := s.Unpin(two); c != nil {
			t.Error("it got another one later")
		}
		if c := s.Unpin(one); c != first {
			t.Errorf("the first lease got %p, want %p", c, first)
		}
		first.Close()
		second.Close()
	})
}

// A reserved connection counts as a kept connection until Vacate.
func TestListenersAreCounted(t *testing.T) {
	in(t, func(s *Stock, get func() *Conn) {
		first, second := get(), get()
		first.Close()
		second.Close()
		if !s.Reserve() {
			t.Fatal("there is no room for a listener")
		}
		synctest.Wait()
		if n := len(s.kept); n != 1 {
			t.Errorf("beside a listener %d are kept, want 1", n)
		}
		if !s.Reserve() || s.Reserve() {
			t.Error("more than two listen, or fewer")
		}
		s.Vacate()
		if !s.Reserve() {
			t.Error("no room for another listener when one has gone")
		}
	})
}
