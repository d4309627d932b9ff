package race

import (
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/race/catalogue/broken"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// An entry of the registry makes an algorithm whose values are token's.
type entry struct {
	make func(c *Config, token func() string) compat.Algorithm
	own  func(token func() string, fence bool) compat.Algorithm // in place of make: a Lock's New
	bare bool                                                   // it only makes sense without the Locker
	says string                                                 // one line

	form    form // where it keeps what it holds
	shared  bool // several may hold it at once: it is a reader's
	apart   bool // each client's is made otherwise: none is like another
	nofence bool // it has no fences to draw
	turns   bool // its waiters take turns, and a writer can go on as a reader

	pinned int // how many of a client's leases may pin their connections

	// margin is how much longer than its value says it leaves a lease alone.
	margin  time.Duration
	margins []time.Duration // Lock.Margins
}

// A form is where a lock keeps what it holds, and so how much of it the
// invariants can follow.
type form uint8

const (
	oneKey  form = iota // the key holds its holder's value
	members             // each holder's value stands in one of several keys, or among others in one
	quorum              // it is spread over several servers
)

// registry has this module's locks, from their table, the variants that are explored beside them,
// and the published locks that break.
var registry = sync.OnceValue(func() map[string]entry {
	all := map[string]entry{}
	for _, l := range locks.All() {
		if l.New == nil || l.Instead != "" {
			continue
		}
		e := entry{says: l.About, shared: l.Shared, nofence: !l.Fences, make: func(c *Config, token func() string) compat.Algorithm {
			return l.New(locks.Options{Fence: c.Fence, Token: token})
		}}
		if l.Family() == "rw" {
			e.form, e.turns = members, true
		}
		all[l.Name] = e
	}
	for _, l := range broken.Published() {
		e := entry{says: l.Says, shared: l.Shared, make: func(c *Config, token func() string) compat.Algorithm {
			return l.New(token, c.Fence)
		}}
		if strings.HasPrefix(l.Name, "rw:") {
			e.form, e.nofence = members, true
		}
		all[l.Name] = e
	}
	maps.Copy(all, variants())
	for _, name := range pinnable {
		e := all[name]
		e.pinned = 1
		e.says += "; on a pinned connection, which watches the key"
		all[name+"/pinned"] = e
	}
	return all
})

func variants() map[string]entry {
	return map[string]entry{
		"getset:classic/seconds": {says: "getset:classic with whole seconds, as on the SETNX page",
			make: func(c *Config, token func() string) compat.Algorithm {
				o := stamps(c, token)
				o.Dialect = getsetlock.Seconds
				return getsetlock.Classic{Options: o}
			}},
		"getset:classic/margin": {says: "getset:classic that leaves others' leases alone for 5 s more", margin: 5 * time.Second,
			make: func(c *Config, token func() string) compat.Algorithm {
				o := stamps(c, token)
				o.Dialect.Margin = 5 * time.Second
				return getsetlock.Classic{Options: o}
			}},
		"getset:guarded/margin": {says: "getset:guarded that leaves others' leases alone for 5 s more", margin: 5 * time.Second,
			make: func(c *Config, token func() string) compat.Algorithm {
				o := stamps(c, token)
				o.Dialect.Margin = 5 * time.Second
				return getsetlock.Guarded{Options: o}
			}},
		"tx:classic/never": {says: "tx:classic without any TTL repair",
			make: func(c *Config, token func() string) compat.Algorithm {
				return txlock.Classic{Options: txlock.Options{Fence: c.Fence, Token: token}, NoRepair: true}
			}},
		"redlock": {says: "a majority of three servers, each with set:lua; asked one after the other, each client starting with another one",
			form: quorum, apart: true, nofence: true},
		"rw:read/server-clock": {says: "a reader whose lease is counted by the server's TIME", form: members, shared: true, turns: true,
			make: func(c *Config, token func() string) compat.Algorithm {
				return rwlock.Read{Options: rwlock.Options{Fence: c.Fence, Token: token, ServerClock: true}}
			}},
		"rw:write/server-clock": {says: "a writer who tells the readers' time by the server's TIME", form: members, turns: true,
			make: func(c *Config, token func() string) compat.Algorithm {
				return rwlock.Write{Options: rwlock.Options{Fence: c.Fence, Token: token, ServerClock: true}}
			}},
		"rw:read/readers-first": {says: "a reader that goes before every writer that waits", form: members, shared: true, turns: true,
			make: func(c *Config, token func() string) compat.Algorithm {
				return rwlock.Read{Options: rwlock.Options{Fence: c.Fence, Token: token, Prefer: rwlock.ReadersFirst}}
			}},
		"rw:write/readers-first": {says: "a writer that waits for every reader", form: members, turns: true,
			make: func(c *Config, token func() string) compat.Algorithm {
				return rwlock.Write{Options: rwlock.Options{Fence: c.Fence, Token: token, Prefer: rwlock.ReadersFirst}}
			}},
		"rw:read/writers-first": {says: "a reader that gives way to every writer that waits", form: members, shared: true, turns: true,
			make: func(c *Config, token func() string) compat.Algorithm {
				return rwlock.Read{Options: rwlock.Options{Fence: c.Fence, Token: token, Prefer: rwlock.WritersFirst}}
			}},
		"rw:write/writers-first": {says: "a writer that goes before every reader that waits", form: members, turns: true,
			make: func(c *Config, token func() string) compat.Algorithm {
				return rwlock.Write{Options: rwlock.Options{Fence: c.Fence, Token: token, Prefer: rwlock.WritersFirst}}
			}},
	}
}

// pinnable are the algorithms that can go on watching their key.
var pinnable = []string{"tx:classic", "tx:guarded", "tx:renamed", "getset:guarded", "set:watch"}

func stamps(c *Config, token func() string) getsetlock.Options {
	return getsetlock.Options{Fence: c.Fence, Nonce: token}
}
