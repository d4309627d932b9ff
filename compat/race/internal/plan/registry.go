package plan

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/broken"
	"github.com/setnxlock/setnxlock/txlock"
)

// An Entry is a lock, and what the explorer knows of this module's beside that.
type Entry struct {
	Lock
	Form     Form // where it keeps what it holds
	servers  int  // of a Quorum, how many
	distinct bool // each client's is made otherwise: none is like another
	NoFence  bool // it has no fences to draw
	Turns    bool // its waiters take turns, and a writer can go on as a reader
	Pinned   int  // how many of a client's leases may pin their connections

	beside string // its values stand on keys beside the key, of which this is the first; "": on the key
}

// A Form is where a lock keeps what it holds, and so how much of it the
// invariants can follow.
type Form uint8

const (
	OneKey  Form = iota // the key holds its holder's value
	Members             // each holder's value stands in one of several keys, or among others in one
	Quorum              // it is spread over several servers
)

// registry has this module's locks, from their table, the variants that are explored beside them,
// and the published locks that break.
var registry = sync.OnceValue(func() map[string]Entry {
	all := map[string]Entry{}
	for _, l := range locks.All() {
		if l.New == nil || l.Instead != "" {
			continue
		}
		e := Entry{Lock: Lock{Says: l.About, Among: l.Shared, New: func(token func() string, fence bool) protocol.Algorithm {
			return l.New(locks.Options{Fence: fence, Token: token})
		}}, NoFence: !l.Fences}
		if l.Family() == "rw" {
			e.Form, e.Turns = Members, true
		}
		all[l.Name] = e
	}
	for _, l := range broken.Published() {
		e := Entry{Lock: Lock{Says: l.Says, Among: l.Shared, Most: l.Most, Bare: l.Bare, New: l.New}}
		e.distinct = l.Most > 0 // they rank by their tokens
		if strings.HasPrefix(l.Name, "rw:") || l.Most > 0 {
			e.Form, e.NoFence = Members, true
		}
		all[l.Name] = e
	}
	for _, l := range variants {
		all[l.name] = Entry{Lock: l.Lock}
	}
	for _, l := range readWrite {
		o := func(token func() string, fence bool) rwlock.Options {
			o := l.o
			o.Fence, o.Token = fence, token
			return o
		}
		all["rw:read/"+l.name] = Entry{Form: Members, Turns: true, Lock: Lock{Says: l.read, Among: true,
			New: func(token func() string, fence bool) protocol.Algorithm {
				return rwlock.Read{Options: o(token, fence)}
			}}}
		all["rw:write/"+l.name] = Entry{Form: Members, Turns: true, Lock: Lock{Says: l.write,
			New: func(token func() string, fence bool) protocol.Algorithm {
				return rwlock.Write{Options: o(token, fence)}
			}}}
	}
	for _, l := range semaphores {
		all[l.name] = Entry{Form: Members, beside: "1", Lock: Lock{Says: fmt.Sprintf("at most %d of all clients hold it together, each in a slot of its own%s", l.n, l.says), Among: true, Most: l.n,
			New: func(token func() string, fence bool) protocol.Algorithm {
				return semaphore.Lock{Options: semaphore.Options{N: l.n, Slot: l.slot, Fence: fence, Token: token, Pick: func(int) int { return 0 }}}
			}}}
	}
	for name, x := range map[string]struct {
		n    int
		says string
	}{"redlock": {3, "three"}, "redlock/five": {5, "five"}} {
		all[name] = Entry{Form: Quorum, servers: x.n, distinct: true, NoFence: true, Lock: Lock{Says: "a majority of " + x.says +
			" servers, each with set:lua; asked one after the other, each client begins with a different one"}}
	}
	for _, name := range Pinnable {
		e := all[name]
		e.Pinned = 1
		e.Says += "; on a pinned connection, which watches the key"
		all[name+"/pinned"] = e
	}
	return all
})

// Broken returns locks for an explorer to catch.
func Broken() Locks {
	all := Locks{}
	for _, l := range broken.Locks() {
		all[l.Name] = Lock{Says: l.Says, Bare: l.Bare, New: l.New}
	}
	return all
}

// variants and readWrite are the variants that are explored beside the module's locks.
var variants = []struct {
	name string
	Lock
}{
	{"getset:classic/seconds", Lock{Says: "getset:classic with whole seconds, as on the SETNX page",
		New: func(token func() string, fence bool) protocol.Algorithm {
			return getsetlock.Classic{Options: getsetlock.Options{Fence: fence, Nonce: token, Dialect: getsetlock.Seconds}}
		}}},
	{"getset:classic/margin", Lock{Says: "getset:classic that takes a lease over 5 s after its end",
		Margins: fiveSeconds, New: func(token func() string, fence bool) protocol.Algorithm {
			return getsetlock.Classic{Options: margin(token, fence)}
		}}},
	{"getset:guarded/margin", Lock{Says: "getset:guarded that takes a lease over 5 s after its end",
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
	{"server-clock", "a reader that counts its lease by the server's TIME",
		"a writer that judges readers' leases by the server's TIME", rwlock.Options{ServerClock: true}},
	{"readers-first", "a reader that goes before every writer that waits", "a writer that waits for every reader",
		rwlock.Options{Prefer: rwlock.ReadersFirst}},
	{"writers-first", "a reader that gives way to every writer that waits",
		"a writer that goes before every reader that waits", rwlock.Options{Prefer: rwlock.WritersFirst}},
}

// semaphores are of so many, over the locks of so many slots. All clients try the first slot first, so that they meet.
var semaphores = []struct {
	name string
	n    int
	says string
	slot func(token func() string) protocol.Algorithm
}{
	{"semaphore", 2, "", nil},
	{"semaphore/one", 1, "", nil},
	{"semaphore/renamed", 2, " that is taken as tx:renamed is", func(token func() string) protocol.Algorithm {
		return txlock.Renamed{Options: txlock.Options{Token: token}}
	}},
	{"semaphore/lua", 2, " that is taken as set:lua is", func(token func() string) protocol.Algorithm {
		return setlock.Lua{Options: setlock.Options{Token: token}}
	}},
}

// Pinnable are the algorithms that can go on watching their key.
var Pinnable = []string{"tx:classic", "tx:guarded", "tx:renamed", "getset:guarded", "set:watch"}

var fiveSeconds = []time.Duration{5 * time.Second}

func margin(token func() string, fence bool) getsetlock.Options {
	o := getsetlock.Options{Fence: fence, Nonce: token}
	o.Dialect.Margin = fiveSeconds[0]
	return o
}
