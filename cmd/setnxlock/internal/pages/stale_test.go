//go:build !race && !js

// Without the race detector: under it the matrix takes ten minutes and finds
// the same.

package pages_test

import (
	"context"
	"flag"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

var updateGuarantees = flag.Bool("update-guarantees", false, "write guarantees.md anew")

const clocksSection = "\n## Clocks that disagree\n"

// The guarantees that docs show are the ones that the code computes today.
func TestLongGuaranteesAreNotStale(t *testing.T) {
	if !*updateGuarantees {
		realredis.Long(t)
	}
	// As the command does: most of what is allocated is short-lived.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	m := must.Get(race.Guarantees(context.Background(), nil))(t)
	for _, c := range m.Cells {
		if c.Bound != "" {
			t.Errorf("%s on %s, %s, %d clients: no room for all states: nothing is proved", c.Algorithm, c.Server, c.Fault, c.Clients)
		}
	}
	const file = "guarantees.md" // docs and the site show it
	now := pages.Guarantees(m)
	text := must.Get(os.ReadFile(file))(t)
	doc, clocks, _ := strings.Cut(string(text), clocksSection) // computed, and compared, by cmd/setnxlock/internal/mixing
	if *updateGuarantees {
		doc = now
		must.Do(t, os.WriteFile(file, []byte(now+clocksSection+clocks), 0o644))
	}
	if doc == now {
		return
	}
	was, is := strings.Split(doc, "\n"), strings.Split(now, "\n")
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			t.Fatalf("guarantees.md is stale: line %d says\n%s\nand the code now\n%s\nIf you know why, run: "+
				"setnxlock race guarantees -o cmd/setnxlock/internal/pages/guarantees.md, and go test ./cmd/setnxlock/internal/pages -run Docs -update",
				i+1, was[i], is[i])
		}
	}
	t.Fatalf("guarantees.md is stale: it has %d lines, want %d", len(was), len(is))
}
