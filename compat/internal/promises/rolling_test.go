package promises_test

import (
	"errors"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// quorums are the kinds of several servers.
func quorums() (them []kind) {
	for _, k := range append(all(false), keepers()...) {
		if len(k.versions) > 1 {
			them = append(them, k)
		}
	}
	a, b := getsetlock.Guarded{}, txlock.Renamed{}
	return append(them, quorum("redlock, at once", false, []string{"2.2", "2.4", "2.4", "2.4", "2.2"}, a, b, b, b, a))
}

// A handle of a lock that has got a part anew since is no handle of the next holder's.
func TestAPartThatIsNewHidesNoOther(t *testing.T) {
	eachKind(t, quorums(), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			holder, net := w.client(compat.Options{NoRenew: true})
			other, _ := w.client(compat.Options{NoRenew: true})
			l := w.try(holder, long)
			h := l.Handle()
			c := w.servers[0].Dial()
			c.Do("FLUSHALL") //nolint:errcheck // of an embedded server
			c.Close()
			must.Do(t, l.Extend(background, long))
			locks := releases(long)(w, holder, net, l)
			err := other.ReleaseHandle(background, h)
			if len(locks) > 1 && (!errors.Is(err, compat.ErrLost) || locks[1].Extend(background, long) != nil) {
				t.Errorf("released by the handle from before: %v, want ErrLost", err)
			}
		})
	})
}

// Whatever is lost of an extension, while one server lacks its part, the lock is not said to be lost: nobody took it.
func TestQuorumInDoubtIsHeld(t *testing.T) {
	eachKind(t, quorums(), func(t *testing.T, k kind) {
		everyFault(t, k, func(w *world, strike func(*faulty.Network)) string {
			holder, net := w.client(compat.Options{NoRenew: true})
			l := w.try(holder, long)
			c := w.servers[0].Dial()
			defer c.Close()
			c.Do("FLUSHALL") //nolint:errcheck // of an embedded server
			strike(net)
			l.Extend(background, medium) //nolint:errcheck // unknown, perhaps
			net.Clear()
			if _, err := l.Detach(background); errors.Is(err, compat.ErrLost) {
				return sprint("detached: %v", err)
			}
			return ""
		})
	})
}

// Replies that are lost on most of the servers of a lock that can't change its value don't keep it from being extended.
func TestQuorumInDoubtIsExtended(t *testing.T) {
	for _, k := range keepers() {
		for second := 1; second < 10; second++ {
			inWorld(t, k, func(w *world) {
				holder, net := w.client(compat.Options{NoRenew: true})
				l := w.try(holder, long)
				net.Expect(func(m faulty.Message) faulty.Fate {
					if m.N == 1 || m.N == second {
						return faulty.Fate{Loss: faulty.LostReply}
					}
					return faulty.Fate{}
				})
				l.Extend(background, long) //nolint:errcheck // unknown, perhaps
				net.Expect(nil)
				for range 2 {
					if err := l.Extend(background, long); err != nil {
						t.Errorf("%s: after replies 1 and %d were lost: %v", k.name, second, err)
					}
				}
			})
		}
	}
}

// A quorum whose servers all restart empty, a lease apart, one of which had refused the acquisition, keeps its lock:
// each gets its part again with the next extension.
func TestRollingRestart(t *testing.T) {
	const ttl = 9 * time.Second
	eachKind(t, quorums(), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			one := func(i int, name string, args ...any) any {
				c := w.servers[i].Dial()
				defer c.Close()
				return must.Get(c.Do(name, args...))(t)
			}
			one(0, "SETEX", k.key, 3, "another's")
			holder, _ := w.client(compat.Options{})
			rival, _ := w.client(compat.Options{NoRenew: true})
			l := must.Get(holder.TryLock(background, k.key, ttl))(t)
			l.Context()
			pass(3*ttl + ttl/2)
			for i := range 2 * len(w.servers) {
				one(i%len(w.servers), "FLUSHALL")
				pass(ttl)
				if _, err := rival.TryLock(background, k.key, ttl); !errors.Is(err, compat.ErrHeld) {
					t.Fatalf("after restart %d a rival: %v", i+1, err)
				}
				if !believes(l) {
					t.Fatalf("after restart %d the lock is lost", i+1)
				}
				for i := range w.servers {
					if one(i, "EXISTS", k.key) == int64(0) {
						t.Errorf("server %d lacks the key", i)
					}
				}
			}
			must.Do(t, l.Release(background))
			pass(time.Second)
			for i := range w.servers {
				if one(i, "EXISTS", k.key) != int64(0) {
					t.Errorf("server %d has the key after the release", i)
				}
			}
		})
	})
}
