package main

import (
	"strings"
	"testing"
)

const repository = "../../.."

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

// A code is said in words, from either side.
func TestSentence(t *testing.T) {
	a, b := &Fleet{Short: "A"}, &Fleet{Short: "B"}
	for code, want := range map[string]string{
		".":      "No two clients hold it at once, and what a dead client has left is taken again.",
		"x1":     "Two hold it at once, with one client of each.",
		"lb*":    "Two hold it late, with two clients of B and one of A; neither fleet does so alone.",
		"la<d>H": "Two hold it late, with two clients of A and one of B. If a client of B dies half-way, A never gets it again; nor does B. If a client of A dies holding it, B never gets it again.",
		".>O":    "Once a client of A has released it, B never gets it again.",
	} {
		if got, err := sentence(code, a, b); got != want || err != nil {
			t.Errorf("%s: %q, %v", code, got, err)
		}
	}
	if got, err := sentence("la<d", a, a); got != "Two hold it late, with three clients. If a client of A dies half-way, A never gets it again." || err != nil {
		t.Errorf("alone: %q, %v", got, err)
	}
	for _, code := range []string{"q1", "x", "xz", ".<", ".<q", ".=H"} {
		if got, err := sentence(code, a, b); err == nil {
			t.Errorf("%s: %q", code, got)
		}
	}
}
