package simulate

import (
	"fmt"
	"slices"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/redlock"
)

// A Kind is a lock on its servers.
type Kind struct {
	Name     string
	Servers  int
	Versions []string // on which it is safe

	AnyClock bool // it does not matter that the clocks of clients disagree
	Owned    bool // the key is one value on one server, which only its holder changes
	Fences   bool // they grow with each acquisition

	several bool // one lock is several keys
	make    func(sources []compat.Source, o compat.Options, t digits) *compat.Locker
	reader  func(sources []compat.Source, o compat.Options, t digits) *compat.Locker // who holds it beside others; nil: nobody does
}

// digits makes random text of so many of these digits.
type digits func(of string, n int) string

// of is what makes a value of l its client's own.
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

// KindNamed returns the kind of a name.
func KindNamed(name string) (Kind, bool) {
	kinds := Kinds()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

// Kinds are all locks of the table that exclude others, alone and as parts of composites.
func Kinds() []Kind {
	var kinds []Kind
	for _, l := range locks.All() {
		if l.TwoHolders || l.Comparison || l.New == nil || l.Shared || l.Name == "rw:write" {
			continue
		}
		versions := since(l.Since)
		a := func(t digits) compat.Algorithm {
			return l.New(locks.Options{Fence: true, Lease: longest, Token: t.of(l)})
		}
		tokens := l.Family() != "getset"
		kinds = append(kinds, Kind{Name: l.Name, Servers: 1, Versions: versions, AnyClock: tokens, Owned: l.Name != "getset:two-keys", Fences: true,
			make: func(s []compat.Source, o compat.Options, t digits) *compat.Locker { return compat.NewOn(s[0], a(t), o) }})
		if l.Several != nil {
			together := func(t digits) compat.Algorithm { return l.Several(locks.Options{Fence: true, Token: t.of(l)}) }
			kinds = append(kinds, Kind{Name: "several " + l.Name, Servers: 1, Versions: versions, AnyClock: tokens, several: true,
				make: func(s []compat.Source, o compat.Options, t digits) *compat.Locker {
					return compat.NewOn(s[0], together(t), o)
				}})
		}
	}
	for _, name := range []string{"set:lua", "tx:renamed", "getset:guarded"} {
		l, _ := locks.Get(name)
		a := func(t digits) compat.Algorithm { return l.New(locks.Options{Token: t.of(l)}) }
		kinds = append(kinds,
			Kind{Name: "in turn " + name, Servers: 1, Versions: since(l.Since), AnyClock: l.Family() != "getset", several: true,
				make: func(s []compat.Source, o compat.Options, t digits) *compat.Locker {
					return compat.NewLocker(multilock.New(s[0], a(t)), o)
				}},
			Kind{Name: "redlock " + name, Servers: 3, Versions: since(l.Since), AnyClock: l.Family() != "getset",
				make: func(s []compat.Source, o compat.Options, t digits) *compat.Locker {
					b := make([]compat.Backend, len(s))
					for i := range s {
						b[i] = compat.NewBackend(s[i], a(t))
					}
					return compat.NewLocker(redlock.New(b, redlock.Options{Clock: o.Clock}), o)
				}})
	}
	read, _ := locks.Get("rw:read")
	write, _ := locks.Get("rw:write")
	return append(kinds, Kind{Name: "rw", Servers: 1, Versions: since("2.2"),
		make: func(s []compat.Source, o compat.Options, t digits) *compat.Locker {
			return compat.NewOn(s[0], write.New(locks.Options{Fence: true, Token: t.of(write)}), o)
		},
		reader: func(s []compat.Source, o compat.Options, t digits) *compat.Locker {
			return compat.NewOn(s[0], read.New(locks.Options{Token: t.of(read)}), o)
		}})
}

// since are the versions from v on.
func since(v string) []string {
	all := oldredis.Versions()
	return all[slices.Index(all, v):]
}
