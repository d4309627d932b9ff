package cluster_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A master that stood still while its replica took its place grants and extends nothing when it goes on, whichever
// of our commands lay in its socket, and however soon it hears of its successor.
func TestStoodStillWhileItWasReplaced(t *testing.T) {
	const key = "k"
	for _, a := range algorithms() {
		for step, extends := range map[string]bool{"acquisition": false, "extension": true} {
			inBubble(t, step+"/"+a.name, func(t *testing.T) {
				for at, n := 0, 1; at/3 <= n; at++ {
					moment, hears := at/3, at/3+at%3 // 0: before it was sent anything
					s, source := newShards(t)
					s.apart = true
					o := compat.Options{NoRenew: true, Timeout: time.Minute}
					k := compat.NewOn(source.Source(), a.new(false), o)
					lock, err := k.TryLock(t.Context(), key, time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					if !extends {
						must.Do(t, lock.Release(t.Context()))
					}
					n = -1
					s.asked = func([][]any) {
						n++
						s.mu.Lock()
						defer s.mu.Unlock()
						if hears > moment && n == hears {
							s.stale = ""
						}
						if n != moment {
							return
						}
						s.set("c:1", "b:1")
						s.stale = "a:1"
						s.mu.Unlock()
						time.Sleep(3 * time.Second)
						s.mu.Lock()
					}
					s.asked(nil)
					until := lock.Until()
					if extends {
						err = lock.Extend(t.Context(), time.Hour)
					} else {
						lock, err = k.TryLock(t.Context(), key, time.Hour)
					}
					s.asked = nil
					got, held := compat.NewOn(s.source(t).Source(), a.new(false), o).TryLock(t.Context(), key, time.Minute)
					if held == nil && (err == nil || extends && lock.Until().After(until)) {
						t.Errorf("it stood before command %d, and heard before %d: %v, and another has %q on the new master", moment, hears, err, got.Token())
					}
					synctest.Wait() // what is returned in the background
				}
			})
		}
	}
}
