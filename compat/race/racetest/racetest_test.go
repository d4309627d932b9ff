package racetest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/racetest"
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
	return protocol.Change{Key: l.Key, Value: l.Value, By: func(c *protocol.Conn) ([]any, error) {
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
