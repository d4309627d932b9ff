package race

import (
	"strings"
	"testing"
)

// A lock over a kept connection holds where the same lock holds without one,
// under every accident of the guarantees, and breaks in the same invariants elsewhere.
func TestKept(t *testing.T) {
	for _, name := range kept {
		for _, server := range []string{"2.2", "2.4", "2.6", "7.0"} {
			for _, x := range AccidentsOf(name) {
				var broken [2]string
				for i, a := range []string{name, name + "/kept"} {
					c := Cell{Algorithm: a, Server: server, Accident: x.Name, Clients: 2}
					cfg := c.Config()
					cfg.Each = true
					full, err := cfg.complete()
					if err != nil {
						t.Fatal(err)
					}
					if why, err := refusal(full); err != nil || why != "" {
						continue
					}
					r := explored(t, cfg)
					var list []string
					for _, b := range r.Breaks {
						list = append(list, b.Verdict.Violated)
					}
					broken[i] = strings.Join(list, " ")
					t.Log(a, server, x.Name, r.States, broken[i])
				}
				if broken[0] != broken[1] {
					t.Errorf("%s on %s, %s: breaks %q, kept %q", name, server, x.Name, broken[0], broken[1])
				}
			}
		}
	}
}
