package semaphore_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// The locks of a slot.
var slots = map[string]func(token func() string) protocol.Algorithm{
	"tx:guarded": nil,
	"tx:renamed": func(token func() string) protocol.Algorithm {
		return txlock.Renamed{Options: txlock.Options{Token: token}}
	},
	"tx:renamed/listcas": func(token func() string) protocol.Algorithm {
		return txlock.Renamed{Options: txlock.Options{Token: token, ListCAS: true}}
	},
	"set:ifeq": func(token func() string) protocol.Algorithm {
		return setlock.IfEq{Options: setlock.Options{Token: token}}
	},
	"set:lua": func(token func() string) protocol.Algorithm {
		return setlock.Lua{Options: setlock.Options{Token: token}}
	},
	"set:watch": func(token func() string) protocol.Algorithm {
		return setlock.Watched{Options: setlock.Options{Token: token}}
	},
	"set:script": func(token func() string) protocol.Algorithm {
		return setlock.Script{Options: setlock.Options{Token: token}}
	},
}

// TestConformance runs the suite over a semaphore of one, which excludes everybody as any lock does, and over one of three,
// which clients hold together and which keeps one out that has another limit: with each lock for its slots on the oldest server
// that has it, one that lacks it, and a real one, and with txlock.Guarded everywhere.
func TestConformance(t *testing.T) {
	for _, s := range append(conformance.Servers(t), conformance.Today(t)...) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, o := range []struct {
				slot string
				on   []string
			}{
				{"tx:guarded", nil},
				{"tx:renamed", []string{"oldredis-2.2", "oldredis-2.4", "real-redis-server"}},
				{"tx:renamed/listcas", []string{"oldredis-2.4", "real-redis-server"}},
				{"set:ifeq", []string{"oldredis-8.6", "oldredis-valkey-9.1", "oldredis-valkey-8.1"}},
				{"set:lua", []string{"oldredis-2.6", "oldredis-2.6.12", "real-redis-server"}},
				{"set:watch", []string{"oldredis-2.6.12", "real-without-EVAL"}},
				{"set:script", []string{"oldredis-2.4", "oldredis-2.6", "real-redis-server"}},
			} {
				if o.on != nil && !slices.Contains(o.on, s.Name) || o.on == nil && slices.Contains(oldredis.Today(), strings.TrimPrefix(s.Name, "oldredis-")) {
					continue
				}
				for _, l := range locks(s, o.slot) {
					t.Run(l.Name, func(t *testing.T) {
						t.Parallel()
						conformance.Run(t, l)
					})
				}
			}
		})
	}
}

// locks are a semaphore of one and of three on s.
func locks(s conformance.Server, slot string) []conformance.Lock {
	o := semaphore.Options{Slot: slots[slot], Fence: s.Transactions, Millis: slot[:3] == "set"}
	made := func(n int) func(func(compat.Source) compat.Source, compat.Options) *compat.Locker {
		o := o
		o.N = n
		return func(wrap func(compat.Source) compat.Source, lo compat.Options) *compat.Locker {
			return compat.NewOn(wrap(compat.Pooled(s.Source)), semaphore.Lock{Options: o}, lo)
		}
	}
	l := conformance.Lock{Server: s.Name, Version: s.Version, Sources: []compat.Source{compat.Pooled(s.Source)}, Fence: o.Fence, Keys: keys}
	l.Counter = func(prefix, key, token string) string {
		return protocol.Aux(protocol.Aux(prefix+key, strconv.Itoa(semaphore.Slot(token))), "fence")
	}
	one, three := l, l
	one.Name, one.New = "semaphore of 1 over "+slot, made(1)
	three.Name, three.New, three.Rival, three.Shared = "semaphore of 3 over "+slot, made(3), made(1), true
	three.Most = 3
	return []conformance.Lock{one, three}
}

// keys is all that the lock of a key can leave.
func keys(prefix, key string) []string {
	key = prefix + key
	all := []string{key, protocol.Aux(key, "fence"), protocol.Aux(key, "limit")}
	for _, n := range []string{"1", "2", "3"} {
		slot := protocol.Aux(key, n)
		all = append(all, slot, protocol.Aux(slot, "fence"))
	}
	return all
}
