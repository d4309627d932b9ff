package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// Whoever plays a race as the catalogue has it reaches its objective.
func TestRacesArePlayable(t *testing.T) {
	for _, s := range catalogue.All() {
		if s.Expect.Violated == "" {
			continue
		}
		cmd := exec.Command("setnxlock", "race", "play", s.Name)
		cmd.Stdin = strings.NewReader(s.Run.Schedule + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\nWell done: that was the objective") {
			t.Errorf("%s: %v\n%s", s.Name, err, out)
		}
	}
}

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
