package multilock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// A way is one of taking several keys, and the lock of single keys beside it.
type way struct {
	name   string
	set    func(source compat.Source, fence bool, o compat.Options) *compat.Locker
	single func(fence bool) protocol.Algorithm
	vague  bool // two clients can write the same value
}

func ways() []way {
	whole := func(a func(bool) protocol.Algorithm) func(compat.Source, bool, compat.Options) *compat.Locker {
		return func(s compat.Source, fence bool, o compat.Options) *compat.Locker {
			return compat.NewOn(s, a(fence), o)
		}
	}
	inTurn := func(a func(bool) protocol.Algorithm) func(compat.Source, bool, compat.Options) *compat.Locker {
		return func(s compat.Source, fence bool, o compat.Options) *compat.Locker {
			return compat.NewLocker(multilock.New(s, a(fence)), o)
		}
	}
	guarded := func(fence bool) protocol.Algorithm { return txlock.Guarded{Options: txlock.Options{Fence: fence}} }
	millis := func(fence bool) protocol.Algorithm {
		return txlock.Renamed{Options: txlock.Options{Fence: fence, Millis: true}}
	}
	classic := func(fence bool) protocol.Algorithm { return txlock.Classic{Options: txlock.Options{Fence: fence}} }
	stamp := func(fence bool) protocol.Algorithm {
		return getsetlock.Guarded{Options: getsetlock.Options{Fence: fence}}
	}
	oldest := func(fence bool) protocol.Algorithm {
		return getsetlock.Classic{Options: getsetlock.Options{Fence: fence}}
	}
	seconds := func(fence bool) getsetlock.Options {
		return getsetlock.Options{Fence: fence, Dialect: getsetlock.Seconds}
	}
	return []way{
		{"tx", whole(func(f bool) protocol.Algorithm { return multilock.Tx{Options: txlock.Options{Fence: f}} }), guarded, false},
		{"tx/millis", whole(func(f bool) protocol.Algorithm {
			return multilock.Tx{Options: txlock.Options{Fence: f, Millis: true}}
		}), millis, false},
		{"getset", whole(func(f bool) protocol.Algorithm { return multilock.GetSet{Options: getsetlock.Options{Fence: f}} }), stamp, false},
		{"getset/seconds", whole(func(f bool) protocol.Algorithm { return multilock.GetSet{Options: seconds(f)} }),
			func(f bool) protocol.Algorithm { return getsetlock.Guarded{Options: seconds(f)} }, true},
		{"getset classic", whole(func(f bool) protocol.Algorithm {
			return multilock.GetSetClassic{Options: getsetlock.Options{Fence: f}}
		}), oldest, false},
		{"in turn/tx:classic", inTurn(classic), classic, false},
		{"in turn/tx:renamed/millis", inTurn(millis), millis, false},
		{"in turn/getset:guarded", inTurn(stamp), stamp, false},
		{"in turn/getset:classic", inTurn(oldest), oldest, false},
		{"in turn/getset:classic/seconds", inTurn(func(f bool) protocol.Algorithm { return getsetlock.Classic{Options: seconds(f)} }),
			func(f bool) protocol.Algorithm { return getsetlock.Classic{Options: seconds(f)} }, true},
	}
}

// set is what the suite locks: three keys, of which one has bytes that Join escapes.
func set(name string) string { return multilock.Join(name, name+" (2), 100%", name+":\x00") }

// on is the way's lock on s, for the suite.
func (w way) on(s conformance.Server) conformance.Lock {
	return conformance.Lock{
		Name: w.name, Server: s.Name, Version: s.Version,
		New: func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
			return w.set(wrap(compat.Pooled(s.Source)), s.Transactions, o)
		},
		Key:       set,
		Sources:   []compat.Source{compat.Pooled(s.Source)},
		Keys:      written,
		Fence:     s.Transactions,
		Ambiguous: w.vague,
		TTL:       2 * time.Second, // many of these wait at a time
	}
}

func written(prefix, key string) []string {
	keys, err := multilock.Split(prefix + key)
	if err != nil {
		panic(err)
	}
	for _, k := range keys {
		keys = append(keys, protocol.Aux(k, "fence"))
	}
	return keys
}

// Every way passes the suite that locks of one key pass, on every server; those that only count
// or write otherwise than another on one real server.
func TestConformance(t *testing.T) {
	for _, s := range conformance.Servers(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, w := range ways() {
				if (w.vague || strings.HasSuffix(w.name, "millis") || w.name == "in turn/tx:classic") && s.Name != "real-redis-server" {
					continue
				}
				t.Run(w.name, func(t *testing.T) {
					t.Parallel()
					conformance.Run(t, w.on(s))
				})
			}
		})
	}
}
