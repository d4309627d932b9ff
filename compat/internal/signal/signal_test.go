package signal_test

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/signal"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Before 2.2 a push deletes a list with a TTL.
func TestVolatile(t *testing.T) {
	for version, want := range map[string]bool{"2.0": false, "2.2": true, "7.0": true} {
		if yes, err := signal.Volatile(oldredis.Run(t, version).Dial(), "scratch"); yes != want || err != nil {
			t.Errorf("%s: %v, %v", version, yes, err)
		}
	}
}

// One release wakes one registered client: first a client that was overtaken after its last wake-up, then the
// others in the order of registration. A client that leaves after its name was taken passes its wake-up on.
func TestLists(t *testing.T) {
	for _, version := range []string{"2.2", "7.0"} {
		t.Run(version, func(t *testing.T) {
			s := oldredis.Run(t, version)
			c := s.Dial()
			do := func(name string, args ...any) int {
				t.Helper()
				return must.Get(redis.Int(c.Do(name, args...)))(t)
			}
			l := signal.Lists{Waiters: "waiters", Wake: "wake"}
			wake := func(want bool) {
				t.Helper()
				if woken, err := signal.Wake(c, l); woken != want || err != nil {
					t.Fatalf("woken: %v, %v", woken, err)
				}
			}
			next := func() string {
				t.Helper()
				return must.Get(signal.Next(c, l))(t)
			}
			if name := next(); name != "" {
				t.Errorf("%q waits", name)
			}
			now, registered := time.Unix(1000, 0), 0
			first, second := &signal.Waiter{ID: "first"}, &signal.Waiter{ID: "second"}
			listen := func(w *signal.Waiter) bool {
				t.Helper()
				woken := must.Get(w.Listen(c, l, now, 1, func(among int) {
					if registered++; among != registered {
						t.Errorf("%d wait, want %d", among, registered)
					}
				}))(t)
				return woken
			}
			do("RPUSH", "wake", "x")
			do("RPUSH", "wake", "x") // so that BLPOP does not wait
			if !listen(first) || !listen(second) || registered != 2 || do("LLEN", "waiters") != 2 {
				t.Fatalf("%d registered, %d stand on the list", registered, do("LLEN", "waiters"))
			}
			if ttl := do("TTL", "waiters"); ttl <= 0 {
				t.Errorf("the waiters' list has a TTL of %d", ttl)
			}
			if name := next(); name != "first" {
				t.Errorf("%q is next", name)
			}
			wake(true)
			if name, err := redis.String(c.Do("LINDEX", "wake", 0)); name != "first" || err != nil {
				t.Errorf("woken: %q, %v", name, err)
			}
			if !listen(first) || registered != 2 {
				t.Error("not woken, or registered again")
			}
			if err := first.Leave(c, l, true); err != nil || do("LLEN", "waiters") != 0 || do("LLEN", "wake") != 1 {
				t.Errorf("a wake-up that was meant for one that left: %v, %d wait", err, do("LLEN", "waiters"))
			}
			if !listen(second) {
				t.Error("the second was not woken")
			}
			wake(false)
			if n := do("EXISTS", "wake"); n != 0 {
				t.Error("a release that nobody waits for leaves a list")
			}
			do("RPUSH", "wake", "x")
			do("RPUSH", "wake", "x")
			registered = 0
			listen(&signal.Waiter{ID: "third"})
			listen(&signal.Waiter{ID: "again", First: true})
			if name := next(); name != "again" {
				t.Errorf("%q is next, want the one that was woken in vain", name)
			}
		})
	}
}
