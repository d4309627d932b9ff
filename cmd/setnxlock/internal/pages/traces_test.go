package pages

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
)

var update = flag.Bool("update", false, "rewrite the tables in docs")

// renders has the traces that are drawn.
const renders = "../../../../compat/race/view/testdata/render"

// savedTraces reads the traces that tests draw, by their names.
func savedTraces(t *testing.T) map[string]race.Trace {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(renders, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces in %s: %v", renders, err)
	}
	all := map[string]race.Trace{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := race.ReadTrace(f)
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".json")] = tr
	}
	return all
}
