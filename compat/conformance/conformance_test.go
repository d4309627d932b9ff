package conformance_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// TestConformance runs the suite over every lock on one key of one server. Of those that differ from
// another only in how they write a time, make test has a part of the servers; on the real server
// without EVAL it has the locks that would use a script.
func TestConformance(t *testing.T) {
	everywhere(t, false)
}

// The other dialects on the other servers, and the locks that use no script on the one without.
func TestLongConformance(t *testing.T) {
	realredis.Long(t)
	everywhere(t, true)
}

// A lock that writes a time as another does not.
var dialects = regexp.MustCompile(`/(seconds|millis|nanos)`)

// The embedded servers before and since WATCH and PEXPIRE. Servers that somebody names get all locks.
var ends = []string{"oldredis-1.2", "oldredis-2.2", "oldredis-7.0", "real-redis-server"}

func everywhere(t *testing.T, rest bool) {
	today := conformance.Today(t)
	for _, s := range append(conformance.Servers(t), today...) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, a := range locks() {
				if !strings.HasPrefix(a.Name, "set:ifeq") && slices.ContainsFunc(today, func(o conformance.Server) bool { return o.Name == s.Name }) {
					continue // as on 7.0
				}
				noScript := s.Name == "real-without-EVAL" && !strings.HasPrefix(a.Name, "set:")
				later := noScript || dialects.MatchString(a.Name) && !slices.Contains(ends, s.Name) && !strings.HasPrefix(s.Name, "at-")
				if later == rest {
					t.Run(a.Name, func(t *testing.T) {
						t.Parallel()
						conformance.Run(t, a.On(s))
					})
				}
			}
		})
	}
}

func locks() []conformance.Algorithm {
	getset := func(name string, d getsetlock.Dialect) []conformance.Algorithm {
		return []conformance.Algorithm{{
			Name: "getset:classic/" + name, Ambiguous: !d.Nonce,
			New: func(fence bool) protocol.Algorithm {
				return getsetlock.Classic{Options: getsetlock.Options{Dialect: d, Fence: fence}}
			},
		}, {
			Name: "getset:guarded/" + name, Ambiguous: !d.Nonce,
			New: func(fence bool) protocol.Algorithm {
				return getsetlock.Guarded{Options: getsetlock.Options{Dialect: d, Fence: fence}}
			},
		}, {
			Name: "getset:listcas/" + name, Ambiguous: !d.Nonce,
			New: func(fence bool) protocol.Algorithm {
				return getsetlock.ListCAS{Options: getsetlock.Options{Dialect: d, Fence: fence}}
			},
		}}
	}
	tx := func(name string, lock func(txlock.Options) protocol.Algorithm) []conformance.Algorithm {
		return []conformance.Algorithm{{
			Name: name,
			New:  func(fence bool) protocol.Algorithm { return lock(txlock.Options{Fence: fence}) },
		}, {
			Name: name + "/millis",
			New:  func(fence bool) protocol.Algorithm { return lock(txlock.Options{Fence: fence, Millis: true}) },
		}}
	}
	var all []conformance.Algorithm
	for _, list := range [][]conformance.Algorithm{
		getset("float", getsetlock.Float), getset("seconds", getsetlock.Seconds), getset("millis", getsetlock.Millis), getset("nanos", getsetlock.Nanos),
		tx("tx:classic", func(o txlock.Options) protocol.Algorithm { return txlock.Classic{Options: o} }),
		tx("tx:guarded", func(o txlock.Options) protocol.Algorithm { return txlock.Guarded{Options: o} }),
		tx("tx:renamed", func(o txlock.Options) protocol.Algorithm { return txlock.Renamed{Options: o} }),
		tx("tx:guarded/listcas", func(o txlock.Options) protocol.Algorithm { o.ListCAS = true; return txlock.Guarded{Options: o} }),
		tx("tx:renamed/listcas", func(o txlock.Options) protocol.Algorithm { o.ListCAS = true; return txlock.Renamed{Options: o} }),
		set(),
	} {
		all = append(all, list...)
	}
	for _, a := range all {
		if _, ch, err := a.New(false).Extend(time.Now(), protocol.Lease{Key: "k", Value: "v"}, time.Minute, false); err == nil && ch.Custom == nil {
			a.Name, a.Borrows = a.Name+"/borrows", true
			all = append(all, a)
		}
	}
	return all
}

func set() []conformance.Algorithm {
	lock := func(name string, lock func(setlock.Options) protocol.Algorithm) conformance.Algorithm {
		return conformance.Algorithm{Name: name, New: func(fence bool) protocol.Algorithm { return lock(setlock.Options{Fence: fence}) }}
	}
	return []conformance.Algorithm{
		lock("set:ifeq",
			func(o setlock.Options) protocol.Algorithm { return setlock.IfEq{Options: o} }),
		lock("set:lua",
			func(o setlock.Options) protocol.Algorithm { return setlock.Lua{Options: o} }),
		lock("set:watch",
			func(o setlock.Options) protocol.Algorithm { return setlock.Watched{Options: o} }),
		lock("set:script",
			func(o setlock.Options) protocol.Algorithm { return setlock.Script{Options: o} }),
	}
}
