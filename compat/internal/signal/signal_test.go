package signal_test

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/signal"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// One release wakes one of those that are registered, the first first; one that leaves with
// nothing on the list passes its wake-up on. Lists have a TTL where that does not delete them.
func TestLists(t *testing.T) {
	for version, volatile := range map[string]bool{"2.0": false, "2.2": true, "7.0": true} {
		t.Run(version, func(t *testing.T) {
			s := oldredis.Run(t, version)
			c := s.Dial()
			do := func(name string, args ...any) int {
				t.Helper()
				n, err := redis.Int(c.Do(name, args...))
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			l := signal.Lists{Waiters: "waiters", Wake: "wake"}
			var err error
			if l.Volatile, err = signal.Volatile(c, "scratch"); l.Volatile != volatile || err != nil {
				t.Fatalf("volatile: %v, %v", l.Volatile, err)
			}
			wake := func() {
				for _, m := range l.Waking() {
					if _, err := c.Do(m[0].(string), m[1:]...); err != nil {
						t.Fatal(err)
					}
				}
			}
			now, registered := time.Unix(1000, 0), 0
			first, second := &signal.Waiter{ID: "first"}, &signal.Waiter{ID: "second"}
			listen := func(w *signal.Waiter) bool {
				t.Helper()
				woken, err := w.Listen(c, l, now, func() { registered++ })
				if err != nil {
					t.Fatal(err)
				}
				return woken
			}
			do("RPUSH", "wake", "x")
			do("RPUSH", "wake", "x") // so that BLPOP does not wait
			if !listen(first) || !listen(second) || registered != 2 || do("LLEN", "waiters") != 2 {
				t.Fatalf("%d registered, %d stand on the list", registered, do("LLEN", "waiters"))
			}
			if ttl := do("TTL", "waiters"); (ttl > 0) != volatile {
				t.Errorf("the waiters' list has a TTL of %d", ttl)
			}
			wake()
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
			wake()
			if n := do("EXISTS", "wake"); n != 0 {
				t.Error("a release that nobody waits for leaves a list")
			}
		})
	}
}
