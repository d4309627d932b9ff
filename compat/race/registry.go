package race

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
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

var registry = map[string]entry{
	"getset:classic": {says: "SETNX and a timestamp, taken over by GETSET, as published",
		make: func(c *Config, token func() string) compat.Algorithm {
			return getsetlock.Classic{Options: stamps(c, token)}
		}},
	"getset:guarded": {says: "the same, taken over and released under WATCH",
		make: func(c *Config, token func() string) compat.Algorithm {
			return getsetlock.Guarded{Options: stamps(c, token)}
		}},
	"getset:listed": {says: "the same, taken over and released by list commands in one transaction",
		make: func(c *Config, token func() string) compat.Algorithm {
			return getsetlock.Listed{Options: stamps(c, token)}
		}},
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
	"tx:classic": {says: "SETNX, then EXPIRE; released under WATCH",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Classic{Options: tokens(c, token)}
		}},
	"tx:classic/published": {says: "the same, with the published TTL repair",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Classic{Options: tokens(c, token), TTLRepair: txlock.RepairPublished}
		}},
	"tx:classic/never": {says: "the same, without any TTL repair",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Classic{Options: tokens(c, token), TTLRepair: txlock.RepairNever}
		}},
	"tx:guarded": {says: "SETEX under WATCH",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Guarded{Options: tokens(c, token)}
		}},
	"tx:renamed": {says: "SETEX to another name, RENAMENX",
		make: func(c *Config, token func() string) compat.Algorithm {
			return txlock.Renamed{Options: tokens(c, token)}
		}},
	"tx:renamed/listcas": {says: "the same, released by list commands in one transaction",
		make: func(c *Config, token func() string) compat.Algorithm {
			o := tokens(c, token)
			o.Listed = true
			return txlock.Renamed{Options: o}
		}},
	"set:lua": {says: "SET NX PX; extended and released by a script",
		make: func(c *Config, token func() string) compat.Algorithm {
			return setlock.Lua{Options: sets(c, token)}
		}},
	"set:watch": {says: "SET NX PX; extended and released under WATCH",
		make: func(c *Config, token func() string) compat.Algorithm {
			return setlock.Watched{Options: sets(c, token)}
		}},
	"set:published": {says: "SET NX PX; released by GET and DEL, as is widely copied",
		make: func(c *Config, token func() string) compat.Algorithm {
			return setlock.Published{Options: sets(c, token)}
		}},
	"set:script": {says: "a script acquires too: Redis 2.6.0 to 2.6.11",
		make: func(c *Config, token func() string) compat.Algorithm {
			return setlock.Script{Options: sets(c, token)}
		}},
	"set:redis-py": {says: "SET NX PX, released by a script, and extended by adding to what is left",
		make: func(c *Config, token func() string) compat.Algorithm {
			return setlock.Added{Options: sets(c, token)}
		}},
	"redlock": {says: "a majority of three servers, each with set:lua; asked one after the other, each client starting with another one",
		form: quorum, apart: true, nofence: true},
	"rw:read": {says: "a reader, beside others; neither starves", form: members, shared: true,
		make: func(c *Config, token func() string) compat.Algorithm { return rwlock.Read{Options: shares(c, token)} }},
	"rw:read/server-clock": {says: "a reader whose lease is counted by the server's TIME", form: members, shared: true,
		make: func(c *Config, token func() string) compat.Algorithm {
			o := shares(c, token)
			o.ServerClock = true
			return rwlock.Read{Options: o}
		}},
	"rw:write/server-clock": {says: "a writer who tells the readers' time by the server's TIME", form: members,
		make: func(c *Config, token func() string) compat.Algorithm {
			o := shares(c, token)
			o.ServerClock = true
			return rwlock.Write{Options: o}
		}},
	"rw:read/published": {says: "a reader as in the articles: a mutex around GET and ZADD", form: members, shared: true, nofence: true,
		make: func(c *Config, token func() string) compat.Algorithm {
			return rwlock.PublishedRead{Options: shares(c, token)}
		}},
	"rw:write/published": {says: "a writer as in the articles: a mutex around ZREMRANGEBYSCORE, ZCARD and SETNX", form: members, nofence: true,
		make: func(c *Config, token func() string) compat.Algorithm {
			return rwlock.PublishedWrite{Options: shares(c, token)}
		}},
	"rw:write": {says: "a writer, alone; neither starves", form: members,
		make: func(c *Config, token func() string) compat.Algorithm { return rwlock.Write{Options: shares(c, token)} }},
}

func init() {
	for _, name := range pinnable {
		e := registry[name]
		e.pinned = 1
		e.says += "; on a pinned connection, which watches the key"
		registry[name+"/pinned"] = e
	}
}

// pinnable are the algorithms that can go on watching their key.
var pinnable = []string{"tx:classic", "tx:guarded", "tx:renamed", "getset:guarded", "set:watch"}

func stamps(c *Config, token func() string) getsetlock.Options {
	return getsetlock.Options{Fence: c.Fence, Nonce: token}
}

func sets(c *Config, token func() string) setlock.Options {
	return setlock.Options{Fence: c.Fence, Token: token}
}

func shares(c *Config, token func() string) rwlock.Options {
	return rwlock.Options{Fence: c.Fence, Token: token}
}

func tokens(c *Config, token func() string) txlock.Options {
	return txlock.Options{Fence: c.Fence, Token: token}
}
