// Package traces reads the traces that tests draw. Tests only.
package traces

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Saved returns those in a folder, by their names; there are some.
func Saved(t testing.TB, dir string) map[string]race.Trace {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(dir, "*.json")))(t)
	if len(files) == 0 {
		t.Fatalf("no traces in %s", dir)
	}
	all := map[string]race.Trace{}
	for _, name := range files {
		f := must.Get(os.Open(name))(t)
		defer f.Close()
		all[strings.TrimSuffix(filepath.Base(name), ".json")] = must.Get(race.ReadTrace(f))(t)
	}
	return all
}
