package racetest_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/racetest"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// hasty is somebody's own lock: SET NX with a TTL, and a release that deletes
// what it finds.
type hasty struct {
	txlock.Options
}

func (h hasty) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: h.Token(), Until: protocol.Until(now, ttl)}
	reply, err := c.Do("SET", key, l.Value, "NX", "PX", ttl.Milliseconds())
	if err == nil && reply == nil {
		err = &protocol.HeldError{Key: key}
	}
	return l, err
}

func (h hasty) Release(l protocol.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) {
		_, err := c.Do("DEL", l.Key)
		return []any{int64(1)}, err
	}}
}

func (hasty) Traits() protocol.Traits { return protocol.Traits{} }

func newHasty(token func() string) protocol.Algorithm {
	return hasty{txlock.Options{Token: token}}
}

// recorder is a test that is expected to fail.
type recorder struct{ failed, logged string }

func (r *recorder) Helper()                           {}
func (r *recorder) Fatalf(format string, args ...any) { r.failed += fmt.Sprintf(format, args...) }
func (r *recorder) Logf(format string, args ...any)   { r.logged += fmt.Sprintf(format, args...) }

func TestCheck(t *testing.T) {
	var r recorder
	racetest.Check(&r, race.Config{Algorithm: "hasty", New: newHasty, Server: "7.0", Ticks: 3})
	for _, want := range []string{"is violated in", "SET «C1» NX PX 10000", "DEL → 0", "lock.report", "schedule"} {
		if !strings.Contains(strings.ReplaceAll(r.failed, "replay ", "schedule "), want) {
			t.Errorf("the failure lacks %q:\n%s", want, r.failed)
		}
	}
	r = recorder{}
	racetest.Check(&r, race.Config{Algorithm: "tx:renamed", Ticks: 3, MaxStates: 50})
	if !strings.Contains(r.failed, "nothing is proved") {
		t.Errorf("no room for all states: %q", r.failed)
	}
	racetest.Check(t, race.Config{Algorithm: "tx:renamed", Ticks: 3, Faults: race.Faults{Crash: true, Late: 1}})
}

// The line that a failure prints replays it: it breaks the same at the same step.
func TestReplay(t *testing.T) {
	for name, c := range map[string]race.Config{
		"race.Config{New: newHasty}": {New: newHasty, Server: "7.0", Ticks: 3, TTL: 5 * time.Second, Skew: []time.Duration{0, time.Second}},
		"race.Config{New: …}":        {New: func(token func() string) protocol.Algorithm { return newHasty(token) }, Algorithm: "hasty", Server: "7.0", Ticks: 3},
		"race.Config{}":              {Algorithm: "tx:classic/never", Faults: race.Faults{Crash: true}},
	} {
		var found, again recorder
		racetest.Check(&found, c)
		_, rest, ok := strings.Cut(found.failed, "racetest.Replay(t, "+name+", ")
		if !ok {
			t.Errorf("no line with %s:\n%s", name, found.failed)
			continue
		}
		quoted := must.Get(strconv.QuotedPrefix(rest))(t)
		racetest.Replay(&again, race.Config{New: c.New}, must.Get(strconv.Unquote(quoted))(t))
		broke, _, _ := strings.Cut(found.failed, " is violated")
		if !strings.HasPrefix(again.failed, broke+" is violated at step ") || !strings.Contains(again.failed, "racetest.Replay(t, ") {
			t.Errorf("%s:\n%s\n%s", name, found.failed, again.failed)
		}
		if strings.Contains(found.failed, "setnxlock race replay") != (c.New == nil) {
			t.Errorf("%s: the command's line is for locks that it knows:\n%s", name, found.failed)
		}
	}
	racetest.Replay(t, race.Config{New: newMyLock}, "own 2.4 2x1 : C1 C2")
	for line, want := range map[string]string{"C1 banana": "banana", "own 2.4 2x1 : C1.resume": "the schedule can't be made"} {
		var r recorder
		if racetest.Replay(&r, race.Config{New: newMyLock}, line); !strings.Contains(r.failed, want) {
			t.Errorf("%q: %s", line, r.failed)
		}
	}
}

func newMyLock(token func() string) protocol.Algorithm {
	return txlock.Renamed{Options: txlock.Options{Token: token}}
}

// docs/explorer.md shows it.
func TestMyLock(t *testing.T) {
	racetest.Check(t, race.Config{
		Server: "2.4", Clients: 2, Attempts: 2, Ticks: 3, Faults: race.Faults{LostReplies: 1},
		New: newMyLock, // func(token func() string) protocol.Algorithm
	})
}

// A test of one's own lock is one call.
func ExampleCheck() {
	var t recorder // in a test of your own: t *testing.T
	racetest.Check(&t, race.Config{
		Algorithm:  "hasty",
		New:        newHasty,
		Server:     "7.0",
		Ticks:      3,
		Invariants: []string{"exclusion"},
	})
	fmt.Println(strings.SplitN(t.failed, " (", 2)[0])
	// Output: exclusion is violated in 5 steps
}
