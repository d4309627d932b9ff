package promises_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// twice only forwards, and has another such in it.
type twice struct{ protocol.Algorithm }

// A reader does not wait for another one of its process, whatever its lock is wrapped in.
func TestReadersShareThroughWrappers(t *testing.T) {
	read := rwlock.Read{}
	eachKind(t, []kind{
		one("rwlock.Read", "2.4", read),
		one("a struct that has it", "2.4", struct{ rwlock.Read }{read}),
		one("a struct that has an Algorithm", "2.4", plain{read}),
		one("and one that has that", "2.4", twice{plain{read}}),
		one("sentinel.Replicated", "5.0", sentinel.Replicated{Algorithm: read}),
		one("a struct that has sentinel.Replicated", "5.0", plain{sentinel.Replicated{Algorithm: read}}),
		several("multilock.New", "2.4", read),
		several("multilock.New of a struct", "2.4", plain{read}),
		quorum("redlock", true, []string{"2.4", "2.4", "2.4"}, read, read, read),
		quorum("redlock of structs", true, []string{"2.4", "2.4", "2.4"}, plain{read}, plain{read}, plain{read}),
	}, func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locker, _ := w.client(compat.Options{NoRenew: true})
			first := w.try(locker, long)
			start := time.Now()
			second, err := locker.Lock(w.within(2*long), k.key, long)
			if took := time.Since(start); err != nil || took > 0 {
				w.Fatalf("the second reader got in after %v: %v", took, err)
			}
			must.Do(t, first.Release(background))
			if !believes(second) || second.Extend(background, long) != nil {
				t.Errorf("the first one's release ended the second one's lock: %v", context.Cause(second.Context()))
			}
			second.Release(background) //nolint:errcheck
		})
	})
}

// A wrapper that only forwards costs nothing: what is pinned or renewed together
// takes as many round trips as without it.
func TestWrappersLoseNoAbility(t *testing.T) {
	wrap := map[string]func(protocol.Algorithm) protocol.Algorithm{
		"a struct":     func(a protocol.Algorithm) protocol.Algorithm { return plain{a} },
		"two of them":  func(a protocol.Algorithm) protocol.Algorithm { return twice{plain{a}} },
		"as a pointer": func(a protocol.Algorithm) protocol.Algorithm { return &plain{a} },
	}
	for name, c := range map[string]struct {
		version string
		a       protocol.Algorithm
	}{
		"getset:guarded": {"2.2", getsetlock.Guarded{}},
		"getset:listed":  {"2.0", getsetlock.ListCAS{}},
		"tx:renamed":     {"2.4", txlock.Renamed{}},
		"set:lua":        {"2.6.12", setlock.Lua{}},
		"set:watched":    {"2.6.12", setlock.Watched{}},
	} {
		for how, wrapped := range wrap {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				bare := costs(t, one(name, c.version, c.a))
				if got := costs(t, one(name, c.version, wrapped(c.a))); got != bare {
					t.Errorf("in %s: %s; without: %s", how, got, bare)
				}
			})
		}
	}
}

// costs are the round trips of what a Locker does in fewer than it might.
func costs(t *testing.T, k kind) (text string) {
	inWorld(t, k, func(w *world) {
		make := w.kind.make
		w.kind.make = func(s []compat.Source, o compat.Options) *compat.Locker { return make(kept(2, s), o) }
		locker, net := w.client(compat.Options{NoRenew: true})
		l := w.try(locker, long)
		net.Expect(nil)
		l.Release(background) //nolint:errcheck
		text = fmt.Sprintf("pinned: release %d", net.Writes())

		w.kind.make = make
		locker, net = w.client(compat.Options{})
		var locks []*compat.Lock
		for n := range 5 {
			l, err := locker.TryLock(background, k.another(n), 9*time.Second)
			if err != nil {
				w.Fatal(err)
			}
			locks = append(locks, l)
		}
		net.Expect(nil)
		pass(3100 * time.Millisecond)
		text += fmt.Sprintf("; renewals of five together %d", net.Writes())
		for _, l := range locks {
			l.Release(background) //nolint:errcheck
		}
		synctest.Wait()
	})
	return text
}
