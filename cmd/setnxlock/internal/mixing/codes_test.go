package mixing

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Every code on disk is what the code computes: two minutes of one processor.
func TestLongCodes(t *testing.T) {
	if !*update { // asked for, by name
		realredis.Long(t)
	}
	if underRace {
		t.Skip("under the race detector TestVerdicts computes a part")
	}
	m := must.Get(Compute(context.Background(), Shown(), nil))(t)
	now := m.Codes()
	if *update {
		must.Do(t, os.WriteFile("pairs.txt", []byte(now), 0o644))
	} else if pairs != now {
		t.Error("pairs.txt is stale: go test ./cmd/setnxlock/internal/mixing -run TestLongCodes -timeout 0 -update-mixing")
	}
}

// The codes on disk are of all parties that are shown, and those of the page's parties are what the code computes.
func TestCodesAreNotStale(t *testing.T) {
	if underRace {
		t.Skip("under the race detector TestVerdicts computes a part")
	}
	m := must.Get(summary())(t)
	lines := strings.Split(strings.TrimSuffix(pairs, "\n"), "\n")
	if len(lines) != len(Shown()) {
		t.Fatalf("pairs.txt has %d parties, want %d", len(lines), len(Shown()))
	}
	at, codes := map[string]int{}, make([][]string, len(lines))
	for i, p := range Shown() {
		list := strings.Fields(lines[i])
		if at[p.Name], codes[i] = i, list[1:]; list[0] != p.Name || len(list)-1 != len(lines)-i {
			t.Fatalf("pairs.txt, line %d: %d codes of %s, want %d of %s", i+1, len(list)-1, list[0], len(lines)-i, p.Name)
		}
	}
	compared := 0
	for _, p := range Summary() {
		for _, q := range Summary() {
			i, one := at[p.Name]
			k, two := at[q.Name]
			if !one || !two || k < i {
				continue
			}
			compared++
			if got, want := codes[i][k-i], m.code(p, q); got != want {
				t.Errorf("pairs.txt: %s and %s: %s, and the code computes %s", p.Name, q.Name, got, want)
			}
		}
	}
	if compared < 80 {
		t.Errorf("%d pairs compared", compared)
	}
}
