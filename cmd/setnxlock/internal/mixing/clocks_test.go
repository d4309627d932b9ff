package mixing

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
)

var updateClocks = flag.Bool("update-clocks", false, "write the clocks' section of cmd/setnxlock/internal/pages/guarantees.md anew")

// The data of the guarantees have the current section on clocks that disagree.
func TestClocksAreNotStale(t *testing.T) {
	skews := must.Get(Skews(context.Background()))(t)
	now := Clocks(skews)
	const guarantees = "../pages/guarantees.md"
	b := must.Get(os.ReadFile(guarantees))(t)
	if *updateClocks {
		before, _, _ := strings.Cut(string(b), "\n## Clocks that disagree\n")
		b = []byte(before + now)
		must.Do(t, os.WriteFile(guarantees, b, 0o644))
	}
	if !strings.HasSuffix(string(b), now) {
		t.Error("cmd/setnxlock/internal/pages/guarantees.md does not end with the clocks' section as it is computed now: " +
			"setnxlock race guarantees -o cmd/setnxlock/internal/pages/guarantees.md")
	}
}
