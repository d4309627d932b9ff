package simulate

import (
	"fmt"
	"slices"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/sentinel"
)

// A Kind is a lock on its servers.
type Kind struct {
	Name     string
	Servers  int
	Versions []string // the versions of servers on which the lock is safe

	AnyClock   bool // the clocks of clients may disagree
	Owned      bool // the key is one value on one server, which only its holder changes
	Fences     bool // fences grow with each acquisition
	Replicated bool // an acknowledged change is on the replica too, and survives its promotion

	several bool // one lock is several keys
	most    int  // the size of the semaphore; 0: the lock is not a semaphore
	make    maker
	reader  maker // makes the readers' Locker; nil: the lock has no readers
	moved   maker // makes the Locker of programs whose fleet has moved to another lock; nil: the fleet does not move
}

// A maker makes the Locker of one program.
type maker func(m making) *compat.Locker

// A making has the parts of a Locker.
type making struct {
	sources []compat.Source
	o       compat.Options
	token   digits
	millis  bool
}

// of returns the options for l.
func (m making) of(l locks.Lock) locks.Options {
	return locks.Options{Fence: true, Lease: longest, Token: m.token.of(l), Millis: m.millis}
}

// on returns a maker of a lock on one server.
func on(a func(m making) protocol.Algorithm) maker {
	return func(m making) *compat.Locker { return compat.NewOn(m.sources[0], a(m), m.o) }
}

// byName returns the constructor of a lock of the table.
func byName(name string) func(m making) protocol.Algorithm {
	l, _ := locks.Get(name)
	return func(m making) protocol.Algorithm { return l.New(m.of(l)) }
}

// digits makes a random text of n digits out of the given ones.
type digits func(of string, n int) string

// of returns the source of l's tokens or nonces.
func (d digits) of(l locks.Lock) func() string {
	return func() string {
		if l.Family() == "getset" && l.Name != "getset:two-keys" {
			return d("0123456789", 12)
		}
		return d("0123456789abcdef", 32)
	}
}

func (k Kind) key(i int) string {
	if k.several {
		return multilock.Join(fmt.Sprint("a", i), fmt.Sprint("b", i))
	}
	return fmt.Sprint("k", i)
}

// KindNamed returns the kind with a name.
func KindNamed(name string) (Kind, bool) {
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Kinds returns every exclusive lock of the table without a flaw, alone and as a part of composites, read-write locks,
// semaphores, and the bridges with the fleets on both sides.
func Kinds() []Kind {
	var kinds []Kind
	for _, l := range locks.All() {
		if l.Flaw != "" || l.New == nil || l.Shared || l.Name == "rw:write" {
			continue
		}
		k := Kind{Name: l.Name, Servers: 1, Versions: since(l.Since), AnyClock: l.Family() != "getset", Owned: l.Name != "getset:two-keys", Fences: true, make: on(byName(l.Name))}
		kinds = append(kinds, k)
		if l.Several != nil {
			k.Name, k.Owned, k.several = "several "+l.Name, false, true
			k.make = on(func(m making) protocol.Algorithm { return l.Several(m.of(l)) })
			kinds = append(kinds, k)
		}
	}
	for _, name := range []string{"set:ifeq", "set:lua", "tx:renamed", "getset:guarded"} {
		l, _ := locks.Get(name)
		k := Kind{Servers: 1, Versions: since(l.Since), AnyClock: l.Family() != "getset"}
		turn, of, replicated := k, k, k
		turn.Name, turn.several = "in turn "+name, true
		turn.make = inTurn(l)
		of.Name, of.Servers = "redlock "+name, 3
		of.make = quorum(l)
		replicated.Name, replicated.Owned, replicated.Fences, replicated.Replicated = "replicated "+name, true, true, true
		if k.Versions[0] != "8.6" {
			replicated.Versions = since("3.0")
		}
		replicated.make = on(func(m making) protocol.Algorithm { return sentinel.Replicated{Algorithm: l.New(m.of(l))} })
		kinds = append(kinds, turn, of, replicated)
	}
	return slices.Concat(kinds, readersAndWriters(), semaphores(), bridges())
}

// inTurn returns a maker of sets of l, whose keys are taken one after the other.
func inTurn(l locks.Lock) maker {
	return func(m making) *compat.Locker {
		return compat.NewLocker(multilock.New(m.sources[0], plain(l, m)), m.o)
	}
}

// quorum returns a maker of l on a majority of servers.
func quorum(l locks.Lock) maker {
	return func(m making) *compat.Locker {
		b := make([]compat.Backend, len(m.sources))
		for i := range b {
			b[i] = compat.NewBackend(m.sources[i], plain(l, m))
		}
		return compat.NewLocker(redlock.New(b, redlock.Options{Clock: m.o.Clock}), m.o)
	}
}

// plain makes l without fences: a composite has no use for the fences of its parts.
func plain(l locks.Lock, m making) protocol.Algorithm {
	o := m.of(l)
	o.Fence = false
	return l.New(o)
}

// readersAndWriters returns the locks of rwlock with each preference, and with the server's clock. With the server's
// clock, the clients' clocks do not matter.
func readersAndWriters() []Kind {
	read, _ := locks.Get("rw:read")
	write, _ := locks.Get("rw:write")
	var kinds []Kind
	for _, of := range []struct {
		name  string
		since string
		rwlock.Options
	}{
		{"rw", "2.2", rwlock.Options{}},
		{"rw writers first", "2.2", rwlock.Options{Prefer: rwlock.WritersFirst}},
		{"rw readers first", "2.2", rwlock.Options{Prefer: rwlock.ReadersFirst}},
		{"rw server's clock", "2.6", rwlock.Options{ServerClock: true}},
	} {
		options := func(l locks.Lock, m making) rwlock.Options {
			o := of.Options
			o.Fence, o.Token, o.Millis = true, m.token.of(l), m.millis
			return o
		}
		kinds = append(kinds, Kind{Name: of.name, Servers: 1, Versions: since(of.since), AnyClock: of.ServerClock, Fences: true,
			make:   on(func(m making) protocol.Algorithm { return rwlock.Write{Options: options(write, m)} }),
			reader: on(func(m making) protocol.Algorithm { return rwlock.Read{Options: options(read, m)} })})
	}
	kinds = append(kinds, Kind{Name: "in turn rw", Servers: 1, Versions: since("2.2"), several: true, make: inTurn(write), reader: inTurn(read)})
	return append(kinds, Kind{Name: "redlock rw", Servers: 3, Versions: since("2.2"), make: quorum(write), reader: quorum(read)})
}

// semaphores returns semaphores of two, with different locks for the slots.
func semaphores() []Kind {
	var kinds []Kind
	for _, name := range []string{"tx:guarded", "set:lua", "set:ifeq"} {
		l, _ := locks.Get(name)
		kinds = append(kinds, Kind{Name: "semaphore " + name, Servers: 1, Versions: since(l.Since), AnyClock: true, Fences: true, most: 2,
			make: on(func(m making) protocol.Algorithm { return slots(l, m) })})
	}
	l, _ := locks.Get("tx:guarded")
	return append(kinds, Kind{Name: "in turn semaphore", Servers: 1, Versions: since(l.Since), AnyClock: true, most: 2, several: true,
		make: func(m making) *compat.Locker {
			return compat.NewLocker(multilock.New(m.sources[0], slots(l, m)), m.o)
		}})
}

// slots makes a semaphore of two slots of l.
func slots(l locks.Lock, m making) protocol.Algorithm {
	o := m.of(l)
	o.Limit = 2
	return l.Slots(o)
}

// since returns the versions from v on. For a lock that needs a server newer than all embedded ones, it returns the
// embedded servers with the needed command.
func since(v string) []string {
	all := oldredis.Versions()
	if i := slices.Index(all, v); i >= 0 {
		return all[i:]
	}
	return []string{"8.6", "valkey-9.1"}
}
