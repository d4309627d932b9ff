package cluster_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
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
					s.oneByOne = true
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

// A process that begins now, and was told of that master alone, has its map from the master itself. What a replaced
// master says of itself grants nothing, by whatever name it was asked: the others call it by its address.
func TestStoodStillAndIsTheOnlyOneToldOf(t *testing.T) {
	const key = "k"
	for _, a := range algorithms() {
		for _, seed := range []string{"a:1", "a.example:1"} {
			inBubble(t, a.name+"/"+seed, func(t *testing.T) {
				s, _ := newShards(t)
				s.set("c:1", "b:1")
				s.stale = "a:1"
				o := compat.Options{NoRenew: true, Timeout: time.Minute}
				_, err := compat.NewOn(s.source(t, seed).Source(), a.new(false), o).TryLock(t.Context(), key, time.Hour)
				_, held := compat.NewOn(s.source(t).Source(), a.new(false), o).TryLock(t.Context(), key, time.Minute)
				if (err == nil) == (held == nil) {
					t.Errorf("the process: %v; another, on the new master: %v; want one of them to have the key", err, held)
				}
				synctest.Wait() // what is returned in the background
			})
		}
	}
}

// A redirection says who was the master when it was asked for. A reply that was long under way vouches for nobody that
// was replaced since.
func TestRedirectionThatWasLongUnderWay(t *testing.T) {
	for _, a := range algorithms() {
		inBubble(t, a.name, func(t *testing.T) {
			const key = "k"
			s, source := newShards(t)
			o := compat.Options{NoRenew: true, Timeout: time.Minute}
			k := compat.NewOn(source.Source(), a.new(false), o)
			lock, err := k.TryLock(t.Context(), key, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			must.Do(t, lock.Release(t.Context()))
			s.set("c:1", "b:1")
			slow := false
			s.answered = func(replies []any) {
				if e, moved := replies[0].(redis.Error); slow || !moved || !strings.HasPrefix(string(e), "MOVED") {
					return
				}
				slow = true
				time.Sleep(3 * time.Second)
				s.mu.Lock()
				defer s.mu.Unlock()
				s.set("b:1", "b:1")
				s.stale = "c:1"
			}
			lock, err = k.TryLock(t.Context(), key, time.Hour)
			if !slow {
				t.Fatal("nothing was redirected")
			}
			got, held := compat.NewOn(s.source(t).Source(), a.new(false), o).TryLock(t.Context(), key, time.Minute)
			if held == nil && err == nil {
				t.Errorf("%q, and another has %q on the new master", lock.Token(), got.Token())
			}
			synctest.Wait() // what is returned in the background
		})
	}
}
