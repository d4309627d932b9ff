package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// A candidate is a lock that may be right for a server.
type candidate struct {
	name string // as --algorithm has it
	compat.Algorithm
	why string // it was chosen
}

// variants are the values of --algorithm that name one lock.
func variants() []string {
	return []string{"getset:classic", "getset:guarded", "tx:classic", "tx:guarded", "tx:renamed"}
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
		return nil, &failure{statusUsage, fmt.Errorf("there is no algorithm %q", name),
			"it is auto, getset or tx, or one of " + strings.Join(variants(), ", ")}
	}
	return list, nil
}

// pick returns the strongest lock that --algorithm allows and that is safe on
// this server for key, by the locks' own checks. The error is the weakest
// one's refusal: it says what even that one lacks.
func (a *app) pick(ctx context.Context, pool *redis.Pool, key string, fence bool) (candidate, error) {
	d, err := a.dialectValue()
	if err != nil {
		return candidate{}, err
	}
	if a.algorithm == "auto" {
		return a.pickAuto(ctx, pool, d, fence)
	}
	list, err := candidates(a.algorithm, d, fence)
	if err != nil {
		return candidate{}, err
	}
	for _, c := range list {
		err = a.check(ctx, pool, c, a.prefix+key)
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
func (a *app) check(ctx context.Context, pool *redis.Pool, c candidate, key string) error {
	checker, ok := c.Algorithm.(compat.Checker)
	if !ok {
		return nil
	}
	conn, err := pool.GetContext(ctx)
	if err != nil {
		return a.unreachable(ctx, err)
	}
	err = checker.Check(conn, key)
	broken := conn.Err() != nil
	conn.Close()
	if err == nil || !broken {
		return err
	}
	if strings.Contains(err.Error(), "redigo: ") { // its word for what is not the protocol
		return &failure{statusUnavailable, fmt.Errorf("what answers at %s is no Redis: %w", serverName(a.redis), err),
			"give the server's address with --redis or in SETNXLOCK_REDIS"}
	}
	again, dialErr := pool.GetContext(ctx)
	if dialErr != nil {
		return a.unreachable(ctx, dialErr)
	}
	again.Close()
	return &compat.UnsafeServerError{
		Why: "it closes the connection on a command that " + c.name + " needs, as a proxy does",
		Use: "getsetlock.Classic",
	}
}

// pickAuto chooses among all locks.
func (a *app) pickAuto(ctx context.Context, pool *redis.Pool, d getsetlock.Dialect, fence bool) (candidate, error) {
	b := *a
	for _, family := range []string{"tx", "getset"} {
		b.algorithm = family
		c, err := b.pick(ctx, pool, "auto", fence)
		if err == nil || !errors.Is(err, compat.ErrUnsafeServer) || family == "getset" {
			return c, err
		}
	}
	panic("unreachable")
}
