package sentinel_test

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// Each kind of lock, over a real Sentinel's master.
func TestConformance(t *testing.T) {
	s := realredis.RunSentinels(t, "m")
	renamed := func(f bool) protocol.Algorithm { return txlock.Renamed{Options: txlock.Options{Fence: f}} }
	guarded := func(f bool) protocol.Algorithm { return getsetlock.Guarded{Options: getsetlock.Options{Fence: f}} }
	for _, a := range []struct {
		name   string
		make   func(fence bool) protocol.Algorithm
		pinned int
	}{
		{"tx:renamed", renamed, 0}, {"tx:renamed/pinned", renamed, 2},
		{"set:lua", func(f bool) protocol.Algorithm { return setlock.Lua{Options: setlock.Options{Fence: f}} }, 0},
		{"set:watch", func(f bool) protocol.Algorithm { return setlock.Watched{Options: setlock.Options{Fence: f}} }, 0},
		{"getset:guarded", guarded, 0}, {"getset:guarded/pinned", guarded, 2},
		{"replicated tx:renamed", func(f bool) protocol.Algorithm {
			return sentinel.Replicated{Algorithm: txlock.Renamed{Options: txlock.Options{Fence: f}}}
		}, 0},
	} {
		t.Run(a.name, func(t *testing.T) {
			source := sentinel.New("m", s.Addrs(), sentinel.Options{MaxIdle: 64})
			t.Cleanup(func() { source.Close() })
			conformance.Run(t, conformance.Lock{
				Name: a.name, Server: "sentinel",
				New: func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
					from := wrap(source.Source())
					from.Keep = a.pinned
					return compat.NewOn(from, a.make(true), o)
				},
				Sources: []compat.Source{source.Source()}, Fence: true,
			})
		})
	}
}
