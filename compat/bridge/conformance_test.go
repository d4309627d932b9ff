package bridge_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// A crossing is a bridge as a conformance.Algorithm makes it.
type crossing struct {
	name   string
	bridge func(s conformance.Server, fence bool) protocol.Algorithm
	vague  bool // two clients can write the same value
}

func millis(s conformance.Server) bool { return !s.Older("2.6") }

func crossings(t testing.TB) (list []crossing) {
	for _, name := range []string{"redis-py-2.9", "redis-docs", "jedis-lock", "machinery", "PT-redis-lock", "jedis-lock-1.0.1", "ServiceStack-DistributedLock"} {
		b := must.Get(bridge.Named(name))(t)
		list = append(list, crossing{name, func(s conformance.Server, fence bool) protocol.Algorithm {
			b := b // one for each client
			b.Fence, b.Millis = fence, millis(s)
			return b
		}, !b.Dialect.Nonce})
	}
	for _, old := range []string{"redis-py-2.9", "redis-in-action", "mlanett-redis-lock"} {
		b := twoNames(old, "redis-py-3", nil)
		list = append(list, crossing{old + " by another name", func(s conformance.Server, fence bool) protocol.Algorithm {
			b := b
			b.Fence, b.Millis = fence, millis(s)
			return b
		}, false})
	}
	return list
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
