package workbench

import (
	"slices"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/internal/must"
)

// What goes wrong in a race can be made to go wrong by the page's menus, where it does so in the race.
func TestChoices(t *testing.T) {
	faults := 0
	for _, s := range catalogue.All() {
		home := must.Get(s.Trace())(t)
		c, made, err := race.ParseSchedule(home.Schedule)
		must.Do(t, err)
		c.Locks, c.Anyway = Locks(), true
		for n, choice := range made {
			switch choice.Verb {
			case race.Step, race.Pass, race.PassUnreaped, race.Clock, race.Stale:
				continue
			}
			faults++
			offered := must.Get(At(c, made[:n]))(t).others()
			if !slices.ContainsFunc(offered, func(o Option) bool {
				is := must.Get(race.ParseWords(o.Word))(t)[0]
				return is.Verb == choice.Verb && is.Client == choice.Client && is.Server == choice.Server
			}) {
				t.Errorf("%s: %v is not offered at step %d", s.Name, choice, n+1)
			}
		}
	}
	if faults < 30 {
		t.Errorf("%d faults", faults)
	}
}
