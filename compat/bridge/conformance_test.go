package bridge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// A crossing is a bridge, and the locks of the fleets on its two sides: ours, of
// the dialect. They behave on the wire as those fleets do.
type crossing struct {
	name     string
	bridge   func(s conformance.Server, fence bool) protocol.Algorithm
	old, new func(s conformance.Server) protocol.Algorithm
	oldNames string // what the old fleet puts before its keys
	vague    bool   // two clients can write the same value
}

func millis(s conformance.Server) bool { return !s.Older("2.6") }

func crossings(t testing.TB) []crossing {
	newer := func(s conformance.Server) protocol.Algorithm {
		if !s.Older("2.6.12") {
			return setlock.Watched{}
		}
		return txlock.Guarded{}
	}
	var list []crossing
	for _, name := range []string{"redis-py-2.9", "redis-docs", "jedis-lock", "machinery", "PT-redis-lock", "jedis-lock-1.0.1", "ServiceStack-DistributedLock"} {
		b := must.Get(bridge.Named(name))(t)
		d := must.Get(getsetlock.Named(name))(t)
		list = append(list, crossing{
			name: name,
			bridge: func(s conformance.Server, fence bool) protocol.Algorithm {
				b := b // one for each client
				b.Fence, b.Millis = fence, millis(s)
				return b
			},
			old: func(conformance.Server) protocol.Algorithm {
				return getsetlock.Guarded{Options: getsetlock.Options{Dialect: d}}
			},
			new:   newer,
			vague: !b.Dialect.Nonce,
		})
	}
	two := func(old string, lock protocol.Algorithm) crossing {
		f := twoNames(old, "redis-py-3", nil).Old
		before, _, _ := strings.Cut(f.KeyName, "NAME")
		if f.Kind == dialect.TwoKeys {
			before = ""
		}
		return crossing{
			name: old + " by another name",
			bridge: func(s conformance.Server, fence bool) protocol.Algorithm {
				return bridge.TwoNames{Old: f, New: format("redis-py-3"), Fence: fence, Millis: millis(s)}
			},
			old: func(conformance.Server) protocol.Algorithm { return lock }, oldNames: before,
			new: newer,
		}
	}
	fleet := must.Get(txlock.Named("redis-in-action"))(t)
	return append(list,
		two("redis-py-2.9", getsetlock.Guarded{}),
		two("redis-in-action", fleet),
		two("mlanett-redis-lock", getsetlock.TwoKeys{}))
}

var servers = []string{"oldredis-2.0", "oldredis-2.2.5", "oldredis-2.4", "oldredis-2.6", "oldredis-7.0", "real-redis-server"}

// TestConformance runs the suite over each bridge.
func TestConformance(t *testing.T) {
	for _, s := range conformance.Servers(t) {
		if !slices.Contains(servers, s.Name) && !strings.HasPrefix(s.Name, "at-") && s.Name != "oldredis-twemproxy" {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, x := range crossings(t) {
				l := conformance.Algorithm{
					Name: x.name, Ambiguous: x.vague,
					New: func(fence bool) protocol.Algorithm { return x.bridge(s, fence) },
				}.On(s)
				if two, ok := x.bridge(s, false).(bridge.TwoNames); ok {
					l.Keys = func(prefix, key string) []string {
						owner, deadline := dialect.Pair(prefix + key)
						return []string{prefix + key, protocol.Aux(prefix+key, "fence"), owner, deadline, two.Old.Key(prefix + key)}
					}
				}
				t.Run(x.name, func(t *testing.T) {
					t.Parallel()
					conformance.Run(t, l)
				})
			}
		})
	}
}

// Beside clients of either fleet, each of them contending for one key, no two
// stand in the section together.
func TestBeside(t *testing.T) {
	t.Parallel()
	for _, s := range conformance.Servers(t) {
		if !slices.Contains([]string{"oldredis-2.2.5", "oldredis-2.6", "real-redis-server"}, s.Name) {
			continue
		}
		for _, x := range crossings(t) {
			b := x.bridge(s, false)
			for side, peer := range map[string]protocol.Algorithm{"old": x.old(s), "new": x.new(s)} {
				t.Run(s.Name+"/"+x.name+"/"+side, func(t *testing.T) {
					f := &fleet{t: t, source: compat.Pooled(s.Source), key: t.Name(), lease: time.Minute, quota: 100, last: time.Now()}
					prefix := ""
					if side == "old" {
						prefix = x.oldNames
					}
					workers := []*worker{f.start(b, ""), f.start(peer, prefix), f.start(b, ""), f.start(peer, prefix)}
					f.wg.Wait()
					f.end(workers)
				})
			}
		}
	}
}
