package racecmd

import (
	"errors"
	"strings"
	"testing"
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
	for value, want := range map[string]string{
		"6.2": "the nearest are 5.0 and 7.0; ", "2.5": "the nearest are 2.4 and 2.6; ", "2.6.17": "the nearest are 2.6.12 and 2.8; ",
		"8.0": "the newest is 7.0; ", "1.0": "the oldest is 1.2; ", "dragonfly": "there are 1.2, ", "2.x": "there are 1.2, ",
	} {
		var f *Failure
		if err := chooseServer(value); !errors.As(err, &f) || !strings.HasPrefix(f.Hint, want) {
			t.Errorf("%s: %+v, want %s", value, f, want)
		}
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
