package racecmd

import (
	"errors"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
)

func TestSuggest(t *testing.T) {
	names := []string{"getset/double-takeover", "getset/float-stamp", "tx/ttl-repair", "tx/ttl-repair-revives"}
	for value, want := range map[string]string{
		"double-takeovr":    "perhaps getset/double-takeover",
		"tx/double":         "no",
		"ttl-repai":         "perhaps tx/ttl-repair, tx/ttl-repair-revives",
		"getset/flaot-stam": "perhaps getset/float-stamp",
		"":                  "no",
		"x":                 "no",
	} {
		if got := suggest(value, names, "no"); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

func TestServerHints(t *testing.T) {
	var f *exit.Failure
	if err := chooseServer("6.2"); !errors.As(err, &f) || !strings.HasPrefix(f.Hint, "there are 1.2, ") {
		t.Errorf("6.2: %+v", f)
	}
	if err := chooseServer("2.4"); err != nil {
		t.Error(err)
	}
}

func TestSpan(t *testing.T) {
	for in, want := range map[string]string{
		"1.2 2.0":                 "to 2.0",
		"2.2.5 2.2 2.4 twemproxy": "2.2.5-2.4, twemproxy",
		"7.0 noscript":            "7.0, noscript",
		"5.0 7.0":                 "from 5.0",
		"1.2 2.4":                 "1.2, 2.4",
		"":                        "",
	} {
		if got := span(strings.Fields(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
