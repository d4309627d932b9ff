package bridge_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/compat/race/racetest"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// bridged are the locks that are explored here: bridges, fleets that moved, and
// the clients in the field.
func bridged() race.Locks {
	all := race.Locks{}
	oneKey := func(d getsetlock.Dialect) func(func() string) protocol.Algorithm {
		return func(token func() string) protocol.Algorithm {
			return bridge.OneKey{Options: getsetlock.Options{Dialect: d, Nonce: token}}
		}
	}
	for _, name := range []string{"redis-py-2.9", "redis-mutex", "npm-redis-lock-0.0", "jedis-lock-1.0.1", "lonely-job"} {
		all["bridge:"+name] = race.Lock{Says: name, New: func(token func() string, _ bool) protocol.Algorithm {
			b, err := bridge.Named(name)
			if err != nil {
				panic(err)
			}
			b.Nonce = token
			return b
		}}
	}
	for name, make := range map[string]func(token func() string) protocol.Algorithm{
		"bridge:float":   oneKey(getsetlock.Float),
		"bridge:seconds": oneKey(getsetlock.Seconds),
		"bridge:millis":  oneKey(getsetlock.Millis),
		"bridge:moved": func(token func() string) protocol.Algorithm {
			return twoNames("redis-py-2.10", "redis-py-3", token)
		},
		"bridge:two-key": func(token func() string) protocol.Algorithm {
			return twoNames("mlanett-redis-lock", "redis-py-3", token)
		},
		"bridge:float-moved": func(token func() string) protocol.Algorithm {
			return twoNames("redis-py-2.9", "redis-py-3", token)
		},
		"moved": func(token func() string) protocol.Algorithm {
			return renamed{txlock.Guarded{Options: txlock.Options{Token: token}}}
		},
		"float-moved": func(token func() string) protocol.Algorithm {
			return renamed{getsetlock.Guarded{Options: getsetlock.Options{Nonce: token}}}
		},
		"two-key": func(token func() string) protocol.Algorithm { return getsetlock.TwoKeys{Owner: token} },
	} {
		all[name] = race.Lock{Says: name, New: func(token func() string, _ bool) protocol.Algorithm { return make(token) }}
	}
	maps.Copy(all, catalogue.Locks())
	return all
}

// twoNames is the bridge of two fleets, the old one of which puts "old:" before
// its keys if they are raw.
func twoNames(old, new string, token func() string) bridge.TwoNames {
	b := bridge.TwoNames{Old: format(old), New: format(new), Token: token}
	if b.Old.KeyName == "NAME" {
		b.Old.KeyName = "old:NAME"
	}
	return b
}

func format(name string) dialect.Format {
	f, err := dialect.Lookup(name)
	if err != nil {
		panic(err)
	}
	return f
}

// renamed is a lock whose clients put "old:" before the key.
type renamed struct{ protocol.Algorithm }

func (r renamed) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := r.Algorithm.Acquire(c, now, "old:"+key, ttl)
	l.Key = key
	return l, err
}

func (r renamed) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	key := l.Key
	l.Key = "old:" + key
	next, ch, err := r.Algorithm.Extend(now, l, ttl, rotate)
	next.Key = key
	return next, ch, err
}

func (r renamed) Release(l protocol.Lease) protocol.Change {
	l.Key = "old:" + l.Key
	return r.Algorithm.Release(l)
}

func (r renamed) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s, err := r.Algorithm.Inspect(c, now, "old:"+key)
	s.Key = key
	return s, err
}

// faults are what goes wrong, one at a time. (With two attempts under each, and
// three where nobody releases, nothing else breaks, in a minute and a half.)
var faults = []struct {
	name string
	set  func(*race.Config)
}{
	{"crash", func(c *race.Config) { c.Faults.Crash = true }},
	{"lost reply", func(c *race.Config) { c.Faults.LostReplies = 1; c.Attempts = 1 }},
	{"lost request", func(c *race.Config) { c.Faults.LostRequests = 1; c.Attempts = 1 }},
	{"cut", func(c *race.Config) { c.Faults.Cuts = 1; c.Attempts = 1 }},
	{"late", func(c *race.Config) { c.Faults.Late = 2; c.Attempts = 1 }},
	{"unreaped", func(c *race.Config) { c.Faults.Unreaped = true }},
	{"no release", func(c *race.Config) { c.Keep = true; c.Ticks = 6 }},
	{"renewal", func(c *race.Config) { c.Extend = true; c.Attempts = 1; c.Faults.Crash = true }},
	{"renewal, lost reply", func(c *race.Config) { c.Extend = true; c.Attempts = 1; c.Faults.LostReplies = 1 }},
}

// TestExplored: whatever goes wrong, and in whatever order, a bridge and a client of either
// fleet exclude each other, a dead one's lock is free again in time, and nobody is
// told what is not so. make test has clients that die, and that renew.
func TestExplored(t *testing.T) { explored(t, false) }

// The other accidents.
func TestLongExplored(t *testing.T) {
	realredis.Long(t)
	explored(t, true)
}

func explored(t *testing.T, rest bool) {
	for _, m := range []struct {
		mix, server string
		all         bool // each accident; else clients die, and renew
	}{
		{"bridge:float", "2.4", false},
		{"bridge:float+getset:guarded", "2.4", true},
		{"bridge:float+tx:guarded", "2.2.5", false},
		{"bridge:float+tx:classic", "2.4", false},
		{"bridge:float+set:watch", "7.0", true},
		{"bridge:seconds+getset:guarded/seconds", "2.4", false},
		{"bridge:seconds+tx:guarded", "2.4", false},
		{"bridge:millis+getset:guarded/millis", "2.4", false},
		{"bridge:millis+set:watch", "2.6.12", false},
		{"bridge:moved", "2.4", false},
		{"bridge:moved+moved", "2.4", false},
		{"bridge:moved+tx:guarded", "2.4", true},
		{"bridge:two-key+two-key", "2.4", true},
		{"bridge:two-key+set:watch", "7.0", false},
		{"bridge:float-moved+float-moved", "2.4", false},
		{"bridge:float-moved+set:watch", "7.0", false},
	} {
		for _, x := range faults {
			if other := x.name != "crash" && x.name != "renewal"; other != rest || other && !m.all {
				continue
			}
			t.Run(m.mix+"/"+x.name, func(t *testing.T) {
				c := race.Config{Algorithm: m.mix, Locks: bridged(), Server: m.server, Ticks: 4, Faults: race.Faults{Late: -1}}
				switch {
				case strings.Contains(m.mix, "moved"), strings.Contains(m.mix, "two-key"):
					c.Invariants = []string{"exclusion", "progress"} // the others follow one key
				case strings.Contains(m.mix, "guarded/"):
					// Two clients that both stop for longer than a lease can write the
					// same time: the first then releases a lock that is as dead as
					// its own (getset/same-stamp), or makes it as if it had come to life.
					c.Invariants = []string{"exclusion", "ownership"}
				}
				x.set(&c)
				if realredis.UnderRace() {
					c.Attempts = 1
				}
				racetest.Check(t, c)
			})
		}
	}
}

// Beside the clients in the field the bridge holds as long as they stay within
// their leases, alive or dead. Without it, and in their place, the new fleet's lock is
// taken from its holder before any time has passed.
func TestBesideClientsInTheField(t *testing.T) {
	for _, m := range []struct{ old, bridge, new, server string }{
		{"other/redis-py-2.9", "bridge:redis-py-2.9", "set:watch", "7.0"},
		{"other/redis-mutex", "bridge:redis-mutex", "set:watch", "7.0"},
		{"other/npm-redis-lock", "bridge:npm-redis-lock-0.0", "tx:guarded", "2.4"},
		{"other/jedis-lock", "bridge:jedis-lock-1.0.1", "tx:guarded", "2.4"},
		{"other/lonely-job", "bridge:lonely-job", "tx:guarded", "2.4"},
	} {
		within := race.Config{Locks: bridged(), Server: m.server, Faults: race.Faults{Late: -1}, Invariants: []string{"exclusion"}}
		dead := within
		dead.Keep, dead.Ticks, dead.Faults.Crash, dead.Attempts = true, 3, true, 1
		for _, c := range []race.Config{within, dead} {
			for _, mix := range []string{m.old + "+" + m.bridge, m.bridge + "+" + m.new} {
				c.Algorithm = mix
				t.Run(mix, func(t *testing.T) { racetest.Check(t, c) })
			}
		}
		within.Algorithm = m.old + "+" + m.new
		t.Run(within.Algorithm, func(t *testing.T) {
			r := must.Get(race.Explore(context.Background(), within))(t)
			if r.Verdict != race.Violated {
				t.Errorf("%v: then there is no need of a bridge", r)
			}
		})
	}
}
