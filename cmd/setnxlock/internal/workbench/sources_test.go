package workbench

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

// The page has the code of every line at which a client of a lock can stand, from its first command
// to its release: a file that is missing there ends the drawing of the page.
func TestSources(t *testing.T) {
	var files map[string]string
	must.Do(t, json.Unmarshal(must.Get(sources(t.Context()))(t), &files))
	stood := 0
	for _, l := range locks.All() {
		name := l.Name
		if l.Family() == "rw" {
			name = "rw:read+rw:write"
		}
		c := race.Config{Algorithm: name, Server: "8.6", Clients: 2, Attempts: 1, Locks: Locks()}
		if _, err := At(c, nil); err != nil {
			c.Server = "7.0"
		}
		var choices []race.Choice
		for range 12 {
			if _, err := At(c, choices); err != nil {
				break
			}
			for _, s := range must.Get(race.Spots(c, choices))(t) {
				for _, at := range []race.Line{s.Lock, s.Engine} {
					if at.N == 0 {
						continue
					}
					stood++
					if lines := strings.Count(files[at.File], "\n"); lines < at.N {
						t.Errorf("%s: a client stands at %s:%d, of which the page has %d lines", name, at.File, at.N, lines)
					}
				}
			}
			choices = append(choices, race.Choice{})
		}
	}
	if stood < 100 {
		t.Errorf("clients stood at %d lines only", stood)
	}
}
