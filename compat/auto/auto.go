// Package auto chooses the safest lock of this module that a server supports,
// and says why in a sentence.
//
//	SET NX PX, scripts                         setlock.Lua           Redis 2.6.12
//	SET NX PX, WATCH                           setlock.Watched       2.6.12 that forbids scripts
//	TTLs hold, WATCH, RENAMENX keeps the TTL   txlock.Renamed        2.4
//	TTLs hold, WATCH, SETEX                    txlock.Guarded        2.2
//	scripts, no transactions                   setlock.Script        twemproxy 0.2
//	WATCH                                      getsetlock.Guarded    to join a fleet of timestamp locks
//	MULTI, and lists compare in it             getsetlock.Listed     2.0
//	SETNX and GETSET                           getsetlock.Classic    1.2, other proxies
//
// Redis 2.6.0–2.6.11 has scripts and no SET NX PX: there the choice is
// txlock.Renamed and not setlock.Script. It needs no more round trips to acquire, and
// its ends are in the AOF as moments; a script is logged as it was sent, so that after a
// restart each lease would begin anew.
//
// The choice is one server's: clients that share keys must all make the same
// kind of choice, tokens or timestamps. All of txlock and setlock write the same
// tokens, so a fleet that meets a server by way of a proxy here and without one
// there, or is updated client by client, still excludes itself. Where one
// choice would be of tokens and another of timestamps, name the lock instead.
package auto

import (
	"context"
	"fmt"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/server"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// Options are what the lock must be able to do. The zero value asks for the
// safest.
type Options struct {
	// Fence asks for numbers that grow with every acquisition. A server
	// without MULTI can't give them, and is refused.
	Fence bool

	// Dialect, if it is not the zero value, is how a fleet writes its
	// timestamps, with which keys are shared: then only getsetlock is chosen.
	Dialect getsetlock.Dialect
}

// A Choice is a lock for a server.
type Choice struct {
	Algorithm compat.Algorithm
	Name      string   // as the command's --algorithm has it: "tx:renamed"
	Why       string   // one sentence
	Risks     []string // what the lock can't promise here, a sentence each

	// Safe says that clients of this lock exclude each other here: always for
	// tokens; for timestamps as long as the clients' clocks agree. It is false
	// for a lock that a client which pauses can delete from under another
	// (getset:classic), and where the server may drop the keys of held locks.
	Safe bool

	_ struct{} // no positional literals
}

// Choose returns the safest lock for the server that r reports on. It returns
// ErrUnsafeServer (a *compat.UnsafeServerError that says what to use) for a
// replica, for a server that refuses writes or lacks what every lock needs,
// and for one that can't do what o asks for.
func Choose(r server.Report, o Options) (Choice, error) {
	if err := usable(r, o); err != nil {
		return Choice{}, err
	}
	joins := o.Dialect != getsetlock.Dialect{}
	set := r.SetNXPX && r.Millis && !joins
	scripts := r.Eval && r.Millis && !joins
	tokens := r.SetnxRespectsTTL && r.ExpireAgain && r.Watch && r.Multi && r.Setex && !joins

	var c Choice
	switch {
	case set && scripts:
		c = setLua(r, o)
	case set && r.Watch && r.Multi:
		c = setWatched(r, o)
	case tokens && r.RenamenxKeepsTTL && r.RenamenxRefuses:
		c = renamed(r, o)
	case tokens:
		c = guarded(r, o)
	case scripts:
		c = setScript(r, o)
	case !r.Setnx || !r.Getset:
		return Choice{}, refuse(r, "it lacks SETNX or GETSET, and "+lacks(r), "another server")
	case r.Watch && r.Multi:
		c = getsetGuarded(r, o)
	case r.Lists:
		c = getsetListed(r, o)
	default:
		c = getsetClassic(r, o)
	}
	c.Risks = append(c.Risks, serverRisks(r, &c)...)
	return c, nil
}

// New probes the server behind source, chooses, and returns the Locker with
// what was chosen. Scratch keys begin with o.Prefix, as the locks' own do.
// Errors are server.Probe's and Choose's.
func New(ctx context.Context, source compat.Source, o compat.Options) (*compat.Locker, Choice, error) {
	return NewWith(ctx, source, Options{}, o)
}

// NewWith is New of a lock that can do what want asks for.
func NewWith(ctx context.Context, source compat.Source, want Options, o compat.Options) (*compat.Locker, Choice, error) {
	r, err := server.Probe(ctx, source, server.Options{Prefix: o.Prefix})
	if err != nil {
		return nil, Choice{}, err
	}
	c, err := Choose(r, want)
	if err != nil {
		return nil, Choice{}, err
	}
	return compat.New(source, c.Algorithm, o), c, nil
}

func usable(r server.Report, o Options) error {
	switch {
	case r.Role == "replica":
		master := "its master"
		if r.Master != "" {
			master += ", " + r.Master
		}
		return refuse(r, "it is a replica: a lock taken here excludes nobody", master)
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

// token is the choice of a lock whose key holds a token.
func token(a compat.Algorithm, name, why string, risks []string) Choice {
	return Choice{Algorithm: a, Name: name, Why: why, Safe: true, Risks: risks}
}

func setOptions(o Options) setlock.Options { return setlock.Options{Fence: o.Fence} }

func setLua(r server.Report, o Options) Choice {
	return token(setlock.Lua{Options: setOptions(o)}, "set:lua",
		"SET NX PX takes a key and gives it its end in one command, and a script lets only its holder release it: one round trip each", tokenRisks(r))
}

func setWatched(r server.Report, o Options) Choice {
	return token(setlock.Watched{Options: setOptions(o)}, "set:watch",
		"SET NX PX takes a key and gives it its end in one command, and, as scripts are forbidden, WATCH lets only its holder release it", watchRisks(r))
}

func setScript(r server.Report, o Options) Choice {
	return token(setlock.Script{Options: setOptions(o)}, "set:script",
		"scripts take a key together with its end and let only its holder release it, and there is neither SET NX PX nor what a transaction needs", tokenRisks(r))
}

func txOptions(r server.Report, o Options) txlock.Options {
	return txlock.Options{Millis: r.Millis, Fence: o.Fence}
}

func renamed(r server.Report, o Options) Choice {
	return token(txlock.Renamed{Options: txOptions(r, o)}, "tx:renamed",
		"RENAMENX carries the TTL and is refused by a held key, so a lock is taken in one round trip and is never without an end, and WATCH lets only its holder release it", watchRisks(r))
}

func guarded(r server.Report, o Options) Choice {
	return token(txlock.Guarded{Options: txOptions(r, o)}, "tx:guarded",
		"a key with a TTL stands up to SETNX and there is WATCH, but RENAMENX does not carry the TTL, so a lock is taken by SETEX under WATCH, in two round trips, and is never without an end", watchRisks(r))
}

func getsetGuarded(r server.Report, o Options) Choice {
	why := "there is WATCH, so that a client that is too late changes nothing, but " + lacks(r)
	if o.Dialect != (getsetlock.Dialect{}) {
		why = fmt.Sprintf("the keys are shared with a fleet that writes %s, and there is WATCH, so that a client that is too late changes nothing", o.Dialect.Name)
	}
	return Choice{
		Algorithm: getsetlock.Guarded{Options: getsetlock.Options{Dialect: o.Dialect, Fence: o.Fence}},
		Name:      "getset:guarded",
		Why:       why,
		Safe:      true,
		Risks:     timestampRisks(r, o),
	}
}

func getsetListed(r server.Report, o Options) Choice {
	return Choice{
		Algorithm: getsetlock.Listed{Options: getsetlock.Options{Dialect: o.Dialect, Fence: o.Fence}},
		Name:      "getset:listed",
		Why:       "a transaction of list commands compares, so that a client that is too late changes nothing, and " + lacks(r),
		Safe:      true,
		Risks: append(timestampRisks(r, o),
			"over its maxmemory the server refuses what makes lists, and a lock can then neither be extended nor given back before its end",
			"beside clients of the published lock, which overwrite and delete without comparing, it is only as safe as they are"),
	}
}

func getsetClassic(r server.Report, o Options) Choice {
	return Choice{
		Algorithm: getsetlock.Classic{Options: getsetlock.Options{Dialect: o.Dialect, Fence: o.Fence}},
		Name:      "getset:classic",
		Why:       "a lock that needs SETNX, GET, GETSET and DEL alone is all that is left, because " + lacks(r),
		Risks: append(timestampRisks(r, o),
			"a client that pauses between the GET and the DEL of its release, past the end of its lease, deletes the lock of the next one",
			"a client that comes second to a takeover writes its own time over the winner's, who then can't extend or release"),
	}
}

// lacks says why no token lock can be had.
func lacks(r server.Report) string {
	switch {
	case !r.SetnxRespectsTTL:
		return "SETNX deletes a key that has a TTL, so that no lock may have one"
	case !r.ExpireAgain:
		return "EXPIRE does not move an end that was set before, so that no lock could be extended"
	case !r.Multi || !r.Watch:
		return "no key with a TTL can be extended safely without MULTI and WATCH, or scripts"
	case !r.Setex:
		return "there is no SETEX, so that a lock could be left without an end"
	}
	return "a token lock is not wanted"
}
