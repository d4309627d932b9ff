//go:build !race

// Without the race detector, as TestLongGuaranteesAreNotStale.

package explore

import (
	"context"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
)

// The lock that this library chooses by default holds all it promises, but for
// what no lock survives.
func TestDefaultHolds(t *testing.T) {
	unavoidable := map[string]bool{"restart": true, "failover": true, "evict": true, "pause": true}
	for _, x := range FaultsOf("tx:renamed") {
		c := Cell{Algorithm: "tx:renamed", Server: "2.4", Fault: x.Name, Clients: 2}
		var f filler
		must.Do(t, f.fill(context.Background(), &c))
		if !c.Holds() && !unavoidable[x.Name] {
			t.Errorf("tx:renamed under %q: %+v", x.Name, c.Breaks)
		}
	}
}
