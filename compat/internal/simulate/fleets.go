package simulate

import (
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// bridges returns the locks of compat/bridge: alone, and beside the fleet before or after them in a plan. Each start of
// a program draws its fleet.
func bridges() []Kind {
	getset, _ := locks.Get("getset:guarded")
	token, _ := locks.Get("tx:guarded")
	oneKey := on(func(m making) protocol.Algorithm {
		o := m.of(getset)
		return bridge.OneKey{Options: getsetlock.Options{Dialect: getsetlock.Float, Fence: true, Nonce: o.Token}, Millis: o.Millis}
	})
	twoNames := func(old string) maker {
		return on(func(m making) protocol.Algorithm {
			b := bridge.TwoNames{Old: format(old), New: format("redis-py-3"), Millis: m.millis, Fence: true, Token: m.token.of(token)}
			if b.Old.KeyName == "NAME" {
				b.Old.KeyName = oldPrefix + "NAME"
			}
			return b
		})
	}
	times := Kind{Servers: 1, Versions: since("2.2"), Owned: true, Fences: true}
	tokens := Kind{Servers: 1, Versions: since("2.2"), AnyClock: true, Fences: true}
	owners := Kind{Servers: 1, Versions: since("2.2"), Fences: true}
	as := func(name string, k Kind, make, moved maker) Kind {
		k.Name, k.make, k.moved = name, make, moved
		return k
	}
	oldName := func(m making) *compat.Locker {
		m.o.Prefix = oldPrefix + m.o.Prefix
		return on(byName("tx:guarded"))(m)
	}
	uncounted := func(k Kind) Kind { // each of the two fleets counts its fences beside its own key
		k.Fences = false
		return k
	}
	return []Kind{
		as("bridge", times, oneKey, nil),
		as("getset:guarded to bridge", times, on(byName("getset:guarded")), oneKey),
		as("bridge to tx:guarded", times, oneKey, on(byName("tx:guarded"))),
		as("two names", tokens, twoNames("redis-py-2.10"), nil),
		as("old name to two names", uncounted(tokens), oldName, twoNames("redis-py-2.10")),
		as("two names to new name", tokens, twoNames("redis-py-2.10"), on(byName("tx:guarded"))),
		as("getset:two-keys to two names", uncounted(owners), on(byName("getset:two-keys")), twoNames("mlanett-redis-lock")),
		as("two keys to new name", owners, twoNames("mlanett-redis-lock"), on(byName("tx:guarded"))),
	}
}

func format(name string) dialect.Format {
	f, err := dialect.Lookup(name)
	if err != nil {
		panic(err)
	}
	return f
}

// oldPrefix is the prefix of the old fleet's keys.
const oldPrefix = "old-"
