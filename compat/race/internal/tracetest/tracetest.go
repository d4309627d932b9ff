// Package tracetest reads the traces that tests draw.
package tracetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
)

// Read reads each trace of a folder, by the name of its file without .json. A folder without one
// fails the test.
func Read(t testing.TB, dir string) map[string]race.Trace {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no traces in %s: %v", dir, err)
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
