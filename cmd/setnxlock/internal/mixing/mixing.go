// Package mixing computes what happens when two fleets lock the same key, each in its own format:
// for every lock of this module in every dialect, and for the clients in the field as published,
// bugs included.
//
//	p, err := mixing.Find("theirs/redis-py-2.9")
//	q, err := mixing.Find("ours/getset:guarded/redis-py-2.9")
//	v, err := mixing.Pair(ctx, p, q)       one pair: safe, unsafe, stuck, with a schedule for each
//	m, err := mixing.Compute(ctx, parties, seen)  all of them: setnxlock race mixing -o FILE
//
// The model of a foreign client combines its format, from package dialect, with the quirks of its
// language and code: how its parser reads another client's value (quirks.go). A test compares the
// models with the real clients: testdata/executed.txt records what fifteen of them did with
// nineteen values.
//
// With Locks, race.ReplaySchedule runs every schedule in a Verdict. The parties write realistic
// values: current timestamps, tokens of 32 hexadecimal digits. How a client reads a token as a
// number depends on its first digits; all tokens here begin with "94213c…", a bad case: it reads
// as an expired timestamp.
package mixing

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	table "github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/broken"
	"github.com/setnxlock/setnxlock/txlock"
)

// A Party is one side of a mixture: a fleet of identical clients.
type Party struct {
	Name  string       // as in race.Algorithms: "theirs/redis-py-2.9", "ours/tx:guarded"
	Says  string       // one line
	Kind  dialect.Kind // the value's kind
	Ours  bool
	Alike []string // the parties that send and read the same; they are not computed separately

	margins []time.Duration // race.Lock's
	make    func(token func() string) protocol.Algorithm
}

// among names the same Party with overlaps inside its fleet ignored.
func (p Party) among() string { return p.Name + "/among" }

// Short returns the name without its side: "redis-py-2.9".
func (p Party) Short() string {
	_, short, _ := strings.Cut(p.Name, "/")
	return short
}

// Parties returns all computed parties, ours first, grouped by kind. One party stands for all
// clients that behave alike on a shared key.
func Parties() []Party { return parties() }

var parties = sync.OnceValue(func() []Party { return append(ours(), theirs()...) })

// Find returns the Party of a name. The name may be one of Alike, and may lack the side if it is
// unambiguous: "redis-py-2.9".
func Find(name string) (Party, error) {
	var found []Party
	for _, p := range Parties() {
		for _, n := range append([]string{p.Name}, p.Alike...) {
			_, short, _ := strings.Cut(n, "/")
			if n == name {
				return p, nil
			}
			if strings.EqualFold(short, name) {
				found = append(found, p)
			}
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return Party{}, fmt.Errorf("mixing: there is no fleet %q: setnxlock race mixing --list names them", name)
}

// Locks returns the parties as package race runs them.
func Locks() race.Locks { return locks() }

var locks = sync.OnceValue(func() race.Locks {
	all := race.Locks{}
	for _, p := range Parties() {
		l := race.Lock{Says: p.Says, Bare: !p.Ours, Margins: p.margins,
			New: func(token func() string, _ bool) protocol.Algorithm { return p.make(token) }}
		all[p.Name] = l
		l.Says, l.Among = p.Says+"; overlaps inside its fleet do not count", true
		all[p.among()] = l
	}
	return all
})

// A lineup lists parties. Of parties that behave alike the first stands for the others.
type lineup struct {
	all []Party
	at  map[string]int // by all that others can notice
}

func (l *lineup) add(p Party, key string) {
	if n, ok := l.at[key]; ok {
		l.all[n].Alike = append(l.all[n].Alike, p.Name)
		return
	}
	l.at[key] = len(l.all)
	l.all = append(l.all, p)
}

// theirs returns the clients in the field, as published. mlanett's redis-lock is missing: it shares
// no key with other clients.
func theirs() []Party {
	l := lineup{at: map[string]int{}}
	for _, f := range dialect.All() {
		if f.Kind == dialect.TwoKeys {
			continue
		}
		p := Party{Name: "theirs/" + f.Name, Says: f.About, Kind: f.Kind}
		m := quirksOf()[f.Name]
		if f.Kind.Timed() {
			p.margins = m.margins(f)
			p.make = func(token func() string) protocol.Algorithm { return timed{client{f, m, token}} }
		} else {
			p.make = func(token func() string) protocol.Algorithm { return tokened{client{f, m, token}} }
		}
		l.add(p, behaviour(f, m))
		if f.Repair {
			q := p
			q.Name, q.Says = p.Name+"/3s", p.Says+"; its leases are 3 s, whatever the other's are"
			q.make = func(token func() string) protocol.Algorithm {
				return short{tokened{client{f, m, token}}, 3 * time.Second}
			}
			l.add(q, q.Name)
		}
	}
	return l.all
}

// behaviour describes everything about a client for others to notice.
func behaviour(f dialect.Format, m quirks) string {
	m.Source = ""
	form := ""
	if !f.Kind.Timed() {
		form = write(f, "")
	}
	return fmt.Sprintf("%v %v %v %v %v %v %v %q %v %v %v", f.Kind, f.Stamp, f.Plus, f.Inclusive, f.Grace, f.Win, f.TTL, form, f.Repair, f.Release, m)
}

// ours returns this module's locks: the timestamp locks in each dialect, and the token locks.
func ours() []Party {
	l := lineup{at: map[string]int{}}
	for _, variant := range []string{"guarded", "classic"} {
		for _, f := range dialect.All() {
			d, err := getsetlock.Named(f.Name)
			if err != nil {
				continue // a token, or two keys
			}
			d.Nonce = d.Nonce || d.Float
			same := d
			same.Name, same.Equal = "", d.Equal && variant == "classic"
			l.ours(fmt.Sprint(variant, same), Party{Name: "getset:" + variant + "/" + f.Name, Says: "getset:" + variant + " in the dialect " + f.Name, Kind: f.Kind, margins: quirks{}.margins(f),
				make: shipped("getset:"+variant, before[d.Owner], d)})
		}
	}
	l.ours("patient", Party{Name: "getset:patient", Says: "getset:patient, float seconds: takes over a value that has not changed for 10 s", Kind: dialect.FloatSeconds,
		make: shipped("getset:patient", "", getsetlock.Float)})
	for _, seconds := range []int{1, 20} {
		d := getsetlock.Float
		d.Margin = time.Duration(seconds) * time.Second
		l.ours(d.Margin.String(), Party{Name: fmt.Sprintf("getset:guarded/margin-%ds", seconds), Says: fmt.Sprintf("getset:guarded, float seconds, that waits %d s longer before a takeover", seconds),
			Kind: dialect.FloatSeconds, margins: []time.Duration{d.Margin}, make: shipped("getset:guarded", "", d)})
	}
	for _, t := range [][2]string{
		{"tx:classic", "SETNX, then EXPIRE; released under WATCH"},
		{"tx:classic/published", "the same, with the published TTL repair"},
		{"tx:guarded", "SETEX under WATCH"},
		{"tx:renamed", "SETEX to another name, RENAMENX"},
		{"set:lua", "SET NX PX; released by a script"},
		{"set:watch", "SET NX PX; released under WATCH"},
	} {
		l.ours(t[0], Party{Name: t[0], Says: t[1], Kind: dialect.Python, make: shipped(t[0], hex, getsetlock.Dialect{})})
	}
	return l.all
}

// shipped makes a lock of the table, or the published one. Its values begin with before.
func shipped(name, before string, d getsetlock.Dialect) func(token func() string) protocol.Algorithm {
	return func(token func() string) protocol.Algorithm {
		unique := func() string { return before + token() }
		if l, ok := table.Get(name); ok {
			return l.New(table.Options{Dialect: d, Lease: lease, Token: unique})
		}
		return broken.RepairAtOnce{Options: txlock.Options{Token: unique}}
	}
}

func (l *lineup) ours(key string, p Party) {
	p.Name, p.Ours = "ours/"+p.Name, true
	l.add(p, key)
}

// before precedes the twelve digits that make an owner unique.
var before = map[dialect.Owner]string{
	dialect.OwnerPIDThread: "4711",
	dialect.OwnerUUID:      "fb2d0a1e3f444e2e8f0a",
}
