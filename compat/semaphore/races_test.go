package semaphore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/racetest"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/internal/must"
)

// In every order of three clients' commands and under every fault that leaves the server its data, at most two hold a
// semaphore of two; with clocks ten seconds apart, too, and whichever lock its slots are.
func TestRaces(t *testing.T) {
	apart := []time.Duration{0, 10 * time.Second, -10 * time.Second}
	for i, c := range []race.Config{
		{Faults: race.Faults{Crash: true, Late: 1}},
		{Faults: race.Faults{LostReplies: 1, Late: -1}},
		{Faults: race.Faults{LostRequests: 1, Late: -1}},
		{Faults: race.Faults{LateRequests: 1, Late: -1}},
		{Faults: race.Faults{Cuts: 1, Late: -1}},
		{Faults: race.Faults{Refusals: 1, Late: -1}},
		{Faults: race.Faults{Unreaped: true, Late: -1}, Ticks: 2},
		{Skew: apart, Faults: race.Faults{Late: -1}, Ticks: 2},
		{Keep: true, Faults: race.Faults{Late: -1}, Ticks: 2},
		{Extend: true, Faults: race.Faults{Late: -1}},
		{Fence: true, Faults: race.Faults{Late: -1}},
		{Algorithm: "semaphore/renamed", Server: "2.4", Faults: race.Faults{LostReplies: 1, Late: -1}},
		{Algorithm: "semaphore/lua", Server: "2.6.12", Faults: race.Faults{LostReplies: 1, Late: -1}},
		{Clients: 2, Attempts: 2, Faults: race.Faults{LostReplies: 1, Crash: true, Late: -1}},
	} {
		if c.Server == "" { // the oldest and the newest by turns: the guarantees have each fault on both
			c.Server = []string{"2.2.5", "7.0"}[i%2]
		}
		if c.Algorithm == "" {
			c.Algorithm = "semaphore"
		}
		check(t, c)
	}
}

// One that is let in alone, and two who are let in together: whoever has the key keeps out who comes with another limit.
func TestRacesOfTwoLimits(t *testing.T) {
	for _, c := range []race.Config{
		{Clients: 3, Faults: race.Faults{Late: -1}, Ticks: 2},
		{Clients: 2, Faults: race.Faults{LostReplies: 1, Crash: true, Late: -1}},
		{Clients: 2, Faults: race.Faults{LateRequests: 1, Late: -1}},
	} {
		c.Algorithm, c.Server = "semaphore/one+semaphore", "2.2.5"
		check(t, c)
	}
}

func check(t *testing.T, c race.Config) {
	if c.Clients == 0 {
		c.Clients = 3
	}
	if c.Attempts == 0 {
		c.Attempts = 1
	}
	if c.Ticks == 0 {
		c.Ticks = 1
	}
	t.Run(race.Schedule(c, nil), func(t *testing.T) { racetest.Check(t, c) })
}

// A server that loses its data lets one more in; and one who lets three in where two may is found.
func TestRacesThatAreLost(t *testing.T) {
	loose := race.Locks{"loose": {Among: true, Most: 2, New: func(token func() string, _ bool) protocol.Algorithm {
		return semaphore.Lock{Options: semaphore.Options{N: 3, Token: token, Pick: func(int) int { return 0 }}}
	}}}
	for _, c := range []race.Config{
		{Algorithm: "semaphore", Faults: race.Faults{Restart: 1, Late: -1}},
		{Algorithm: "semaphore", Faults: race.Faults{Evict: 1, Late: -1}},
		{Algorithm: "semaphore", Faults: race.Faults{Failover: 1, Late: -1}},
		{Algorithm: "loose", Locks: loose, Faults: race.Faults{Late: -1}},
	} {
		c.Clients, c.Attempts, c.Ticks, c.Invariants = 3, 1, 1, []string{"exclusion"}
		found := must.Get(race.Explore(t.Context(), c))(t)
		if found.Trace == nil || !strings.Contains(found.Trace.Events[len(found.Trace.Events)-1].Violation.Text, "more clients hold the lock than may") {
			t.Errorf("%s: nothing broke under %+v", c.Algorithm, c.Faults)
		}
	}
}
