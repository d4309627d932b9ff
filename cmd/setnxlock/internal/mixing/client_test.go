package mixing

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
)

func format(t *testing.T, name string) dialect.Format {
	t.Helper()
	return must.Get(dialect.Lookup(name))(t)
}

// Every client that reads a timestamp has a way to read it: one that has none could not be beside another
// client's value, and ended the program.
func TestEveryTimestampIsRead(t *testing.T) {
	for _, f := range dialect.All() {
		if f.Kind.Timed() && quirksOf()[f.Name].reader == "" {
			t.Errorf("%s has no reader", f.Name)
		}
	}
}

// machinery since 1.10.3 sets the TTL with the key, and again after a takeover. To every machinery a GETSET that
// returns nothing is an error: it does not hold what it has just written.
func TestMachineryDropsWhatItWrote(t *testing.T) {
	a := model(format(t, "machinery-1.10"))
	s := oldredis.Run(t, "7.0")
	c := s.Dial()
	ttl := func(what string) {
		t.Helper()
		if n, err := redis.Int(do(t, c, "TTL", "k"), nil); err != nil || n != 10 {
			t.Errorf("%s: a ttl of %d s, %v", what, n, err)
		}
	}
	for _, what := range []string{"taken", "taken over"} {
		if _, err := a.Acquire(protocol.NewConn(c), noon, "k", lease); err != nil {
			t.Fatal(what, err)
		}
		ttl(what)
		if _, err := a.Acquire(protocol.NewConn(c), noon, "k", lease); !errors.Is(err, protocol.ErrHeld) {
			t.Errorf("%s: a second client: %v", what, err)
		}
		do(t, c, "SET", "k", "1") // expired, and without a ttl
	}
	for _, name := range []string{"machinery", "machinery-1.10"} {
		if won, thrown := (timed{client{format(t, name), quirksOf()[name], nil}}).won("1", true, "", false, noon); won || thrown == nil {
			t.Errorf("%s, whose GETSET returned nothing: %v, %v", name, won, thrown)
		}
	}
}

// The first moment at which each client treats a value as expired: at its end, a millisecond after
// it, or at the next second for a clock whose fraction is cut off or rounded.
func TestTakenFrom(t *testing.T) {
	for _, x := range []struct {
		client, value string
		from          time.Duration // after noon
	}{
		{"redis-py-2.9", "1795238740.9", 10*time.Second + 901*time.Millisecond},
		{"redis-py-2.9", "1795238740", 10*time.Second + time.Millisecond},
		{"redis-mutex", "1795238740.9", 10*time.Second + 900*time.Millisecond},
		{"redset", "1795238740.9", 10*time.Second + 911*time.Millisecond},
		{"resque-lock", "1795238740", 11 * time.Second},
		{"resque-lock", "1795238740.9", 11 * time.Second},
		{"lonely-job", "1795238740", 10 * time.Second},
		{"lonely-job", "1795238740.9", 10 * time.Second}, // 0.9 s too soon
		{"node-resque", "1795238740", 10*time.Second + 500*time.Millisecond},
		{"jedis-lock", "1795238740900", 10*time.Second + 901*time.Millisecond},
		{"npm-redis-lock-0.0", "1795238740900", 10*time.Second + 900*time.Millisecond},
		{"PT-redis-lock", "1795238740-4711-7", 11 * time.Second},
	} {
		for _, late := range []bool{false, true} {
			s := oldredis.Run(t, "7.0")
			c := s.Dial()
			do(t, c, "SET", "k", x.value)
			at := noon.Add(x.from)
			if !late {
				at = at.Add(-time.Millisecond)
			}
			if _, err := model(format(t, x.client)).Acquire(protocol.NewConn(c), at, "k", lease); (err == nil) != late {
				t.Errorf("%s, %s on the key, at %v: %v", x.client, x.value, at.Sub(noon), err)
			}
		}
	}
}

// What each kind of release does to a key that it still owns, or that another client has taken,
// before and after the end of the lease.
func TestReleasesByKind(t *testing.T) {
	const earlier, later = "1795238735.5", "1795238799.5"
	for _, x := range []struct {
		client string
		on     string // the key at the release; "": what the client wrote
		after  time.Duration
		gone   bool
	}{
		{"ohm-0.1", later, time.Second, true}, // DEL without comparing
		{"ohm-0.1", later, time.Minute, true},
		{"redis-objects-1.3", later, time.Second, true}, // if its own timestamp has not expired
		{"redis-objects-1.3", later, lease + 999*time.Millisecond, true},
		{"redis-objects-1.3", later, lease + time.Second, false},
		{"retools-0.3", "", lease - time.Millisecond, true}, // if its lease has not ended; its timestamp is a second later
		{"retools-0.3", "", lease, false},
		{"redis-py-2.9", "", time.Minute, true},
		{"redis-py-2.9", earlier, time.Second, false}, // #384: a loser's earlier timestamp; it reports nothing
		{"redis-py-2.9", later, time.Minute, true},    // #415: another client's live lock
		{"redis-py-2.9", "token", time.Second, false}, // ValueError
		{"redis-mutex", "", time.Minute, true},
		{"redis-mutex", later, time.Second, false},
		{"PT-redis-lock", "", time.Second, true},
		{"PT-redis-lock", "", time.Minute, false},
		{"redis-py-2.10", "", time.Minute, true},
		{"redis-py-2.10", later, time.Second, false},
		{"redis-py-3", "", time.Minute, true},
		{"redis-py-3", later, time.Second, false},
		{"machinery", "", time.Second, false},
		{"laravel-5.5", later, time.Minute, true},
	} {
		s := oldredis.Run(t, "7.0")
		c := s.Dial()
		a := model(format(t, x.client))
		l, err := a.Acquire(protocol.NewConn(c), noon, "k", lease)
		if err != nil {
			t.Fatal(x.client, err)
		}
		if x.on != "" {
			do(t, c, "SET", "k", x.on)
		}
		_, err = protocol.NewConn(atTime{c, noon.Add(x.after)}).Run(a.Release(l))
		exists, _ := redis.Bool(do(t, c, "EXISTS", "k"), nil)
		if exists == x.gone || err != nil && !errors.Is(err, protocol.ErrLost) {
			t.Errorf("%s releases %q after %v: the key exists: %v, %v", x.client, x.on, x.after, exists, err)
		}
	}
}

// atTime is a connection with a clock that stands still.
type atTime struct {
	redis.Conn
	now time.Time
}

func (c atTime) Now() time.Time { return c.now }

// If a fleet is unsafe by itself, only its overlap with the other fleet counts.
func TestClashIsWithTheOther(t *testing.T) {
	v, err := pairOf(t, "ours/getset:guarded/redis-py-2.9", "theirs/jedis-lock")
	if err != nil || v.Clash == nil || v.Clash.Needs != TwoOfB || !strings.Contains(v.Clash.Text, "C3") || !strings.Contains(v.Clash.Schedule, "theirs/jedis-lock/among+theirs/jedis-lock/among+ours/") {
		t.Errorf("%+v, %v: want one of ours, C3, and one of two that are not counted among themselves", v.Clash, err)
	}
}
