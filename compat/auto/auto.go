// Package auto chooses the safest lock of this module that a server supports,
// and says why in a sentence. It asks each lock whether it is safe there, in the
// order of locks.Preferred:
//
//	set:lua          SET NX PX, scripts                         Redis 2.6.12
//	set:watch        SET NX PX, WATCH                           2.6.12 that forbids scripts
//	tx:renamed       TTLs hold, WATCH, RENAMENX keeps the TTL   2.4
//	tx:guarded       TTLs hold, WATCH                           2.2
//	set:script       scripts, no transactions                   twemproxy 0.2
//	getset:guarded   WATCH                                      to join a fleet of timestamp locks
//	getset:listed    MULTI, in which list commands compare      2.0
//	getset:classic   SETNX and GETSET                           1.2, other proxies
//
// Redis 2.6.0–2.6.11 has scripts and no SET NX PX: there the choice is tx:renamed and not
// set:script. tx:renamed acquires in as few round trips, and the AOF has the moment at which each of
// its leases ends. A script is in the AOF as it was sent, so that after a restart each lease would
// begin again.
//
// A choice is for one server. Clients that share keys must all choose tokens, or all choose
// timestamps. All locks of txlock and setlock write the same tokens, so their clients exclude each
// other even if some reach the server through a proxy, or only some have been updated. If some
// clients could choose tokens and others timestamps, name the lock instead.
package auto

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/server"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// Options are what the lock must be able to do. With the zero value it is the safest that the
// server supports.
type Options struct {
	// Fence asks for a lock that draws fences. A server without MULTI can't, and is refused.
	Fence bool

	// Dialect, if it is not the zero value, is how a fleet writes its
	// timestamps, with which keys are shared: then only getsetlock is chosen.
	Dialect getsetlock.Dialect

	// Owner names the holder in the lock's tokens: see locks.Options.
	Owner string

	// Prefix begins the name of every scratch key, for servers whose ACL allows certain names only:
	// the prefix of the locks' keys, or the key to be locked if they have none in common.
	Prefix string

	// Timeout bounds each question to the server. Default: 2 s.
	Timeout time.Duration

	// Memory remembers what servers answered. nil: one Memory for the whole process.
	Memory *server.Memory

	// Where names the way to the server for Memory, as server.Options.Where does.
	Where string
}

// A Choice is a lock for a server.
type Choice struct {
	Algorithm protocol.Algorithm
	Name      string   // as the command's --algorithm has it: "tx:renamed"
	Why       string   // one sentence
	Risks     []string // what the lock can't promise on this server, a sentence each

	// Passed are the better locks that were passed over, the best first, and what each lacked.
	// Warnings are a sentence each, for a lock that is weaker than what other clients of this
	// server may get.
	Passed   []Passed
	Warnings []string

	// Several is the lock of several keys at once that excludes this one's. nil:
	// multilock.New takes them one by one.
	Several protocol.Algorithm

	// Safe says that clients of this lock exclude each other on this server: always, for tokens; as
	// long as the clients' clocks agree, for timestamps. It is false for getset:classic, because a
	// client that pauses can delete another's lock, and for a server that may evict the keys of
	// held locks.
	Safe bool

	_ struct{} // no positional literals
}

// A Passed is a better lock that was passed over.
type Passed struct {
	Name string
	Why  string // what it lacked, for the middle of a sentence

	// Refused says that the server is not too old: it refuses this user a command, has renamed it,
	// or is behind a proxy that lacks it. Other clients may get the better lock.
	Refused bool

	family string
}

// Choose returns the first lock of [locks.Preferred] that is safe on the server behind source; r is
// the report on that server. It passes over a lock if the server lacks one of its commands, refuses
// it to this user, or answers it by closing the connection. Choice.Passed has each of these locks
// and what it lacked; Choice.Warnings say what that means beside clients that can use them. It
// returns [compat.ErrUnsafeServer] (a [*compat.UnsafeServerError] that says what to use) for a
// replica, for a server that lacks what every lock needs, and for one that can't do what o asks
// for, and [compat.ErrDenied] if the server refuses writes or an ACL forbids the best lock its
// keys.
func Choose(ctx context.Context, source compat.Source, r server.Report, o Options) (Choice, error) {
	c, _, err := choose(ctx, source, r, o)
	return c, err
}

// choose also says whether the server contradicted r.
func choose(ctx context.Context, source compat.Source, r server.Report, o Options) (c Choice, contradicted bool, err error) {
	if err := usable(r, o); err != nil {
		return Choice{}, false, err
	}
	joins := o.Dialect != getsetlock.Dialect{}
	var passed []Passed
	for _, l := range locks.Preferred() {
		times := l.Family() == "getset"
		if joins && !times {
			continue
		}
		if l.Name == "getset:classic" && !able(r, l) { // it has no check of its own
			passed = append(passed, Passed{l.Name, lacking(r, l), false, l.Family()})
			continue
		}
		with := locks.Options{Fence: o.Fence, Millis: r.Millis, Dialect: o.Dialect, Owner: o.Owner}
		a := l.New(with)
		err := o.try(ctx, source, r, l, a)
		var refused redis.Error
		switch {
		case err == nil:
			contradicted = contradicted || !able(r, l)
		case errors.Is(err, compat.ErrUnsafeServer):
			contradicted = contradicted || able(r, l)
			passed = append(passed, Passed{l.Name, seen(err), ability.Renamed(err), l.Family()})
			continue
		case errors.Is(err, compat.ErrUnanswered), errors.As(err, &refused) && !able(r, l):
			passed = append(passed, Passed{l.Name, seen(err), true, l.Family()})
			continue
		default:
			return Choice{}, true, err
		}
		c := Choice{Algorithm: a, Name: l.Name, Why: why(l, r, o) + told(passed), Risks: risks(l, r, o), Safe: l.Flaw == "", Passed: passed}
		if l.Several != nil {
			c.Several = l.Several(with)
		}
		c.Risks = append(c.Risks, serverRisks(r, &c)...)
		c.Warnings = mixed(l, passed)
		return c, contradicted, nil
	}
	why := "no lock is safe here" + told(passed)
	if n := len(passed); n > 0 {
		why += fmt.Sprintf("; not even %s, because %s", passed[n-1].Name, passed[n-1].Why)
	}
	return Choice{}, contradicted, refuse(r, why, "another server")
}

// lacking says which of a lock's needs the server did not show.
func lacking(r server.Report, l locks.Lock) string {
	i := slices.IndexFunc(l.Needs, func(n ability.Ability) bool { return !r.Can(n) })
	need := l.Needs[i]
	if !slices.Contains(r.NotAsked, need) {
		return fmt.Sprintf("it has no %s", need)
	}
	answer := "not asked"
	for _, c := range r.Checks {
		if c.Name == string(need) {
			answer = c.Answer
		}
	}
	return fmt.Sprintf("it can't be learned whether it has %s (%s)", need, answer)
}

// try runs a lock's own check, unless it is remembered that it was passed.
func (o Options) try(ctx context.Context, source compat.Source, r server.Report, l locks.Lock, a protocol.Algorithm) error {
	m := o.memory()
	name := fmt.Sprintf("%s fence=%v millis=%v", l.Name, o.Fence, r.Millis)
	if m.Trusts(r, o.server(), name) {
		return nil
	}
	err := server.Try(ctx, source, o.Prefix+"setnxlock-choice-"+protocol.NewToken(), o.server(), a.Traits().Check)
	if err == nil {
		m.Trust(r, o.server(), name)
	}
	return err
}

// told is why the first lock that the server refuses was not taken, for the end of a sentence.
func told(passed []Passed) string {
	for _, p := range passed {
		if p.Refused {
			return fmt.Sprintf("; it is not %s, because %s", p.Name, p.Why)
		}
	}
	return ""
}

// mixed are the warnings of a lock that was taken where others may take a better one.
func mixed(l locks.Lock, passed []Passed) []string {
	var list []string
	for _, p := range passed {
		if !p.Refused {
			continue
		}
		text := fmt.Sprintf("%s is taken instead of the better %s, because %s", l.Name, p.Name, p.Why)
		switch {
		case p.family != l.Family() && l.Family() == "getset":
			text += fmt.Sprintf("; clients that get %s must not lock the same keys: they write tokens with a TTL and this one times without, and neither takes over the other's dead locks", p.Name)
		case l.Flaw != "":
			text += fmt.Sprintf("; beside clients that get %s it takes their protection away: %s", p.Name, l.Flaw)
		default:
			text += "; clients of both exclude each other"
		}
		list = append(list, text)
		break // the best tells enough
	}
	return list
}

// able reports whether the server showed that it has, and allows this user, all that a lock
// needs. If it refuses the lock nevertheless, an ACL forbids the lock's own keys. Other clients
// of the fleet take that lock, so a weaker one is not the answer.
func able(r server.Report, l locks.Lock) bool {
	return !slices.ContainsFunc(l.Needs, func(n ability.Ability) bool { return !r.Can(n) })
}

// seen is what the server did when a lock was tried out, for the middle of a sentence.
func seen(err error) string {
	var unsafe *compat.UnsafeServerError
	var denied *compat.DeniedError
	var refused redis.Error
	switch {
	case errors.As(err, &unsafe):
		return unsafe.Why
	case errors.As(err, &denied):
		return strings.TrimPrefix(denied.Error(), "setnxlock: ")
	case errors.As(err, &refused):
		return fmt.Sprintf("the server refuses one of its commands (%s)", strings.TrimRight(string(refused), "."))
	}
	return strings.TrimPrefix(err.Error(), "setnxlock: ")
}

// New probes the server behind source, chooses a lock, and returns a Locker that uses it. Scratch
// keys begin with o.Prefix, as the locks' keys do. This process remembers what the server answered
// ([server.Memory]). Errors are those of [server.Probe] and [Choose].
func New(ctx context.Context, source compat.Source, o compat.Options) (*compat.Locker, Choice, error) {
	return NewWith(ctx, source, Options{}, o)
}

// NewWith is [New] for a lock that can do what want asks for. An Observer sees each warning of the
// choice as [compat.EventWeaker].
func NewWith(ctx context.Context, source compat.Source, want Options, o compat.Options) (*compat.Locker, Choice, error) {
	if want.Prefix == "" {
		want.Prefix = o.Prefix
	}
	_, c, err := Ask(ctx, source, want)
	if err != nil {
		return nil, Choice{}, err
	}
	if o.Observer != nil {
		for _, w := range c.Warnings {
			o.Observer(compat.Event{Kind: compat.EventWeaker, Err: errors.New("setnxlock: " + w)})
		}
	}
	return compat.NewOn(source, c.Algorithm, o), c, nil
}

// Ask probes the server behind source, unless o.Memory has its answers, and chooses. If the server
// contradicts a remembered answer, Ask forgets it and probes the server again. Errors are those of
// [server.Probe] and [Choose].
func Ask(ctx context.Context, source compat.Source, o Options) (server.Report, Choice, error) {
	for {
		r, known, err := o.memory().Probe(ctx, source, o.server())
		if err != nil {
			return r, Choice{}, err
		}
		c, contradicted, err := choose(ctx, source, r, o)
		if contradicted {
			o.memory().Forget(r)
		}
		if !known || !contradicted {
			return r, c, err
		}
	}
}

// process remembers for this process.
var process server.Memory

func (o Options) memory() *server.Memory {
	if o.Memory != nil {
		return o.Memory
	}
	return &process
}

func (o Options) server() server.Options {
	return server.Options{Prefix: o.Prefix, Timeout: o.Timeout, Where: o.Where}
}

func usable(r server.Report, o Options) error {
	switch {
	case r.Unsafe() != nil:
		return r.Unsafe()
	case !r.Writable && errors.Is(r.Refused, compat.ErrDenied):
		return r.Refused
	case !r.Writable && r.Refused != nil && !errors.As(r.Refused, new(redis.Error)): // it did answer
		return refuse(r, strings.TrimPrefix(r.Refused.Error(), "setnxlock: "), "another server")
	case !r.Writable:
		return refuse(r, "it refuses writes, so that no lock can be taken", "it again when it accepts them")
	case o.Fence && !r.Multi:
		return refuse(r, "it has no MULTI, so the fence and the lock can't be had together", "no fence")
	}
	return nil
}

func refuse(r server.Report, why, use string) error {
	return &compat.UnsafeServerError{Version: r.Version, Why: why, Use: use}
}

// why says why a lock is the safest here.
func why(l locks.Lock, r server.Report, o Options) string {
	switch l.Name {
	case "set:lua":
		return "SET NX PX takes a key and gives it its end in one command, and a script lets only its holder release it: one round trip each"
	case "set:watch":
		return "SET NX PX takes a key and gives it its end in one command, and WATCH lets only its holder release it"
	case "set:script":
		return "scripts take a key together with its end and let only its holder release it, and there is neither SET NX PX nor what a transaction needs"
	case "tx:renamed":
		return "RENAMENX carries the TTL and a held key refuses it, so a lock is taken in one round trip and is never without an end, and WATCH lets only its holder release it"
	case "tx:guarded":
		return "a key with a TTL stands up to SETNX and there is WATCH, but RENAMENX does not carry the TTL, so a lock is taken by SETEX under WATCH, in two round trips, and is never without an end"
	case "getset:guarded":
		if o.Dialect != (getsetlock.Dialect{}) {
			return fmt.Sprintf("the keys are shared with a fleet that writes %s, and there is WATCH, so that a client that is too late changes nothing", o.Dialect.Name)
		}
		return "there is WATCH, so that a client that is too late changes nothing, but " + lacks(r)
	case "getset:listed":
		return "a transaction of list commands compares, so that a client that is too late changes nothing, and " + lacks(r)
	case "getset:classic":
		return "a lock that needs SETNX, GET, GETSET and DEL alone is all that is left, because " + lacks(r)
	}
	return l.About
}

// lacks says why no token lock can be had.
func lacks(r server.Report) string {
	switch {
	case slices.Contains(r.NotAsked, ability.SetnxOnTTL):
		return "there is neither MULTI nor a script, so that nothing with a TTL could be extended safely"
	case !r.SetnxRespectsTTL:
		return "SETNX deletes a key that has a TTL, so that no lock may have one"
	case !r.ExpireAgain:
		return "EXPIRE does not move an end that was set before, so that no lock could be extended"
	case !r.Multi || !r.Watch:
		return "no key with a TTL can be extended safely without MULTI and WATCH, or scripts"
	case !r.Setex:
		return "SETEX was not seen to give a key its end, so that a lock could be left without one"
	}
	return "a token lock is not wanted"
}
