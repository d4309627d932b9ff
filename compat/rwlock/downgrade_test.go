package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A writer that is downgraded is over, and a reader in its place: other readers come in beside it,
// those that wait before any writer, and it is renewed, lost and released as each reader is.
func TestDowngrade(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oldredis.Server) {
		o := rwlock.Options{Fence: true}
		read, _ := client(s, rwlock.Read{Options: o})
		write, _ := client(s, rwlock.Write{Options: o})
		late, _ := client(s, rwlock.Write{Options: o})
		w := mustTry(t, write, 10*time.Second)
		ctx := w.Context()
		waits := inBackground(t.Context(), read, time.Minute)
		writes := inBackground(t.Context(), late, time.Minute)
		r := must.Get(rwlock.Downgrade(t.Context(), w, read, 20*time.Second))(t)
		if r.Key() != "k" || r.Fence() <= w.Fence() || r.Until().Before(time.Now().Add(19*time.Second)) {
			t.Errorf("%q, fence %d after %d, until %v", r.Key(), r.Fence(), w.Fence(), r.Until())
		}
		if !errors.Is(context.Cause(ctx), compat.ErrDetached) {
			t.Errorf("the writer's context: %v, want ErrDetached", context.Cause(ctx))
		}
		if err := w.Extend(t.Context(), time.Minute); !errors.Is(err, compat.ErrDetached) {
			t.Errorf("the writer's extension: %v, want ErrDetached", err)
		}
		if err := w.Release(t.Context()); !errors.Is(err, compat.ErrDetached) {
			t.Errorf("the writer's release: %v, want ErrDetached", err)
		}
		if err := <-waits; err != nil {
			t.Errorf("the reader that waited: %v", err)
		}
		time.Sleep(15 * time.Second) // longer than the writer's lease
		select {
		case err := <-writes:
			t.Errorf("a writer beside the reader: %v", err)
		default:
		}
		must.Do(t, r.Extend(t.Context(), 20*time.Second))
		must.Do(t, r.Release(t.Context()))
		if err := <-writes; err != nil {
			t.Error(err)
		}
	})
}

// Whichever message of a downgrade is lost, nobody holds the lock who does not know it, and a
// writer never comes in beside the reader that there is; what is left is gone at once if the server
// can be reached.
func TestDowngradeOverABrokenConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oldredis.Server) {
		for at := 1; ; at++ {
			struck := false
			for _, f := range []oldredis.Fault{oldredis.LoseRequest, oldredis.LoseReply} {
				s.FlushAll()
				o := rwlock.Options{Fence: at%2 == 0}
				read, _ := client(s, rwlock.Read{Options: o})
				write, _ := client(s, rwlock.Write{Options: o})
				mustTry(t, read, time.Second).Release(t.Context()) // it has checked the server
				w := mustTry(t, write, time.Minute)
				n, hit := 0, false
				s.SetFault(func(int, int, []string) oldredis.Fault {
					if n++; n != at {
						return oldredis.None
					}
					hit = true
					return f
				})
				r, err := rwlock.Downgrade(t.Context(), w, read, time.Minute)
				s.SetFault(nil)
				struck = struck || hit
				rival, rivalErr := write.TryLock(t.Context(), "k", time.Minute)
				switch {
				case err == nil && !errors.Is(rivalErr, compat.ErrHeld):
					t.Errorf("command %d, %v: a writer beside the reader: %v", at, f, rivalErr)
				case err == nil:
					if err := r.Release(t.Context()); err != nil {
						t.Errorf("command %d, %v: Release: %v", at, f, err)
					}
					mustTry(t, write, time.Minute).Release(t.Context())
				case rivalErr != nil:
					t.Errorf("command %d, %v: %v, and then %v", at, f, err, rivalErr)
				default:
					rival.Release(t.Context())
				}
			}
			if !struck {
				if at < 5 {
					t.Fatalf("only %d commands", at)
				}
				return
			}
		}
	})
}

// On a quorum, or a set, a writer becomes a reader whichever server is away, from when on it may be.
func TestDowngradeOnAQuorum(t *testing.T) {
	for _, before := range []bool{false, true} {
		for away := range 3 {
			for name, fate := range map[string]faulty.Fate{
				"cut off": {Loss: faulty.LostRequest, Cut: true}, "hangs": {Before: time.Hour},
			} {
				t.Run(fmt.Sprintf("%s %d before=%v", name, away, before), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var servers []*oldredis.Server
						for range 3 {
							s := oldredis.MustNew("7.0", oldredis.Options{Clock: clock.New()})
							t.Cleanup(func() { s.Close() })
							servers = append(servers, s)
						}
						locker := func(a protocol.Algorithm, fate faulty.Fate) (*compat.Locker, *faulty.Network) {
							var backends []compat.Backend
							var net *faulty.Network
							for i, s := range servers {
								n := new(faulty.Network)
								if i == away {
									net = n
									n.Expect(fate.Always())
								}
								backends = append(backends, compat.NewBackend(compat.Pooled(n.Pool(s)), a))
							}
							return compat.NewLocker(redlock.New(backends, redlock.Options{}), compat.Options{NoRenew: true}), net
						}
						at := faulty.Fate{}
						if before {
							at = fate
						}
						write, net := locker(rwlock.Write{}, at)
						read, _ := locker(rwlock.Read{}, fate)
						rival, _ := locker(rwlock.Write{}, faulty.Fate{})
						w := must.Get(write.TryLock(t.Context(), "k", time.Minute))(t)
						net.Expect(fate.Always())
						must.Do(t, w.Extend(t.Context(), time.Minute))
						r := must.Get(rwlock.Downgrade(t.Context(), w, read, time.Minute))(t)
						if _, err := rival.TryLock(t.Context(), "k", time.Minute); !errors.Is(err, compat.ErrHeld) {
							t.Errorf("a writer beside the reader: %v", err)
						}
						must.Do(t, r.Release(t.Context()))
						for _, k := range []*compat.Locker{write, read, rival} {
							k.Close(t.Context()) //nolint:errcheck // nothing is held
						}
						net.Clear()
						time.Sleep(2 * time.Hour)
					})
				})
			}
		}
	}
}

// What is not a writer's lock is not downgraded, nor is one that was lost, and a call that comes
// too late changes nothing.
func TestDowngradeOfNone(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oldredis.Server) {
		read, _ := client(s, rwlock.Read{})
		write, _ := client(s, rwlock.Write{})
		r := mustTry(t, read, time.Minute)
		if _, err := rwlock.Downgrade(t.Context(), r, read, time.Minute); !errors.Is(err, compat.ErrInvalid) {
			t.Errorf("of a reader: %v, want ErrInvalid", err)
		}
		must.Do(t, r.Release(t.Context()))

		w := mustTry(t, write, time.Minute)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := rwlock.Downgrade(ended, w, read, time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("in a context that has ended: %v", err)
		}
		if err := w.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("the writer after that: %v", err)
		}
		c := s.Dial()
		c.Do("DEL", "k")
		if _, err := rwlock.Downgrade(t.Context(), w, read, time.Minute); !errors.Is(err, compat.ErrLost) {
			t.Errorf("of a writer that has lost: %v, want ErrLost", err)
		}
		if n, err := redis.Int(c.Do("ZCARD", "k:readers:{k}")); n != 0 || err != nil {
			t.Errorf("%d readers, %v", n, err)
		}

		// A writer that comes in between the look and the EXEC.
		l := acquire(t, s, rwlock.Write{}, ttl)
		conn := at(s.Dial(), "MULTI", func() {
			s.Advance(ttl + time.Second)
			acquire(t, s, rwlock.Write{}, ttl)
		})
		if _, err := extendAt(conn, rwlock.Read{}, s.Now(), l, ttl); !errors.Is(err, compat.ErrLost) {
			t.Errorf("a downgrade that another writer was faster than: %v, want ErrLost", err)
		}
	})
}

// There is no upgrade: neither by adopting, nor by name, and two readers that ask for one are both
// told why.
func TestNoUpgrade(t *testing.T) {
	inBubble(t, func(t *testing.T, s *oldredis.Server) {
		read, _ := client(s, rwlock.Read{})
		write, _ := client(s, rwlock.Write{})
		for range 2 {
			r := mustTry(t, read, time.Minute)
			if _, err := write.AdoptHandle(t.Context(), r.Handle(), time.Minute); !errors.Is(err, rwlock.ErrUpgrade) {
				t.Errorf("AdoptHandle of a reader by a writer: %v, want ErrUpgrade", err)
			}
			if err := r.Extend(t.Context(), time.Minute); err != nil {
				t.Errorf("the reader after that: %v", err)
			}
		}
	})
}
