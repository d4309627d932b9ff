package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const repository = "../../.."

var update = flag.Bool("update", false, "write the tables of docs/guarantees.md and docs/comparison.md")

// The tables of the docs are those of the data that the explorer computed.
func TestTablesAreNotStale(t *testing.T) {
	g, err := readGuarantees(repository)
	if err != nil {
		t.Fatal(err)
	}
	for page, tables := range map[string]map[string]string{
		"guarantees.md": {"rows": g.rows(), "summary": g.summary(), "clocks": g.clocks},
		"comparison.md": {"verdicts": g.compared()},
	} {
		name := filepath.Join(repository, "docs", page)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for what, now := range tables {
			before, rest, ok := strings.Cut(text, "<!-- "+what+": cd compat/race/handbook && go test . -update -->\n")
			was, after, ends := strings.Cut(rest, "<!-- end of "+what+" -->")
			if !ok || !ends {
				t.Errorf("%s has no table of the %s", page, what)
				continue
			}
			if was != now && !*update {
				t.Errorf("%s: the %s are\n%s\nand the data say\n%s\ncd compat/race/handbook && go test . -update", page, what, was, now)
			}
			text = before + "<!-- " + what + ": cd compat/race/handbook && go test . -update -->\n" + now + "<!-- end of " + what + " -->" + after
		}
		if *update {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The worst and the best are told as they are.
func TestGuarantees(t *testing.T) {
	g, err := readGuarantees(repository)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ lock, server, fault, want string }{
		{"getset:classic", "1.2", "none", "accuracy, exclusion, ownership"},
		{"tx:renamed", "2.4", "lost reply", "holds"},
		{"tx:renamed", "2.2", "lost reply", "refused"},
		{"set:lua", "7.0", "failover", "exclusion"},
		{"redlock", "7.0", "failover", ""},
		{"redlock", "7.0", "server down", "holds"},
	} {
		if got := g.of(c.lock, c.server, c.fault); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if g.Servers[0] != "1.2" || g.Servers[2] != "2.2.5" || g.Servers[3] != "2.2" || !strings.HasPrefix(strings.Join(g.Servers[5:], " "), "2.6 2.6.12 2.8") {
		t.Errorf("in order: %q", g.Servers)
	}
}
