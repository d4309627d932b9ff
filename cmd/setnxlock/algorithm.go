package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/auto"
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

// variants are the values of --algorithm that name one lock.
func variants() []string {
	return []string{"getset:classic", "getset:guarded", "tx:classic", "tx:guarded", "tx:renamed",
		"set:lua", "set:watch", "set:script", "set:published"}
}

// candidates are the locks that --algorithm may mean, the strongest first: of a
// family its safer variants, of a variant its finer counting and its fence. Not
// every server can do what the first one needs.
func candidates(name string, d getsetlock.Dialect, fence bool) ([]candidate, error) {
	var list []candidate
	tx := func(name string, lock func(txlock.Options) compat.Algorithm) {
		for _, millis := range []bool{true, false} {
			list = append(list, candidate{name: name, Algorithm: lock(txlock.Options{Millis: millis, Fence: fence})})
		}
	}
	getset := func(name string, lock func(getsetlock.Options) compat.Algorithm) {
		if fence {
			list = append(list, candidate{name: name, Algorithm: lock(getsetlock.Options{Dialect: d, Fence: true})})
		}
		list = append(list, candidate{name: name, Algorithm: lock(getsetlock.Options{Dialect: d})})
	}
	matches := func(variant string) bool {
		family, _, _ := strings.Cut(variant, ":")
		return name == variant || name == family
	}
	set := func(name string, lock compat.Algorithm) { list = append(list, candidate{name: name, Algorithm: lock}) }
	setOptions := setlock.Options{Fence: fence}
	if matches("set:lua") {
		set("set:lua", setlock.Lua{Options: setOptions})
	}
	if matches("set:watch") {
		set("set:watch", setlock.Watched{Options: setOptions})
	}
	if matches("set:script") {
		set("set:script", setlock.Script{Options: setOptions})
	}
	if name == "set:published" { // not safe anywhere: by its own name only
		set("set:published", setlock.Published{Options: setOptions})
	}
	if matches("tx:renamed") {
		tx("tx:renamed", func(o txlock.Options) compat.Algorithm { return txlock.Renamed{Options: o} })
	}
	if matches("tx:guarded") {
		tx("tx:guarded", func(o txlock.Options) compat.Algorithm { return txlock.Guarded{Options: o} })
	}
	if name == "tx:classic" { // wherever it is safe tx:guarded is too, and safer
		tx("tx:classic", func(o txlock.Options) compat.Algorithm { return txlock.Classic{Options: o} })
	}
	if matches("getset:guarded") {
		getset("getset:guarded", func(o getsetlock.Options) compat.Algorithm { return getsetlock.Guarded{Options: o} })
	}
	if matches("getset:classic") {
		getset("getset:classic", func(o getsetlock.Options) compat.Algorithm { return getsetlock.Classic{Options: o} })
	}
	if len(list) == 0 {
		return nil, noAlgorithm(name)
	}
	return list, nil
}

func noAlgorithm(name string) error {
	return &failure{statusUsage, fmt.Errorf("there is no algorithm %q", name),
		"it is auto, set, tx, getset, redlock, rw:read or rw:write, or one of " + strings.Join(variants(), ", ")}
}

// pick returns the strongest lock that --algorithm allows and that is safe on
// this server for key, by the locks' own checks. The error is the weakest
// one's refusal: it says what even that one lacks.
func (a *app) pick(ctx context.Context, n node, key string, fence bool) (candidate, error) {
	d, err := a.dialectValue()
	if err != nil {
		return candidate{}, err
	}
	if a.algorithm == "auto" || a.algorithm == "redlock" {
		c, err := a.pickAuto(ctx, n, fence)
		if err == nil {
			a.log().Debug("algorithm chosen", "algorithm", c.name)
		}
		return c, err
	}
	list, err := candidates(a.algorithm, d, fence)
	if err != nil {
		return candidate{}, err
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
