package promises_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A lock whose name is that of a key beside another lock is refused. Names come from users' input: one that is held
// there would make the other unlockable.
func TestNamesBesideALock(t *testing.T) {
	t.Parallel()
	kinds := all(true)
	for _, key := range []string{"{k}", "a:{k}:b", "a{b", "a}b", "{}"} {
		tagged := one("tx:renamed on "+key, "2.4", txlock.Renamed{Options: txlock.Options{Fence: true}})
		tagged.key = key
		kinds = append(kinds, tagged)
	}
	eachKind(t, kinds, func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			var names []string
			look := func() {
				for _, s := range w.servers {
					c := s.Dial()
					found, _ := redis.Strings(c.Do("KEYS", "*"))
					c.Close()
					names = append(names, found...)
				}
			}
			o := compat.Options{NoRenew: true}
			client, _ := w.client(o)
			l := w.try(client, 20*time.Second)
			look()
			waiting, readers := []*compat.Locker{client}, client
			if k.name == "rwlock.Write" {
				readers, _ = w.clientOf(rwlock.Read{}, o)
				waiting = append(waiting, readers)
			}
			for _, each := range waiting {
				go each.Lock(w.within(2*time.Second), k.key, 20*time.Second) //nolint:errcheck // it is in vain
			}
			pass(time.Second)
			look()
			pass(2 * time.Second)
			if readers != client {
				reader := must.Get(rwlock.Downgrade(background, l, readers, 20*time.Second))(t)
				l = reader
			}
			look()
			must.Do(t, l.Release(background))
			slices.Sort(names)
			beside := 0
			for _, name := range slices.Compact(names) {
				key := name
				if keys, err := multilock.Split(k.key); err == nil {
					if slices.Contains(keys, name) {
						continue
					}
					key = multilock.Join(name)
				}
				if key == k.key {
					continue
				}
				beside++
				other, _ := w.client(compat.Options{NoRenew: true})
				taken, err := other.TryLock(background, key, 20*time.Second)
				if errors.Is(err, compat.ErrInvalid) && taken == nil {
					continue
				}
				again, errAgain := client.TryLock(background, k.key, 20*time.Second)
				t.Errorf("a lock on %q: %v, %v; and then one on %q: %v", name, taken != nil, err, k.key, errAgain)
				if again != nil {
					again.Release(background) //nolint:errcheck // one fault is enough
				}
			}
			if beside == 0 {
				t.Error("there is no key beside the lock")
			}
		})
	})
}
