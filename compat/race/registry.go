package race

import (
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/catalogue/broken"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// An entry is a lock, and what the explorer knows of this module's beside that.
type entry struct {
	Lock
	form    form // where it keeps what it holds
	apart   bool // each client's is made otherwise: none is like another
	nofence bool // it has no fences to draw
	turns   bool // its waiters take turns, and a writer can go on as a reader
	pinned  int  // how many of a client's leases may pin their connections
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
		e := entry{Lock: Lock{Says: l.About, Among: l.Shared, New: func(token func() string, fence bool) protocol.Algorithm {
			return l.New(locks.Options{Fence: fence, Token: token})
		}}, nofence: !l.Fences}
		if l.Family() == "rw" {
			e.form, e.turns = members, true
		}
		all[l.Name] = e
	}
	for _, l := range broken.Published() {
		e := entry{Lock: Lock{Says: l.Says, Among: l.Shared, New: l.New}}
		if strings.HasPrefix(l.Name, "rw:") {
			e.form, e.nofence = members, true
		}
		all[l.Name] = e
	}
	for _, l := range variants {
		all[l.name] = entry{Lock: l.Lock}
	}
	for _, l := range readWrite {
		o := func(token func() string, fence bool) rwlock.Options {
			o := l.o
			o.Fence, o.Token = fence, token
			return o
		}
		all["rw:read/"+l.name] = entry{form: members, turns: true, Lock: Lock{Says: l.read, Among: true,
			New: func(token func() string, fence bool) protocol.Algorithm {
				return rwlock.Read{Options: o(token, fence)}
			}}}
		all["rw:write/"+l.name] = entry{form: members, turns: true, Lock: Lock{Says: l.write,
			New: func(token func() string, fence bool) protocol.Algorithm {
				return rwlock.Write{Options: o(token, fence)}
			}}}
	}
	all["redlock"] = entry{form: quorum, apart: true, nofence: true, Lock: Lock{Says: "a majority of three servers, " +
		"each with set:lua; asked one after the other, each client starting with another one"}}
	for _, name := range pinnable {
		e := all[name]
		e.pinned = 1
		e.Says += "; on a pinned connection, which watches the key"
		all[name+"/pinned"] = e
	}
	return all
})

// variants and readWrite are the variants that are explored beside the module's locks.
var variants = []struct {
	name string
	Lock
}{
	{"getset:classic/seconds", Lock{Says: "getset:classic with whole seconds, as on the SETNX page",
		New: func(token func() string, fence bool) protocol.Algorithm {
			return getsetlock.Classic{Options: getsetlock.Options{Fence: fence, Nonce: token, Dialect: getsetlock.Seconds}}
		}}},
	{"getset:classic/margin", Lock{Says: "getset:classic that leaves others' leases alone for 5 s more",
		Margins: fiveSeconds, New: func(token func() string, fence bool) protocol.Algorithm {
			return getsetlock.Classic{Options: margin(token, fence)}
		}}},
	{"getset:guarded/margin", Lock{Says: "getset:guarded that leaves others' leases alone for 5 s more",
		Margins: fiveSeconds, New: func(token func() string, fence bool) protocol.Algorithm {
			return getsetlock.Guarded{Options: margin(token, fence)}
		}}},
	{"tx:classic/never", Lock{Says: "tx:classic without any TTL repair",
		New: func(token func() string, fence bool) protocol.Algorithm {
			return txlock.Classic{Options: txlock.Options{Fence: fence, Token: token}, NoRepair: true}
		}}},
}

var readWrite = []struct {
	name, read, write string
	o                 rwlock.Options
}{
	{"server-clock", "a reader whose lease is counted by the server's TIME",
		"a writer who tells the readers' time by the server's TIME", rwlock.Options{ServerClock: true}},
	{"readers-first", "a reader that goes before every writer that waits", "a writer that waits for every reader",
		rwlock.Options{Prefer: rwlock.ReadersFirst}},
	{"writers-first", "a reader that gives way to every writer that waits",
		"a writer that goes before every reader that waits", rwlock.Options{Prefer: rwlock.WritersFirst}},
}

// pinnable are the algorithms that can go on watching their key.
var pinnable = []string{"tx:classic", "tx:guarded", "tx:renamed", "getset:guarded", "set:watch"}

var fiveSeconds = []time.Duration{5 * time.Second}

func margin(token func() string, fence bool) getsetlock.Options {
	o := getsetlock.Options{Fence: fence, Nonce: token}
	o.Dialect.Margin = fiveSeconds[0]
	return o
}
