package monitor

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/internal/must"
)

// From a log to the explorer at that very state: the same on the key, and whoever holds it here holds it there.
func TestWay(t *testing.T) {
	for name, x := range map[string]struct {
		text string
		step int
	}{
		"newcmds":  {read(t, "newcmds.log"), 6},
		"redisson": {read(t, "redisson.log"), 5},
		"warned":   {read(t, "warned.log"), 4},
		"sample":   {Sample, 6},
		"classic":  {classic, 8},
	} {
		t.Run(name, func(t *testing.T) {
			log, _ := logOf(t, x.text)
			w := log.Way
			if w == nil || w.Step != x.step {
				t.Fatalf("%+v", w)
			}
			t.Log(w.Schedule)
			locks := must.Get(catalogue.With(catalogue.Locks(), w.Locks))(t)
			c, choices, err := race.ParseSchedule(w.Schedule)
			must.Do(t, err)
			c.Locks = locks
			for n, words := range w.Words {
				if words == 0 {
					continue
				}
				tr := must.Get(race.Replay(c, choices[:words]))(t)
				is, e := tr.Events[len(tr.Events)-1], log.Trace.Events[n]
				if (is.Server.Value == "") != (e.Server.Value == "") || is.Server.Writer != e.Server.Writer {
					t.Errorf("step %d: the key is %+v, want %+v", e.N, is.Server, e.Server)
				}
				for _, client := range log.Trace.Clients {
					if a, b := is.Belief[client.Name].State == race.Holds, e.Belief[client.Name].State == race.Holds; a != b {
						t.Errorf("step %d: %s holds: %v, want %v", e.N, client.Name, a, b)
					}
				}
			}
		})
	}
}
