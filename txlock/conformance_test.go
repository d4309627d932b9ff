package txlock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// TestConformance runs the suite over each client's dialect, once for those that
// write alike; on a server that does not count as the client does, it refuses.
func TestConformance(t *testing.T) {
	for _, s := range conformance.Servers(t) {
		if !strings.HasPrefix(s.Name, "at-") && !slices.Contains([]string{"oldredis-2.0", "oldredis-2.2", "oldredis-2.4", "oldredis-2.6", "oldredis-7.0", "real-redis-server"}, s.Name) {
			continue // compat/conformance runs this package's own locks on all of them
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, f := range unlike() {
				t.Run(f.Name, func(t *testing.T) {
					t.Parallel()
					fleet := must.Get(txlock.Named(f.Name))(t)
					conformance.Run(t, conformance.Algorithm{
						Name: f.Name,
						New: func(fence bool) protocol.Algorithm {
							a := fleet
							a.Fence = fence
							return a
						},
					}.On(s))
				})
			}
		})
	}
}

// unlike are the formats of the clients, one of each that differ in what we write.
func unlike() []dialect.Format {
	var list []dialect.Format
	for _, f := range tokens() {
		same := func(g dialect.Format) bool {
			return g.Token == f.Token && g.Repair == f.Repair && (g.TTL == dialect.TTLMillis) == (f.TTL == dialect.TTLMillis)
		}
		if !slices.ContainsFunc(list, same) {
			list = append(list, f)
		}
	}
	return list
}
