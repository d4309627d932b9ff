// Package locks is the table of every lock of this module: its name, how it is
// made, what it needs of a server, what breaks it, and which file describes it.
// The command, package probe, the plans of package bridge and the documentation read it.
//
//	l, ok := locks.Get("tx:renamed")
//	a := l.New(locks.Options{Fence: true})
//
// The name before the colon is the lock's family: "set", "tx" and "getset"
// stand for the best of theirs.
package locks

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// Options are for making a lock, which ignores those that do not apply to it. The zero value works
// on the oldest server that has the lock.
type Options struct {
	Fence       bool               // draw a fence; see Lock.Fences
	Millis      bool               // count TTLs in milliseconds (2.6), where the lock has the choice
	ServerClock bool               // rw: count the readers' leases by the server's TIME (2.6)
	Dialect     getsetlock.Dialect // getset: how the fleet writes its times
	Lease       time.Duration      // getset:patient, which needs it: the fleet's longest lease
	Limit       int                // semaphore, and Lock.Slots: how many hold a key at most; 0: two

	// Token returns the unique part of a value: a token, a nonce of 12 digits for getset, an owner
	// for getset:two-keys. nil: random.
	Token func() string

	// Owner names the holder, for people who look at the key ([dialect.OwnedToken]). A timestamp
	// has no room for it. "": no name.
	Owner string

	// Once says that the lock is taken once: all its values show one holder ([dialect.SameHolder]).
	// A program that takes a lock again would let the holder of an earlier token release the later lock.
	Once bool
}

// token returns the source of tokens for a lock of tokens.
func (o Options) token() func() string {
	switch {
	case o.Token != nil || o.Owner == "":
		return o.Token
	case o.Once:
		return dialect.HolderToken(o.Owner)
	}
	return dialect.OwnedToken(o.Owner)
}

// A Lock is a row of the table.
type Lock struct {
	Name  string // "tx:renamed"
	About string // one line, without a full stop
	Go    string // its type: "txlock.Renamed"
	Page  string // the file that describes it: "txlock/renamed.go"

	Since string            // the first Redis on which it is safe, or works if nothing makes it so
	Needs []ability.Ability // what it needs of a server, fences aside
	OneOf []ability.Ability // of these it needs one; nil: none

	Shared bool // several clients can hold it at once: readers, a semaphore's
	Fences bool // it can draw them

	// Preferred says that its family's name stands for it, and that package probe chooses it on a
	// server where no lock above it in the table is safe.
	Preferred bool

	// Flaw says how two clients can hold it at once, with the race's name in the catalogue, apart
	// from what breaks every lock with a lease. "" if nothing does.
	Flaw string

	// Instead says how to get the lock if the command can't make it from its name. "" if it can.
	Instead string

	// New makes the lock. nil: the lock is more than one algorithm, see About.
	New func(Options) protocol.Algorithm

	// Several makes the lock of several keys, taken in one transaction, that excludes locks of the
	// single keys. nil: multilock.New takes them one by one.
	Several func(Options) protocol.Algorithm

	// Slots makes the semaphore whose slots are locks of this kind: at most Options.Limit clients hold a key. It needs
	// transactions, WATCH included. nil: there is none.
	Slots func(Options) protocol.Algorithm
}

// Lacks returns the needs of the lock beyond the server; "": nothing.
func (l Lock) Lacks(can func(ability.Ability) bool) ability.Ability {
	for _, n := range l.Needs {
		if !can(n) {
			return n
		}
	}
	if len(l.OneOf) > 0 && !slices.ContainsFunc(l.OneOf, can) {
		return l.OneOf[0]
	}
	return ""
}

// Family returns the name before the colon.
func (l Lock) Family() string {
	family, _, _ := strings.Cut(l.Name, ":")
	return family
}

// Fallbacks returns o, and after it the options to try on a server that does not count in
// milliseconds, has no TIME, or can't draw fences.
func (l Lock) Fallbacks(o Options) []Options {
	all := []Options{o}
	switch {
	case (l.Family() == "tx" || l.Name == "semaphore") && o.Millis:
		o.Millis = false
	case l.Family() == "rw" && (o.Millis || o.ServerClock):
		o.Millis, o.ServerClock = false, false
	case l.Family() == "getset" && o.Fence: // proxies have no transactions
		o.Fence = false
	default:
		return all
	}
	return append(all, o)
}

// All returns the table in order of preference, the safest first.
func All() []Lock { return slices.Clone(table) }

// Get returns the lock of a name.
func Get(name string) (Lock, bool) {
	i := slices.IndexFunc(table, func(l Lock) bool { return l.Name == name })
	if i < 0 {
		return Lock{}, false
	}
	return table[i], true
}

// Families returns the names of several locks each: "set", "tx", …
func Families() []string { return []string{"set", "tx", "getset"} }

// Named returns the locks of a name, the best first: for a family, its preferred locks. It returns none for an unknown
// name.
func Named(name string) []Lock {
	if l, ok := Get(name); ok {
		return []Lock{l}
	}
	return preferred(func(l Lock) bool { return l.Family() == name })
}

func preferred(which func(Lock) bool) []Lock {
	return slices.DeleteFunc(All(), func(l Lock) bool { return !l.Preferred || !which(l) })
}

// Preferred returns the locks for package probe to choose from, the safest first.
func Preferred() []Lock { return preferred(func(Lock) bool { return true }) }

// InCommandWords replaces the Go types in an error's text by the locks' names on the command line, and package
// cluster by its flag.
func InCommandWords(text string) string {
	pairs := []string{"package cluster", "--cluster"}
	for _, l := range table {
		if !strings.ContainsAny(l.Go, "{,") && l.Instead == "" {
			pairs = append(pairs, l.Go, "--algorithm "+l.Name)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

var table = []Lock{
	{Name: "set:ifeq", Go: "setlock.IfEq", Page: "compat/setlock/ifeq.go",
		About: "SET NX PX; the server itself compares to extend and release: Redis 8.4, Valkey 9.0",
		Since: "8.4", Needs: []ability.Ability{ability.SetNXPX, ability.Milliseconds, ability.SetIfEq}, OneOf: []ability.Ability{ability.DelIfEq, ability.DelEx},
		Fences: true, Preferred: true,
		New:     func(o Options) protocol.Algorithm { return setlock.IfEq{Options: set(o)} },
		Several: tokens,
		Slots:   slots(true, func(o Options) protocol.Algorithm { return setlock.IfEq{Options: set(o)} })},
	{Name: "set:lua", Go: "setlock.Lua", Page: "compat/setlock/lua.go",
		About: "SET NX PX; a script extends and releases",
		Since: "2.6.12", Needs: []ability.Ability{ability.SetNXPX, ability.Milliseconds, ability.Scripts},
		Fences: true, Preferred: true,
		New:     func(o Options) protocol.Algorithm { return setlock.Lua{Options: set(o)} },
		Several: tokens,
		Slots:   slots(true, func(o Options) protocol.Algorithm { return setlock.Lua{Options: set(o)} })},
	{Name: "set:watch", Go: "setlock.Watched", Page: "compat/setlock/watched.go",
		About: "SET NX PX; extended and released under WATCH, where scripts are forbidden",
		Since: "2.6.12", Needs: []ability.Ability{ability.SetNXPX, ability.Milliseconds, ability.Multi, ability.Watch},
		Fences: true, Preferred: true,
		New:     func(o Options) protocol.Algorithm { return setlock.Watched{Options: set(o)} },
		Several: tokens,
		Slots:   slots(true, func(o Options) protocol.Algorithm { return setlock.Watched{Options: set(o)} })},
	{Name: "tx:renamed", Go: "txlock.Renamed", Page: "txlock/renamed.go",
		About: "SETEX to another name, RENAMENX; extended and released under WATCH",
		Since: "2.4", Needs: append(slices.Clone(ttls), ability.Renamenx),
		Fences: true, Preferred: true,
		New:     func(o Options) protocol.Algorithm { return txlock.Renamed{Options: tx(o)} },
		Several: several,
		Slots:   slots(false, func(o Options) protocol.Algorithm { return txlock.Renamed{Options: tx(o)} })},
	{Name: "tx:guarded", Go: "txlock.Guarded", Page: "txlock/guarded.go",
		About: "SETEX under WATCH; extended and released under WATCH",
		Since: "2.2", Needs: ttls,
		Fences: true, Preferred: true,
		New:     func(o Options) protocol.Algorithm { return txlock.Guarded{Options: tx(o)} },
		Several: several,
		Slots:   slots(false, func(o Options) protocol.Algorithm { return txlock.Guarded{Options: tx(o)} })},
	{Name: "set:script", Go: "setlock.Script", Page: "compat/setlock/script.go",
		About: "a script acquires, too: 2.6.0 to 2.6.11, and proxies that have no transactions",
		Since: "2.6", Needs: []ability.Ability{ability.Milliseconds, ability.Scripts},
		Fences: true, Preferred: true,
		New:   func(o Options) protocol.Algorithm { return setlock.Script{Options: set(o)} },
		Slots: slots(true, func(o Options) protocol.Algorithm { return setlock.Script{Options: set(o)} })},
	{Name: "getset:guarded", Go: "getsetlock.Guarded", Page: "getsetlock/guarded.go",
		About: "SETNX and a timestamp, taken over and released under WATCH",
		Since: "2.2", Needs: []ability.Ability{ability.Setnx, ability.Getset, ability.Multi, ability.Watch},
		Fences: true, Preferred: true,
		New:     func(o Options) protocol.Algorithm { return getsetlock.Guarded{Options: times(o)} },
		Several: func(o Options) protocol.Algorithm { return multilock.GetSet{Options: times(o)} }},
	{Name: "getset:listed", Go: "getsetlock.ListCAS", Page: "getsetlock/listcas.go",
		About: "SETNX and a timestamp, taken over and released by list commands that compare, in one transaction",
		Since: "2.0", Needs: []ability.Ability{ability.Setnx, ability.Multi, ability.Lists},
		Fences: true, Preferred: true,
		New: func(o Options) protocol.Algorithm { return getsetlock.ListCAS{Options: times(o)} }},
	{Name: "getset:classic", Go: "getsetlock.Classic", Page: "getsetlock/classic.go",
		About: "SETNX and a timestamp, taken over by GETSET, as published",
		Since: "1.2", Needs: []ability.Ability{ability.Setnx, ability.Getset},
		Fences: true, Preferred: true,
		Flaw:    "it excludes others only as long as no client pauses in its release (getset/paused-release) or comes second to a takeover (getset/loser-overwrites)",
		New:     func(o Options) protocol.Algorithm { return getsetlock.Classic{Options: times(o)} },
		Several: func(o Options) protocol.Algorithm { return multilock.GetSetClassic{Options: times(o)} }},

	{Name: "tx:renamed/listcas", Go: "txlock.Renamed{Options: {ListCAS: true}}", Page: "txlock/txlock.go",
		About: "tx:renamed, released by list commands that compare, in one transaction",
		Since: "2.4", Needs: append(slices.Clone(ttls), ability.Renamenx, ability.Lists),
		Fences:  true,
		New:     func(o Options) protocol.Algorithm { return txlock.Renamed{Options: listCAS(o)} },
		Several: func(o Options) protocol.Algorithm { return multilock.Tx{Options: listCAS(o)} }},
	{Name: "tx:guarded/listcas", Go: "txlock.Guarded{Options: {ListCAS: true}}", Page: "txlock/txlock.go",
		About: "tx:guarded, released by list commands that compare, in one transaction",
		Since: "2.2", Needs: append(slices.Clone(ttls), ability.Lists),
		Fences:  true,
		New:     func(o Options) protocol.Algorithm { return txlock.Guarded{Options: listCAS(o)} },
		Several: func(o Options) protocol.Algorithm { return multilock.Tx{Options: listCAS(o)} }},
	{Name: "tx:classic", Go: "txlock.Classic", Page: "txlock/classic.go",
		About: "SETNX, then EXPIRE; waiters set the TTL that a crash left out",
		Since: "2.2", Needs: ttls,
		Fences: true,
		Flaw:   "an EXPIRE that arrives late, after its client gave up, shortens the next holder's lease if that one is longer (tx/late-expire)",
		New:    func(o Options) protocol.Algorithm { return txlock.Classic{Options: tx(o)} }},
	{Name: "getset:patient", Go: "getsetlock.Patient", Page: "getsetlock/patient.go",
		About: "getset:guarded for clocks that disagree: it takes over a key that has not changed for a whole lease",
		Since: "2.2", Needs: []ability.Ability{ability.Setnx, ability.Getset, ability.Multi, ability.Watch},
		Fences: true, Instead: "in a Go program only: it must know the fleet's longest lease",
		New: func(o Options) protocol.Algorithm { return getsetlock.Patient{Options: times(o), Lease: o.Lease} }},
	{Name: "getset:two-keys", Go: "getsetlock.TwoKeys", Page: "getsetlock/twokeys.go",
		About: "the owner on one key, the deadline on another, as mlanett's redis-lock has them",
		Since: "2.2", Needs: []ability.Ability{ability.Multi, ability.Watch},
		Fences: true, Instead: "--dialect mlanett-redis-lock",
		New: func(o Options) protocol.Algorithm {
			return getsetlock.TwoKeys{Fence: o.Fence, Margin: o.Dialect.Margin, Owner: o.Token}
		}},
	{Name: "rw:read", Go: "rwlock.Read", Page: "compat/rwlock/rwlock.go",
		About: "readers hold it together; neither they nor writers starve",
		Since: "2.2", Needs: ttls,
		Shared: true, Fences: true,
		New: func(o Options) protocol.Algorithm { return rwlock.Read{Options: rw(o)} }},
	{Name: "rw:write", Go: "rwlock.Write", Page: "compat/rwlock/rwlock.go",
		About: "a writer holds it alone; neither it nor readers starve",
		Since: "2.2", Needs: ttls,
		Fences: true,
		New:    func(o Options) protocol.Algorithm { return rwlock.Write{Options: rw(o)} }},
	{Name: "semaphore", Go: "semaphore.Lock", Page: "compat/semaphore/semaphore.go",
		About: "at most N clients hold it together, each in a slot of its own",
		Since: "2.2", Needs: ttls,
		Shared: true, Fences: true,
		New: slots(false, func(o Options) protocol.Algorithm { return txlock.Guarded{Options: tx(o)} })},
	{Name: "redlock", Go: "redlock.New", Page: "compat/redlock/redlock.go",
		About: "a majority of several servers, each with the lock that is best there",
		Since: "1.2"},
	{Name: "bridge", Go: "bridge.OneKey", Page: "compat/bridge/onekey.go",
		About: "a timestamp on a key with a TTL, which clients of timestamps and of tokens respect, for a fleet that moves",
		Since: "2.2", Needs: ttls, Fences: true},
}

// ttls is what a token with a TTL needs where SET NX PX is not there.
var ttls = []ability.Ability{ability.Setex, ability.SetnxOnTTL, ability.ExpireAgain, ability.Multi, ability.Watch}

// slots makes the semaphore of slots made by of. They count in milliseconds always or as told.
func slots(millis bool, of func(Options) protocol.Algorithm) func(Options) protocol.Algorithm {
	return func(o Options) protocol.Algorithm {
		slot := func(token func() string) protocol.Algorithm {
			return of(Options{Millis: o.Millis, Token: token})
		}
		return semaphore.Lock{Options: semaphore.Options{N: cmp.Or(o.Limit, 2), Slot: slot, Millis: o.Millis || millis, Fence: o.Fence, Token: o.token()}}
	}
}

func set(o Options) setlock.Options { return setlock.Options{Fence: o.Fence, Token: o.token()} }

func tx(o Options) txlock.Options {
	return txlock.Options{Millis: o.Millis, Fence: o.Fence, Token: o.token()}
}

func listCAS(o Options) txlock.Options {
	t := tx(o)
	t.ListCAS = true
	return t
}

func times(o Options) getsetlock.Options {
	if o.Token == nil && o.Once {
		o.Token = dialect.OwnedDigits()
	}
	return getsetlock.Options{Dialect: o.Dialect, Fence: o.Fence, Nonce: o.Token}
}

func rw(o Options) rwlock.Options {
	return rwlock.Options{Fence: o.Fence, Millis: o.Millis, ServerClock: o.ServerClock, Token: o.token()}
}

func several(o Options) protocol.Algorithm { return multilock.Tx{Options: tx(o)} }

// tokens returns the same for SET NX PX, in milliseconds: the bytes are the same.
func tokens(o Options) protocol.Algorithm {
	o.Millis = true
	return several(o)
}
