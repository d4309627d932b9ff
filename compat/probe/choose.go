package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

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

	lock locks.Lock
}

// Choose returns the first lock of [locks.Preferred] that is safe on the server behind source; r is
// the report on that server. It passes over a lock if the server lacks one of its commands, refuses
// it to this user, or answers it by closing the connection. Choice.Passed has each of these locks
// and what it lacked; Choice.Warnings say what that means beside clients that can use them. It
// returns [compat.ErrUnsafeServer] (a [*compat.UnsafeServerError] that says what to use) for a
// replica, for a server that lacks what every lock needs, and for one that can't do what o asks
// for, and [compat.ErrDenied] if the server refuses writes or an ACL forbids the best lock its
// keys.
func Choose(ctx context.Context, source compat.Source, r Report, o Options) (Choice, error) {
	c, _, err := choose(ctx, source, r, o)
	return c, err
}

// choose also says whether the server contradicted r, or may by now: a refusal is asked anew.
func choose(ctx context.Context, source compat.Source, r Report, o Options) (c Choice, contradicted bool, err error) {
	if err := usable(r, o); err != nil {
		return Choice{}, true, err
	}
	joins := o.Dialect != getsetlock.Dialect{}
	var passed []Passed
	for _, l := range locks.Preferred() {
		times := l.Family() == "getset"
		if joins && !times {
			continue
		}
		pass := func(why string, refused bool) { passed = append(passed, Passed{l.Name, why, refused, l}) }
		lacks := l.Lacks(r.Can)
		if lacks == "" && o.Fence && !slices.Contains(l.Needs, ability.Scripts) && !r.Can(ability.Multi) {
			lacks = ability.Multi // only a script draws a fence without it
		}
		able := lacks == ""
		has := func(a ability.Ability) bool { return r.Can(a) || answer.Of(r.Answers[a].Reply) == answer.Permission }
		if !able && (l.Name == "getset:classic" || l.OneOf != nil && l.Lacks(has) != "") {
			// It has no check of its own, or most servers and proxies lack that.
			pass(lacking(r, lacks), false)
			continue
		}
		with := locks.Options{Fence: o.Fence, Millis: r.Can(ability.Milliseconds), Dialect: o.Dialect, Owner: o.Owner, Once: o.Once}
		a := l.New(with)
		err := o.try(ctx, source, r, l, a)
		var refused redis.Error
		switch {
		case err == nil:
			contradicted = contradicted || !able
		case errors.Is(err, compat.ErrUnsafeServer):
			contradicted = contradicted || able
			pass(reason(err), ability.Renamed(err))
			continue
		case errors.Is(err, compat.ErrUnanswered), errors.As(err, &refused) && !able:
			pass(reason(err), true)
			continue
		default: // if able, an ACL forbids the lock's own keys: other clients take it, so a weaker one is not the answer
			return Choice{}, true, err
		}
		c := Choice{Algorithm: a, Name: l.Name, Why: why(l, r, o) + passedOver(passed), Safe: l.Flaw == "", Passed: passed, Warnings: mixed(l, passed)}
		if l.Several != nil {
			c.Several = l.Several(with)
		}
		c.risk(l, r, o)
		return c, contradicted, nil
	}
	multi := r.Answers[ability.Multi].Reply
	switch {
	case !o.Fence || r.Can(ability.Multi):
	case answer.Of(multi) == answer.Permission:
		return Choice{}, true, o.denied(multi)
	default:
		return Choice{}, contradicted, refuse(r, "it has no MULTI, so the fence and the lock can't be had together", "no fence")
	}
	why := "no lock is safe here" + passedOver(passed)
	if n := len(passed); n > 0 {
		why += fmt.Sprintf("; not even %s, because %s", passed[n-1].Name, passed[n-1].Why)
	}
	return Choice{}, contradicted, refuse(r, why, "another server")
}

// lacking describes a need of a lock, unmet by the server.
func lacking(r Report, need ability.Ability) string {
	a := r.Answers[need]
	if a.Verdict != ability.NotAsked {
		return fmt.Sprintf("it has no %s", need)
	}
	why := cmp.Or(a.Why, "not asked")
	if a.Reply != "" {
		why += fmt.Sprintf("; without a value it is answered %q", string(a.Reply))
	}
	return fmt.Sprintf("it can't be learned whether it has %s (%s)", need, why)
}

// try runs a lock's own check, unless the server is remembered to have passed it.
func (o Options) try(ctx context.Context, source compat.Source, r Report, l locks.Lock, a protocol.Algorithm) error {
	m := o.memory()
	name := fmt.Sprintf("%s fence=%v millis=%v", l.Name, o.Fence, r.Can(ability.Milliseconds))
	if m.Trusts(r, o, name) {
		return nil
	}
	err := Check(ctx, source, a, o.Prefix+"setnxlock-choice-"+protocol.NewToken(), o)
	if err == nil {
		m.Trust(r, o, name)
	}
	return err
}

// refused returns the best lock refused to us alone.
func refused(passed []Passed) (p Passed, found bool) {
	i := slices.IndexFunc(passed, func(p Passed) bool { return p.Refused })
	if i < 0 {
		return p, false
	}
	return passed[i], true
}

// passedOver explains the refusal, for the end of a sentence.
func passedOver(passed []Passed) string {
	if p, found := refused(passed); found {
		return fmt.Sprintf("; it is not %s, because %s", p.Name, p.Why)
	}
	return ""
}

// mixed returns the warnings of a lock, chosen where others may choose a better one.
func mixed(l locks.Lock, passed []Passed) []string {
	p, found := refused(passed)
	if !found {
		return nil
	}
	text := fmt.Sprintf("%s is taken instead of the better %s, because %s", l.Name, p.Name, p.Why)
	switch {
	case p.lock.Family() != l.Family() && l.Family() == "getset":
		text += fmt.Sprintf("; clients that get %s must not lock the same keys: they write tokens with a TTL and this one times without, and neither takes over the other's dead locks", p.Name)
	case l.Flaw != "":
		text += fmt.Sprintf("; beside clients that get %s it takes their protection away: %s", p.Name, l.Flaw)
	default:
		text += "; clients of both exclude each other"
	}
	return []string{text}
}

// reason describes the server's answer to a lock's try, for the middle of a sentence.
func reason(err error) string {
	var unsafe *compat.UnsafeServerError
	var broke *UnansweredError
	var denied *compat.DeniedError
	var refused redis.Error
	switch {
	case errors.As(err, &unsafe):
		return unsafe.Why
	case errors.As(err, &broke):
		return "it " + broke.why()
	case errors.As(err, &denied):
		return fmt.Sprintf("the server refuses %s: %s (%s)", cmp.Or(denied.Command, "a command"), strings.TrimRight(string(denied.Reply), "."), denied.Remedy)
	case errors.As(err, &refused):
		return fmt.Sprintf("the server refuses one of its commands (%s)", strings.TrimRight(string(refused), "."))
	}
	return err.Error()
}

// New asks the server behind source, chooses a lock, and returns a Locker that uses it. Scratch
// keys begin with o.Prefix, as the locks' keys do. This process remembers what the server answered
// ([Memory]). Errors are those of [Ask] and [Choose].
func New(ctx context.Context, source compat.Source, o compat.Options) (*compat.Locker, Choice, error) {
	return NewWith(ctx, source, Options{}, o)
}

// NewWith does as [New], with a lock chosen for want. An Observer sees each warning of the choice as
// [compat.EventWeaker].
func NewWith(ctx context.Context, source compat.Source, want Options, o compat.Options) (*compat.Locker, Choice, error) {
	if want.Prefix == "" {
		want.Prefix = o.Prefix
	}
	_, c, err := Find(ctx, source, want)
	if err != nil {
		return nil, Choice{}, err
	}
	if o.Observer != nil {
		for _, w := range c.Warnings {
			o.Observer(compat.Event{Context: ctx, Kind: compat.EventWeaker, Err: errors.New("setnxlock: " + w)})
		}
	}
	return compat.NewOn(source, c.Algorithm, o), c, nil
}

// Find asks the server behind source, unless o.Memory has its answers, and chooses. If the server
// contradicts a remembered answer, Find forgets it and asks the server again. Errors are those of
// [Ask] and [Choose].
func Find(ctx context.Context, source compat.Source, o Options) (Report, Choice, error) {
	for {
		r, known, err := o.memory().Ask(ctx, source, o)
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
var process Memory

func (o Options) memory() *Memory {
	if o.Memory != nil {
		return o.Memory
	}
	return &process
}

func usable(r Report, o Options) error {
	switch {
	case r.Unsafe() != nil:
		return r.Unsafe()
	case !r.Writable && r.Refused != nil && !answer.Refused(r.Refused): // it says why, or did not answer
		return r.Refused
	case !r.Writable:
		return refuse(r, "it refuses writes, so that no lock can be taken", "it again when it accepts them")
	case !o.Fence:
	case answer.Of(r.Answers[ability.Incr].Reply) == answer.Permission:
		return o.denied(r.Answers[ability.Incr].Reply)
	case !r.Can(ability.Incr) && r.Answers[ability.Incr].Verdict != ability.NotAsked:
		return refuse(r, "it was not seen to count (INCR), so no fence can be had", "no fence")
	}
	return nil
}

// merits are why a lock is the safest here; %s is why no token lock can be had.
var merits = map[string]string{
	"set:ifeq":       "SET NX PX takes a key and gives it its end in one command, and the server itself compares, so that only its holder extends or releases it: one command each, and no script",
	"set:lua":        "SET NX PX takes a key and gives it its end in one command, and a script lets only its holder release it: one round trip each",
	"set:watch":      "SET NX PX takes a key and gives it its end in one command, and WATCH lets only its holder release it",
	"set:script":     "scripts take a key together with its end and let only its holder release it, and there is neither SET NX PX nor what a transaction needs",
	"tx:renamed":     "RENAMENX carries the TTL and a held key refuses it, so a lock is taken in one round trip and is never without an end, and WATCH lets only its holder release it",
	"tx:guarded":     "a key with a TTL stands up to SETNX and there is WATCH, but RENAMENX does not carry the TTL, so a lock is taken by SETEX under WATCH, in two round trips, and is never without an end",
	"getset:guarded": "there is WATCH, so that a client that is too late changes nothing, but %s",
	"getset:listed":  "a transaction of list commands compares, so that a client that is too late changes nothing, and %s",
	"getset:classic": "a lock that needs SETNX, GET, GETSET and DEL alone is all that is left, because %s",
}

// why explains the choice of a lock as the safest here.
func why(l locks.Lock, r Report, o Options) string {
	if l.Name == "getset:guarded" && o.Dialect != (getsetlock.Dialect{}) {
		return fmt.Sprintf("the keys are shared with a fleet that writes %s, and there is WATCH, so that a client that is too late changes nothing", o.Dialect.Name)
	}
	if l.Family() != "getset" {
		return merits[l.Name]
	}
	return fmt.Sprintf(merits[l.Name], lacks(r))
}

// lacks explains why no token lock can be had.
func lacks(r Report) string {
	switch {
	case r.Answers[ability.SetnxOnTTL].Verdict == ability.NotAsked:
		return "there is neither MULTI nor a script, so that nothing with a TTL could be extended safely"
	case !r.Can(ability.SetnxOnTTL):
		return "SETNX deletes a key that has a TTL, so that no lock may have one"
	case !r.Can(ability.ExpireAgain):
		return "EXPIRE does not move an end that was set before, so that no lock could be extended"
	case !r.Can(ability.Multi) || !r.Can(ability.Watch):
		return "no key with a TTL can be extended safely without MULTI and WATCH, or scripts"
	case !r.Can(ability.Setex):
		return "SETEX was not seen to give a key its end, so that a lock could be left without one"
	}
	return "a token lock is not wanted"
}
