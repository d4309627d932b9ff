package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// A Plan is how a fleet moves from one lock to another while it runs. Only clients of two
// successive stages may run at once; each [Stage] says what that needs.
type Plan struct {
	From   string  `json:"from"`
	About  string  `json:"about"` // who the old clients are
	To     string  `json:"to"`
	OldKey string  `json:"old_key"` // what the old clients call the lock NAME
	NewKey string  `json:"new_key"` // what the new ones must call it
	Stages []Stage `json:"stages,omitempty"`

	// Drain says why all old clients must be stopped, and a lease must pass, before the new ones
	// start. "" if there is a better way.
	Drain string `json:"drain,omitempty"`

	// Direct says why no bridge is needed. "" if one is needed.
	Direct string `json:"direct,omitempty"`

	// Risks are the harm that old clients can do to other clients, and to each other, until the
	// last old client is gone.
	Risks []string `json:"risks,omitempty"`
}

// A Stage is a lock to which all clients of the fleet move before the next stage begins.
type Stage struct {
	Name    string   `json:"name"`
	Lock    string   `json:"lock"`              // what its clients run
	Go      string   `json:"go,omitempty"`      // the same in a program of ours
	Command string   `json:"command,omitempty"` // and by the command
	Mix     []string `json:"mix,omitempty"`     // what runs at once while it is rolled out
	Why     string   `json:"why,omitempty"`     // why it can't be left out
	Races   []string `json:"races,omitempty"`   // what happens if it is, in the catalogue
	Done    []string `json:"done,omitempty"`    // how to know that it is finished
	Back    string   `json:"back,omitempty"`    // how to go back

	locks []protocol.Algorithm
}

// Locks returns the stage's locks, the one for the newest server first: take the first that is safe on your server
// (probe.Check). For an old client they are this module's locks in its dialect, which look the same to it.
func (s Stage) Locks() []protocol.Algorithm { return s.locks }

// Targets returns the names of the new locks for [NewPlan]: the families of token locks, and the locks in them.
func Targets() []string {
	var list []string
	for _, family := range []string{"set", "tx"} {
		list = append(list, family)
		for _, l := range locks.All() {
			if l.Family() == family && !strings.Contains(l.Name, "/") {
				list = append(list, l.Name)
			}
		}
	}
	return list
}

// Ours returns the names of this module's locks that can be the old lock for [NewPlan], besides the clients in the
// field.
func Ours() []string { return []string{"setnx-expire", "getset", "tx", "set"} }

// NewPlan returns the plan from a lock (the name of a client in the field, or one of [Ours];
// "setnx-expire" is the lock of most articles) to one of [Targets]. The error is
// [protocol.ErrInvalid] if there is no such name. It is no error if there is no safe way: see
// Plan.Drain.
func NewPlan(from, to string) (Plan, error) {
	news, ok := target(to)
	if !ok {
		return Plan{}, fmt.Errorf("%w: no lock %q to move to: there are %s", protocol.ErrInvalid, to, strings.Join(Targets(), ", "))
	}
	f, err := origin(from)
	if errors.Is(err, dialect.ErrUnsupported) {
		p := Plan{From: from, To: to, Drain: drained(err)}
		for name, about := range map[string]string{
			dialect.Redisson: "Redisson's RLock, for Java", dialect.Symfony: "Symfony's RedisStore since 5.2, for PHP",
			dialect.SidekiqUnique: "sidekiq-unique-jobs since 7, a gem", dialect.RubySemaphore: "redis-semaphore, a gem", dialect.NodeSemaphore: "redis-semaphore's Semaphore, for Node", dialect.BookSemaphore: "the semaphores of Redis in Action, 6.3",
		} {
			if strings.EqualFold(name, from) {
				p.From, p.About = name, about
			}
		}
		return p, nil
	}
	if err != nil {
		return Plan{}, err
	}
	p := Plan{From: f.Name, About: f.About, To: to, OldKey: f.KeyName, NewKey: f.KeyName}
	if why := lawless(f); why != "" {
		p.Drain = f.Name + " " + why + ", so no lock is safe beside it"
		return p, nil
	}
	p.Risks = risks(f)
	old := Stage{Name: "old", Lock: f.Name, locks: olds(f)}
	next := Stage{Name: "new", Lock: to, Go: goOf(to), Command: "setnxlock run --algorithm " + to + " " + keyOf(f) + " -- ...", locks: news}
	switch {
	case f.Kind.Timed():
		p.Stages = []Stage{old, oneKey(f), next}
	case f.Kind == dialect.TwoKeys:
		p.NewKey = "NAME"
		next.Command = "setnxlock run --algorithm " + to + " NAME -- ..."
		p.Stages = []Stage{old, twoKeys(f), next}
	case f.Token == dialect.TokenSpring || f.Signal != "":
		p.Stages = []Stage{old, form(f), next}
	default:
		p.Stages = []Stage{old, next}
		p.Direct = "old and new clients make the key only where there is none, and go by its TTL, not by what others have written on it"
	}
	p.link(f)
	return p, nil
}

// drained returns the harm by a client that no lock of ours may stand beside.
func drained(err error) string {
	_, why, _ := strings.Cut(err.Error(), dialect.ErrUnsupported.Error()+": ")
	why, _, _ = strings.Cut(why, ". ")
	return why
}

// link adds to each stage its companions, its end and the way back.
func (p *Plan) link(f dialect.Format) {
	last := len(p.Stages) - 1
	for i := 1; i <= last; i++ {
		s, before := &p.Stages[i], p.Stages[i-1]
		s.Mix = []string{before.Lock, s.Lock}
		s.Done = append(s.Done, fmt.Sprintf("no client of stage %d runs any more, on any machine (CLIENT LIST, cron, queues that start workers), and the longest of their leases has passed since the last one stopped", i-1))
		s.Back = fmt.Sprintf("roll the clients back to %s one by one: the same two locks run at once", before.Lock)
		if i == last {
			s.Back += "; no further back than that in one step"
		}
		if i == last-1 || last == 1 {
			s.Done = append(s.Done, looks(f, last == 1))
		}
	}
}

// looks returns the expected output of setnxlock survey after the last old client.
func looks(f dialect.Format, direct bool) string {
	switch {
	case f.Kind.Timed():
		return "setnxlock survey shows no key with a time and without a TTL: an old client leaves one if it ends without a release, and clients of tokens would wait for it for ever; setnxlock repair --dialect " + f.Name + " removes those that nobody renews (a time with a TTL is the bridge's own)"
	case f.Kind == dialect.TwoKeys:
		return "setnxlock survey shows no lock:owner: that has no key NAME beside it"
	case f.TTL == dialect.TTLAtomic:
		return "setnxlock survey shows no lock that nothing ends (status persistent)"
	case direct:
		return "setnxlock survey shows no lock that nothing ends (status persistent): an old client leaves one if it ends before it sets a TTL; setnxlock repair --dialect gives it its end if its clients always set one, setnxlock release --force removes any"
	}
	return "setnxlock survey shows no lock that nothing ends (status persistent)"
}

// oneKey returns the stage between times and tokens.
func oneKey(f dialect.Format) Stage {
	b, code := OneKey{}, "bridge.OneKey{}"
	if named, err := Named(f.Name); err == nil {
		b, code = named, fmt.Sprintf("bridge.Named(%q)", f.Name)
	}
	seconds := b
	b.Millis = true
	s := Stage{
		Name: "bridge", Lock: "bridge:" + f.Name, Go: code,
		Command: "setnxlock run --algorithm bridge --dialect " + commandDialect(f) + " " + keyOf(f) + " -- ...",
		locks:   []protocol.Algorithm{b, seconds},
		Races:   []string{"compat/token-read-as-expired", "compat/ttl-vs-stamp"},
		Why:     "an old client " + meets(f),
	}
	if f.TTL == dialect.TTLNone {
		s.Why += "; and a new one never recovers the lock of an old one that died, which has no TTL"
	}
	if f.Name == "getset" {
		s.Races = s.Races[1:]
	}
	return s
}

// meets tells how f's clients treat a token. What the executed ones do is in the tests of getsetlock; the others go by
// their language.
func meets(f dialect.Format) string {
	const steals = "reads a number, or 0, at the beginning of a new one's token, and takes the lock over from its holder"
	switch f.Name {
	case "getset":
		return "leaves a new one's token alone"
	case "redis-py-2.2.3", "redis-py-2.9", "retools-0.3", "redset", "chris-lamb", "jedis-lock":
		return "throws at a new one's token, or overwrites it if it comes between its GET and its GETSET"
	case "machinery":
		return "ends with an error at a new one's token, or overwrites it if it comes between its GET and its GETSET"
	case "npm-redis-lock-0.0":
		return "writes over a new one's token, whose TTL is gone with it"
	case "jedis-lock-1.0.1":
		return "takes over what it can't read: a new one's token from its holder"
	case "Guanima", "ServiceStack", "ServiceStack-DistributedLock":
		return "can't read a new one's token, and waits for it to be deleted; or overwrites it if it comes between its GET and its GETSET"
	}
	return steals
}

// twoKeys returns the stage between two keys and one.
func twoKeys(f dialect.Format) Stage {
	token, _ := dialect.Lookup("redis-py-3")
	return Stage{
		Name: "bridge", Lock: "bridge:" + f.Name, Go: "bridge.TwoNames{Old: old, New: new} // dialect.Lookup(\"" + f.Name + "\"), dialect.Lookup(\"redis-py-3\")",
		Why:   "an old client looks at lock:owner:NAME and lock:expire:NAME, a new one at NAME: neither sees the other's lock",
		locks: []protocol.Algorithm{TwoNames{Old: f, New: token, Millis: true}, TwoNames{Old: f, New: token}},
	}
}

// form returns the stage of clients that need more than a new client's lock or release.
func form(f dialect.Format) Stage {
	why := "an old client takes apart the value of any lock that it finds: one in another form may make it throw"
	if f.Signal != "" {
		why = "an old client waits on the list " + f.Signal + ", for as long as its own lease or for ever, and a new one's release pushes nothing to it"
	}
	return Stage{
		Name: "form", Lock: "tx in the form of " + f.Name, Go: fmt.Sprintf("txlock.Named(%q)", f.Name),
		Command: "setnxlock run --algorithm tx --dialect " + f.Name + " " + keyOf(f) + " -- ...",
		Why:     why,
		locks:   olds(f),
	}
}

func commandDialect(f dialect.Format) string {
	if f.Name == "getset" {
		return "float"
	}
	return f.Name
}

// keyOf returns the command's key for the old clients' lock NAME: with its prefix as a flag, or, if something follows
// NAME, in full.
func keyOf(f dialect.Format) string {
	before, after, _ := strings.Cut(f.KeyName, "NAME")
	switch {
	case before == "" && after == "":
		return "NAME"
	case after == "":
		return "--prefix '" + before + "' NAME"
	case strings.ContainsAny(f.KeyName, "{}"):
		return "'" + f.KeyName + "'"
	}
	return f.KeyName
}

// risks lists the harm that f's clients do to each other.
func risks(f dialect.Format) []string {
	var list []string
	switch f.Release {
	case dialect.ReleaseBare:
		list = append(list, "a client that outlives its lease deletes another's lock (any/release-after-expiry): its leases must be longer than its work")
	case dialect.ReleaseLive, dialect.ReleaseNotEarly, dialect.ReleaseCompare:
		list = append(list, "a client that stops for the rest of its lease between looking and DEL deletes its successor's lock (getset/paused-release)")
	}
	if f.Kind.Timed() && (f.Win == dialect.WinExpired || f.Win == dialect.WinEqual) {
		list = append(list, "a GETSET that lost, or was late, writes over a live lock (getset/loser-overwrites, getset/stale-getset-sets-back)")
	}
	if f.Kind.Timed() || f.Kind == dialect.TwoKeys {
		list = append(list, "clocks must agree until the bridge has gone (getset/skewed-takeover)")
	}
	if f.TTL == dialect.TTLSeconds || f.TTL == dialect.TTLMillis {
		list = append(list, "a client that dies between SETNX and EXPIRE leaves a key that nothing ends (tx/crash-before-expire)")
	}
	if f.Signal != "" {
		list = append(list, "nobody wakes a client that waits for a lock whose holder died: it waits for as long as its own lease; without expire= for ever")
	}
	if f.Name == "rueidislock" {
		list = append(list, "by its default (KeyMajority 2) a client holds the lock by two of three keys: beside such clients lock two of them, setnxlock run rueidislock:0:NAME rueidislock:1:NAME")
	}
	if f.Repair {
		list = append(list, "a client that finds no TTL sets its own, on a new holder's key too if it comes late (tx/ttl-repair): no new lease may be longer than the old clients'")
	}
	return list
}

// origin returns the lock to move from.
func origin(name string) (dialect.Format, error) {
	tokens := dialect.Format{Name: name, Kind: dialect.Python, KeyName: "NAME", Token: dialect.TokenHex, TTL: dialect.TTLAtomic, Release: dialect.ReleaseWatched}
	switch family, _, _ := strings.Cut(name, ":"); family {
	case "setnx-expire":
		tokens.About, tokens.TTL, tokens.Release = "what most articles have: SETNX, then EXPIRE, and DEL", dialect.TTLSeconds, dialect.ReleaseBare
		return tokens, nil
	case "tx", "set":
		if _, ok := target(name); ok {
			tokens.About = "a lock of this module with a token and a TTL"
			return tokens, nil
		}
	case "getset":
		tokens.Name, tokens.Kind, tokens.TTL, tokens.Token = "getset", dialect.FloatSeconds, dialect.TTLNone, ""
		tokens.About, tokens.Stamp = "getsetlock.Guarded or Classic, in this module's own dialect", dialect.Stamp{Unit: time.Second, Float: true}
		return tokens, nil
	}
	f, err := dialect.Lookup(name)
	if err != nil {
		return f, fmt.Errorf("%w: %w; or one of %s", protocol.ErrInvalid, err, strings.Join(Ours(), ", "))
	}
	return f, nil
}

// olds returns our locks in the likeness of f's clients.
func olds(f dialect.Format) []protocol.Algorithm {
	switch {
	case f.Name == "getset":
		return []protocol.Algorithm{getsetlock.Guarded{}}
	case f.Kind == dialect.TwoKeys:
		return []protocol.Algorithm{getsetlock.TwoKeys{}}
	case f.Kind.Timed():
		d, _ := getsetlock.Named(f.Name)
		return []protocol.Algorithm{getsetlock.Guarded{Options: getsetlock.Options{Dialect: d}}}
	}
	if news, ok := target(f.Name); ok {
		return news
	}
	if f.Name == "setnx-expire" {
		return []protocol.Algorithm{txlock.Classic{NoRepair: true}}
	}
	fleet, _ := txlock.Named(f.Name)
	seconds := fleet
	seconds.Millis = false
	return []protocol.Algorithm{fleet, seconds}
}

// target returns the locks of a name in Targets, the one for the newest server first.
func target(name string) ([]protocol.Algorithm, bool) {
	if !slices.Contains(Targets(), name) {
		return nil, false
	}
	var list []protocol.Algorithm
	for _, l := range locks.Named(name) {
		for _, o := range l.Fallbacks(locks.Options{Millis: true}) {
			list = append(list, l.New(o))
		}
	}
	return list, true
}

// goOf returns the Go of a target; for a family its first that does not need the servers of today.
func goOf(to string) string {
	all := locks.Named(to)
	for _, l := range all {
		if l.OneOf == nil {
			return l.Go + "{}"
		}
	}
	return all[0].Go + "{}"
}
