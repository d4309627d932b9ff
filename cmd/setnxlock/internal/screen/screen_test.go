package screen

import (
	"testing"
	"unicode/utf8"
)

func TestProgress(t *testing.T) {
	for _, c := range []struct{ done, of int }{{0, 10}, {5, 10}, {10, 10}, {11, 10}, {-1, 10}, {7, 1_000_000}} {
		if bar := progress(c.done, c.of); utf8.RuneCountInString(bar) > 60 || bar[:2] != "  " {
			t.Errorf("%d of %d: %q", c.done, c.of, bar)
		}
	}
	if bar := progress(5, 10); bar != "   50% |███████████████               | (5/10)" {
		t.Errorf("%q", bar)
	}
	if bar := progress(5, -1); bar != "  5" {
		t.Errorf("of an unknown number: %q", bar)
	}
}
