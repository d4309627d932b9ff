package txlock

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// FuzzTimestamp: a value that a timestamp lock would read as its deadline is
// never given a TTL, no matter which client wrote it.
func FuzzTimestamp(f *testing.F) {
	for _, v := range []string{
		"1795238718", "1795238718.94", "1795238718058", "1795238718058123456", "1310551200.0", "1795238718.058123456789012",
		"1795238718-4711-70123", "1795238718:4711", "fb2d0a1e-3f44-4e2e-8f0a-000000000000:1795238718058",
		"94213c24deadbeef94213c24deadbeef", "host:4711", "1", "true", "",
	} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		for _, d := range getsetlock.Dialects() {
			if _, ok := d.Parse(v); ok && !dialect.IsTime(v) {
				t.Errorf("%q is a time in %s, and would be repaired", v, d.Name)
			}
		}
	})
}

func TestTokensAreNoTimestamps(t *testing.T) {
	for _, v := range []string{"94213c24deadbeef94213c24deadbeef", "fb2d0a1e-3f44-4e2e-8f0a-000000000000", "host:4711", "1", "true", "", "locked", "179523871"} {
		if dialect.IsTime(v) {
			t.Errorf("%q is taken for a timestamp and would never be repaired", v)
		}
	}
}
