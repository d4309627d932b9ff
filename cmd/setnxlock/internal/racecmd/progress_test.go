package racecmd

import (
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
)

// The line of race explore says how far it is; of how much is left nothing as long as nobody knows.
func TestSearchedSaysAll(t *testing.T) {
	for _, c := range []struct {
		race.Stats
		want string
	}{
		{race.Stats{Left: -1}, "[####................]  0 states  0/s  0 MB  depth 0  10.0 s"},
		{race.Stats{States: 20_000, Depth: 9, Memory: 3 << 20, Left: -1}, "[####................]  20,000 states  2,000/s  3 MB  depth 9  10.0 s"},
		{race.Stats{States: 3_000_000, Depth: 20, Memory: 150 << 20, Left: 1_000_000},
			"[####................]  3,000,000 states  300,000/s  150 MB  depth 20  10.0 s  about 75 %, 3 s more"},
	} {
		if got := searched(0, &c.Stats, 10*time.Second); got != c.want {
			t.Errorf("%+v: %q, want %q", c.Stats, got, c.want)
		}
	}
}
