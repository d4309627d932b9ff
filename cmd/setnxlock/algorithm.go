package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/auto"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/server"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// A candidate is a lock that may be right for a server.
type candidate struct {
	name string // as --algorithm has it
	compat.Algorithm
}

// A variant is a value of --algorithm that names one lock.
type variant struct {
	name   string
	alone  bool   // its family does not stand for it: wherever it is safe another is too, and safer, or it is no plain lock
	unsafe string // what lets two in, for the published locks that are kept for comparison
	risk   string // what else is wrong with such a one
	make   func(d getsetlock.Dialect, fence bool) []compat.Algorithm
}

// The order is that of preference: of a family its safer variants first, of a
// variant its finer counting and its fence. Not every server can do what the
// first one needs.
var variants = []variant{
	{name: "set:lua", make: set(func(o setlock.Options) compat.Algorithm { return setlock.Lua{Options: o} })},
	{name: "set:watch", make: set(func(o setlock.Options) compat.Algorithm { return setlock.Watched{Options: o} })},
	{name: "set:script", make: set(func(o setlock.Options) compat.Algorithm { return setlock.Script{Options: o} })},
	{name: "set:published", alone: true, unsafe: "it compares and deletes in two steps (set/compare-then-del)",
		make: set(func(o setlock.Options) compat.Algorithm { return setlock.Published{Options: o} })},
	{name: "set:redis-py", alone: true, risk: "its renewals add up, so that a dead holder's lock stays for longer than --ttl (set/extend-adds)",
		make: set(func(o setlock.Options) compat.Algorithm { return setlock.Added{Options: o} })},
	{name: "tx:renamed", make: tx(func(o txlock.Options) compat.Algorithm { return txlock.Renamed{Options: o} })},
	{name: "tx:guarded", make: tx(func(o txlock.Options) compat.Algorithm { return txlock.Guarded{Options: o} })},
	{name: "tx:renamed/listed", alone: true, make: tx(func(o txlock.Options) compat.Algorithm { o.Listed = true; return txlock.Renamed{Options: o} })},
	{name: "tx:guarded/listed", alone: true, make: tx(func(o txlock.Options) compat.Algorithm { o.Listed = true; return txlock.Guarded{Options: o} })},
	{name: "tx:classic", alone: true, make: tx(func(o txlock.Options) compat.Algorithm { return txlock.Classic{Options: o} })},
	{name: "tx:classic/published", alone: true, risk: "its TTL repair shortens and revives others' locks (tx/ttl-repair)",
		make: tx(func(o txlock.Options) compat.Algorithm {
			return txlock.Classic{Options: o, TTLRepair: txlock.RepairPublished}
		})},
	{name: "getset:guarded", make: getset(func(o getsetlock.Options) compat.Algorithm { return getsetlock.Guarded{Options: o} })},
	{name: "getset:listed", make: getset(func(o getsetlock.Options) compat.Algorithm { return getsetlock.Listed{Options: o} })},
	{name: "getset:classic", make: getset(func(o getsetlock.Options) compat.Algorithm { return getsetlock.Classic{Options: o} })},
	{name: "bridge", alone: true, make: bridges},
	{name: "rw:read", alone: true, make: rw(func(o rwlock.Options) compat.Algorithm { return rwlock.Read{Options: o} })},
	{name: "rw:write", alone: true, make: rw(func(o rwlock.Options) compat.Algorithm { return rwlock.Write{Options: o} })},
	{name: "rw:read/published", alone: true, unsafe: "its mutex ends before a slow client's turn does (rw/mutex-outrun)",
		make: rw(func(o rwlock.Options) compat.Algorithm { return rwlock.PublishedRead{Options: o} })},
	{name: "rw:write/published", alone: true, unsafe: "its mutex ends before a slow client's turn does (rw/mutex-outrun)",
		make: rw(func(o rwlock.Options) compat.Algorithm { return rwlock.PublishedWrite{Options: o} })},
}

func set(lock func(setlock.Options) compat.Algorithm) func(getsetlock.Dialect, bool) []compat.Algorithm {
	return func(_ getsetlock.Dialect, fence bool) []compat.Algorithm {
		return []compat.Algorithm{lock(setlock.Options{Fence: fence})}
	}
}

func tx(lock func(txlock.Options) compat.Algorithm) func(getsetlock.Dialect, bool) []compat.Algorithm {
	return func(_ getsetlock.Dialect, fence bool) []compat.Algorithm {
		return []compat.Algorithm{lock(txlock.Options{Millis: true, Fence: fence}), lock(txlock.Options{Fence: fence})}
	}
}

// getset without the fence is for proxies, which have no transactions.
func getset(lock func(getsetlock.Options) compat.Algorithm) func(getsetlock.Dialect, bool) []compat.Algorithm {
	return func(d getsetlock.Dialect, fence bool) []compat.Algorithm {
		plain := lock(getsetlock.Options{Dialect: d})
		if !fence {
			return []compat.Algorithm{plain}
		}
		return []compat.Algorithm{lock(getsetlock.Options{Dialect: d, Fence: true}), plain}
	}
}

func rw(lock func(rwlock.Options) compat.Algorithm) func(getsetlock.Dialect, bool) []compat.Algorithm {
	return func(_ getsetlock.Dialect, fence bool) []compat.Algorithm {
		return []compat.Algorithm{lock(rwlock.Options{Fence: fence, Millis: true, ServerClock: true}), lock(rwlock.Options{Fence: fence})}
	}
}

// names are the values of --algorithm, families first.
func names() []string {
	list := []string{"auto", "set", "tx", "getset", "redlock"}
	for _, v := range variants {
		list = append(list, v.name)
	}
	return list
}

// candidates are the locks that --algorithm may mean, the strongest first.
func candidates(name string, d getsetlock.Dialect, fence bool) ([]candidate, error) {
	var list []candidate
	for _, v := range variants {
		family, _, _ := strings.Cut(v.name, ":")
		if name != v.name && (v.alone || name != family) {
			continue
		}
		for _, lock := range v.make(d, fence) {
			list = append(list, candidate{name: v.name, Algorithm: lock})
		}
	}
	if len(list) == 0 {
		return nil, &failure{statusUsage, fmt.Errorf("there is no algorithm %q", name), "it is one of " + strings.Join(names(), ", ")}
	}
	return list, nil
}

// warn says of a lock that is kept for comparison what breaks it.
func (a *app) warn() {
	for _, v := range variants {
		if why := v.unsafe + v.risk; v.name == a.algorithm && why != "" {
			a.say("%s is there to be compared with: %s", v.name, why)
		}
	}
}

// pick returns the strongest lock that --algorithm allows and that is safe on
// this server for key, by the locks' own checks. The error is the weakest
// one's refusal: it says what even that one lacks.
func (a *app) pick(ctx context.Context, n node, key string, fence bool) (candidate, error) {
	d, err := a.dialectValue()
	if err != nil {
		return candidate{}, err
	}
	list, err := a.fleet(fence)
	if err != nil {
		return candidate{}, err
	}
	if len(list) == 0 && (a.algorithm == "auto" || a.algorithm == "redlock") {
		c, err := a.pickAuto(ctx, n, fence)
		if err == nil {
			a.log().Debug("algorithm chosen", "algorithm", c.name)
		}
		return c, err
	}
	if len(list) == 0 {
		if list, err = candidates(a.algorithm, d, fence); err != nil {
			return candidate{}, err
		}
	}
	for _, c := range list {
		err = a.check(ctx, n, c, key)
		if err == nil {
			a.log().Debug("algorithm chosen", "algorithm", c.name)
			return c, nil
		}
		if !errors.Is(err, compat.ErrUnsafeServer) {
			return candidate{}, err
		}
	}
	return candidate{}, err
}

// check asks a lock whether it is safe here. A proxy answers what it does not
// know by closing the connection; a server that is gone does not take the next
// one either.
func (a *app) check(ctx context.Context, n node, c candidate, key string) error {
	checker, ok := c.Algorithm.(compat.Checker)
	if !ok {
		return nil
	}
	conn, err := n.connection(ctx, key)
	if err != nil {
		return a.unreachable(ctx, n, err)
	}
	err = checker.Check(conn, key)
	broken := conn.Err() != nil
	conn.Close()
	if err == nil || !broken {
		return err
	}
	if noRedis(err) || silent(err) {
		return a.unreachable(ctx, n, err)
	}
	again, dialErr := n.connection(ctx, key)
	if dialErr != nil {
		return a.unreachable(ctx, n, dialErr)
	}
	again.Close()
	return &compat.UnsafeServerError{
		Why: "it closes the connection on a command that " + c.name + " needs, as a proxy does",
		Use: "getsetlock.Classic",
	}
}

// pickAuto probes the server and takes what auto chooses for it.
func (a *app) pickAuto(ctx context.Context, n node, fence bool) (candidate, error) {
	r, err := server.Probe(ctx, n.source, server.Options{Prefix: a.prefix, Timeout: a.timeout})
	if err != nil {
		return candidate{}, a.probing(ctx, n, err)
	}
	choice, err := a.chooseFor(r, fence)
	if err != nil {
		return candidate{}, err
	}
	for _, risk := range choice.Risks {
		a.log().Debug("risk", "algorithm", choice.Name, "text", risk)
	}
	return candidate{choice.Name, choice.Algorithm}, nil
}

// chooseFor is auto's choice: with a fence if the server can give one, and a
// timestamp lock if a dialect was named, since keys are shared with its fleet then.
func (a *app) chooseFor(r server.Report, fence bool) (auto.Choice, error) {
	o := auto.Options{Fence: fence && r.Multi}
	if a.dialect != "" {
		d, err := a.dialectValue()
		if err != nil {
			return auto.Choice{}, err
		}
		o.Dialect = d
	}
	return auto.Choose(r, o)
}

// probing is the failure of a probe.
func (a *app) probing(ctx context.Context, n node, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, server.ErrAuth):
		return &failure{statusUnavailable, err, passwordHint}
	case errors.Is(err, compat.ErrUnsafeServer):
		return err
	}
	return a.unreachable(ctx, n, err)
}
