package getsetlock_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// TestConformance runs the suite over each client's dialect, once for those that
// are alike but for the key's name: Guarded where there is WATCH, ListCAS on 2.0, Classic before;
// and over TwoKeys.
func TestConformance(t *testing.T) {
	for _, s := range conformance.Servers(t) {
		if !strings.HasPrefix(s.Name, "at-") && !slices.Contains([]string{"oldredis-1.2", "oldredis-2.0", "oldredis-2.2", "oldredis-7.0", "real-redis-server"}, s.Name) {
			continue // compat/conformance runs this package's own dialects on all of them
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, d := range unlike(t) {
				t.Run(d.Name, func(t *testing.T) {
					t.Parallel()
					conformance.Run(t, conformance.Algorithm{
						Name: d.Name, Ambiguous: !d.Nonce,
						New: func(fence bool) protocol.Algorithm {
							o := getsetlock.Options{Dialect: d, Fence: fence}
							switch {
							case s.Older("2.0"):
								return getsetlock.Classic{Options: o}
							case s.Older("2.2"):
								return getsetlock.ListCAS{Options: o}
							}
							return getsetlock.Guarded{Options: o}
						},
					}.On(s))
				})
			}
			two := conformance.Algorithm{
				Name: "mlanett-redis-lock",
				New:  func(fence bool) protocol.Algorithm { return getsetlock.TwoKeys{Fence: fence} },
			}.On(s)
			two.Keys = func(prefix, key string) []string {
				owner, deadline := dialect.Pair(prefix + key)
				return []string{owner, deadline, protocol.Aux(prefix+key, "fence")}
			}
			t.Run("mlanett-redis-lock", func(t *testing.T) { t.Parallel(); conformance.Run(t, two) })
		})
	}
}

// unlike are the dialects of the clients, one of each that differ.
func unlike(t *testing.T) []getsetlock.Dialect {
	var list []getsetlock.Dialect
	seen := map[getsetlock.Dialect]bool{}
	for _, f := range timed() {
		d := named(t, f.Name)
		nameless := d
		nameless.Name = ""
		if !seen[nameless] {
			seen[nameless] = true
			list = append(list, d)
		}
	}
	return list
}
