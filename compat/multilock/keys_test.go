package multilock_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		keys   []string
		joined string
		split  []string
	}{
		{[]string{"b", "a", "b"}, "all(a,b)", []string{"a", "b"}},
		{[]string{"a"}, "all(a)", []string{"a"}},
		{[]string{"all(a,b)", "c"}, "all(all%28a%2Cb%29,c)", []string{"all(a,b)", "c"}},
		{[]string{"ä\x00\xff\n", ",", "%2C"}, "all(%252C,%2C,ä\x00\xff\n)", []string{"%2C", ",", "ä\x00\xff\n"}},
	} {
		got := multilock.Join(c.keys...)
		if got != c.joined {
			t.Errorf("Join(%q) is %q, want %q", c.keys, got, c.joined)
		}
		if keys, err := multilock.Split(got); err != nil || !slices.Equal(keys, c.split) {
			t.Errorf("Split(%q) is %q, %v; want %q", got, keys, err, c.split)
		}
	}
	if got := multilock.Join(); got != "" {
		t.Errorf("Join of nothing is %q, which a Locker would take", got)
	}
}

// What Join did not make is refused: one set must not have two names, and a
// key that was meant for a lock of one key must not be read as a set.
func TestSplitRefuses(t *testing.T) {
	for _, s := range []string{"", "a", "all()", "all(,a)", "all(b,a)", "all(a,a)", "all(a", "a,b)", "all(a)b", "report(1)", "all(%41)", "all(a%)", "all(%2c)"} {
		if keys, err := multilock.Split(s); !errors.Is(err, protocol.ErrInvalid) {
			t.Errorf("Split(%q) is %q, %v; want ErrInvalid", s, keys, err)
		}
	}
}

// FuzzSplit: whatever keys there are, they come back; and what is read as a set
// is written as it was.
func FuzzSplit(f *testing.F) {
	f.Add("", "a", "b")
	f.Add("all(", "all(a,b)", "%28")
	f.Add("x:", "\x00", "é,(")
	f.Fuzz(func(t *testing.T, prefix, a, b string) {
		if a != "" && b != "" {
			want := slices.Compact(slices.Sorted(slices.Values([]string{prefix + a, prefix + b})))
			got, err := multilock.Split(prefix + multilock.Join(a, b))
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q + Join(%q, %q): %q, %v", prefix, a, b, got, err)
			}
		}
		keys, err := multilock.Split(a)
		if err != nil {
			return
		}
		if back, err := multilock.Split(multilock.Join(keys...)); err != nil || !slices.Equal(back, keys) {
			t.Errorf("Split(%q) is %q, which comes back as %q, %v", a, keys, back, err)
		}
	})
}
