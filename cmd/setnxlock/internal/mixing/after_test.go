package mixing

import (
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// What happened after real clients met on a key, reproduced by the models: who holds the lock at
// the end, and what the key's value is.
func TestAfterEffects(t *testing.T) {
	for _, x := range []struct {
		what, schedule string
		hold           string // the clients that believe they hold
		key            string // the beginning of the key's value; "": no key
		ttl            bool
	}{
		{"redis-py 2.9 deletes the lock of the npm client that took its own: a third client enters",
			"theirs/redis-py-2.9+theirs/npm-redis-lock-0.0 2.8 3x1 : C1 C2 C2 C2 C1 C1 C3", "C2 C3", "t=10.001s", false},
		{"npm redis-lock polls a token once: it overwrites the value and drops the TTL, and the holder cannot release it",
			"theirs/redis-py-2.10+theirs/npm-redis-lock-0.0 2.8 2x1 : C1 C1 C2 C2 C2 C1 C1", "", "t=10.001s", false},
		{"jedis-lock's master locks over a token, and deletes it",
			"theirs/redis-py-2.10+theirs/jedis-lock-1.0.1 2.8 2x1 : C1 C1 C2 C2 C2 C2", "C1", "", false},
		{"jedis 1.0.0 throws at a token, and its holder is unharmed",
			"theirs/redis-py-2.10+theirs/jedis-lock 2.8 2x1 : C1 C1 C2 C2", "C1", "94213c", true},
		{"redis-mutex, beaten to a dead lock, leaves its own time on it: the winner's unlock does nothing",
			`theirs/redis-mutex 2.8 2x1 given="SET {key} t=-2s" : C1 C1 +1ms C2 C2 C1 C2 C1`, "", "t=10", false},
		{"redis-objects 1.7 takes a token that begins with a number",
			"theirs/redis-py-2.10+theirs/redis-objects-1.7 2.8 2x1 : C1 C1 C2 C2 C2", "C1 C2", "", true},
		{"Redis in Action's repair ends a live lock of times",
			"ours/getset:guarded/redis-docs+theirs/redis-in-action/3s 2.8 2x1 : C1 C2 C2 C2 +3.001s", "C1", "", false},
	} {
		got, err := race.ReplaySchedule(x.schedule, Locks())
		if err != nil {
			t.Errorf("%s: %v\n%s", x.what, err, view.Timeline(got, view.TimelineOptions{}))
			continue
		}
		last := got.Events[len(got.Events)-1]
		var hold []string
		for _, c := range got.Clients {
			if last.Belief[c.Name].State == race.Holds {
				hold = append(hold, c.Name)
			}
		}
		s := last.Server
		if strings.Join(hold, " ") != x.hold || !strings.HasPrefix(s.Value, x.key) || x.key == "" && s.Value != "" || (s.TTL >= 0) != x.ttl {
			t.Errorf("%s: %q hold, the key is %q with TTL %d\n%s", x.what, hold, s.Value, s.TTL, view.Timeline(got, view.TimelineOptions{}))
		}
	}
}
