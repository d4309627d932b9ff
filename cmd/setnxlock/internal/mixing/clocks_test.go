package mixing

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"
)

var updateClocks = flag.Bool("update-clocks", false, "write the clocks' section of cmd/setnxlock/internal/pages/guarantees.md anew")

// The data of the guarantees have the current section on clocks that disagree.
func TestClocksAreNotStale(t *testing.T) {
	skews, err := Skews(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	now := Clocks(skews)
	const guarantees = "../pages/guarantees.md"
	b, err := os.ReadFile(guarantees)
	if err != nil {
		t.Fatal(err)
	}
	if *updateClocks {
		before, _, _ := strings.Cut(string(b), "\n## Clocks that disagree\n")
		b = []byte(before + now)
		if err := os.WriteFile(guarantees, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasSuffix(string(b), now) {
		t.Error("cmd/setnxlock/internal/pages/guarantees.md does not end with the clocks' section as it is computed now: " +
			"setnxlock race guarantees -o cmd/setnxlock/internal/pages/guarantees.md")
	}
}
