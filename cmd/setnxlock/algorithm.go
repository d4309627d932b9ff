package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// A candidate is a possible lock for a server.
type candidate struct {
	name string // as --algorithm has it
	protocol.Algorithm
	several protocol.Algorithm // the same of several keys in one transaction; nil if there is none
	drops   eviction           // of the server that it was picked for
}

// names lists the values of --algorithm, families first.
func names() []string {
	list := append([]string{"auto"}, locks.Families()...)
	for _, l := range locks.All() {
		if l.Instead == "" {
			list = append(list, l.Name)
		}
	}
	return list
}

// candidates returns the possible locks of --algorithm, the strongest first.
func candidates(name string, d getsetlock.Dialect, fence bool, owner string) ([]candidate, error) {
	var list []candidate
	for _, l := range locks.Named(name) {
		switch {
		case l.Name == "bridge":
			for _, b := range bridges(d, fence) {
				list = append(list, candidate{name: l.Name, Algorithm: b})
			}
		case l.New != nil && l.Instead == "":
			for _, o := range l.Fallbacks(locks.Options{Fence: fence, Millis: true, ServerClock: true, Dialect: d, Owner: owner, Once: true}) {
				if o.Fence != fence {
					continue // whoever asks for a fence gets one, or no lock
				}
				c := candidate{name: l.Name, Algorithm: l.New(o)}
				if l.Several != nil {
					c.several = l.Several(o)
				}
				list = append(list, c)
			}
		}
	}
	if len(list) == 0 {
		hint := ""
		if l, ok := locks.Get(name); ok && l.Instead != "" {
			hint = l.Name + ": " + l.Instead
		} else {
			hint = "it is one of " + strings.Join(names(), ", ")
		}
		return nil, exit.Because(exit.Wrong, fmt.Errorf("there is no algorithm %q", name), hint)
	}
	return list, nil
}

// pick returns the strongest lock within --algorithm whose own check finds this server safe for key. The
// error is the weakest lock's refusal: what even that one lacks.
func (a *app) pick(ctx context.Context, n node, key string) (candidate, error) {
	d, err := a.dialectValue()
	if err != nil {
		return candidate{}, err
	}
	list, err := a.fleet()
	if err != nil {
		return candidate{}, err
	}
	if len(list) == 0 && (a.algorithm == "auto" || a.algorithm == "redlock") {
		c, err := a.pickAuto(ctx, n, key)
		if err == nil {
			a.log().Debug("algorithm chosen", "algorithm", c.name)
		}
		return c, err
	}
	if len(list) == 0 {
		if list, err = candidates(a.algorithm, d, a.fence, a.owner.text()); err != nil {
			return candidate{}, err
		}
	}
	c, err := a.firstFit(ctx, n, key, list)
	if err != nil {
		return candidate{}, err
	}
	a.log().Debug("algorithm chosen", "algorithm", c.name)
	return a.placed(ctx, n, c, key)
}

// placed returns a named lock whose own check has passed, unless no lock is safe on this server.
func (a *app) placed(ctx context.Context, n node, c candidate, key string) (candidate, error) {
	r, err := probe.Ask(ctx, n.source, probe.Options{Prefix: key, Timeout: a.timeout, Brief: true})
	if err == nil {
		err = r.Unsafe()
	}
	if unfit(err) {
		return candidate{}, err
	}
	a.introduce(ctx, n, r)
	c.drops = evictionOf(r)
	return c, nil
}

// mayChange refuses a server on which a change is none: a replica that lets clients write, or several behind one
// address. A node of a cluster has keys of its own.
func (a *app) mayChange(ctx context.Context, n node, key string) error {
	r, err := probe.Ask(ctx, n.source, probe.Options{Prefix: key, Timeout: a.timeout, Brief: true})
	if err == nil {
		r.Moved = ""
		return r.Unsafe()
	}
	return nil // the change will tell
}

// unfit reports an error after which the next lock is tried: the lock is not safe here, or the connection
// breaks on its commands.
func unfit(err error) bool {
	return errors.Is(err, protocol.ErrUnsafeServer) || errors.Is(err, protocol.ErrUnanswered)
}

// check asks a lock whether it is safe here for key.
func (a *app) check(ctx context.Context, n node, c candidate, key string) error {
	err := probe.Check(ctx, n.source, c.Algorithm, key, probe.Options{Timeout: a.timeout})
	var refused redis.Error
	if err == nil || unfit(err) || errors.As(err, &refused) {
		return err
	}
	return a.probing(ctx, n, err)
}

// firstFit returns the first of several locks that is safe on this server for key; the error is the last one's refusal.
func (a *app) firstFit(ctx context.Context, n node, key string, list []candidate) (c candidate, err error) {
	for _, c = range list {
		if err = a.check(ctx, n, c, key); err == nil || !unfit(err) {
			return c, err
		}
	}
	return c, err
}

// pickAuto takes auto's choice for the server. The server is asked unless an earlier run has its answers.
// Scratch keys begin with key, for users who may have no others.
func (a *app) pickAuto(ctx context.Context, n node, key string) (candidate, error) {
	o, err := a.autoOptions(n, key)
	if err != nil {
		return candidate{}, err
	}
	defer a.keep()
	r, choice, err := probe.Find(ctx, n.source, o)
	if err != nil {
		return candidate{}, a.asking(ctx, n, err)
	}
	for _, warning := range choice.Warnings {
		a.remind(n, "warning: "+locks.InCommandWords(warning))
	}
	for _, risk := range choice.Risks {
		a.log().Debug("risk", "algorithm", choice.Name, "text", risk)
	}
	a.introduce(ctx, n, r)
	c := choiceOf(choice)
	c.drops = evictionOf(r)
	if r.Remembered() {
		c.Algorithm = &rememberedLock{c.Algorithm, a, r}
		a.known.mu.Lock()
		a.known.believed = append(a.known.believed, r)
		a.known.mu.Unlock()
	}
	return c, nil
}

// autoOptions builds auto's options for keys that begin with prefix.
func (a *app) autoOptions(n node, prefix string) (probe.Options, error) {
	o := probe.Options{Fence: a.fence, Prefix: prefix, Timeout: a.timeout, Memory: &a.remembered().Memory, Where: n.name, Owner: a.owner.text(), Once: true}
	if a.dialect == "" {
		return o, nil
	}
	d, err := a.dialectValue()
	o.Dialect = d
	return o, err
}

// asking turns an error of auto's choice into a failure: the server's words, or why the server could not be
// asked.
func (a *app) asking(ctx context.Context, n node, err error) error {
	var refused redis.Error
	if unfit(err) || errors.Is(err, protocol.ErrDenied) || errors.As(err, &refused) && !errors.Is(err, probe.ErrAuth) {
		return err
	}
	return a.probing(ctx, n, err)
}

// evictionOf reads the eviction policy from a report.
func evictionOf(r probe.Report) eviction {
	switch {
	case r.Has(probe.WarnEvictionAll):
		return evictsAll
	case r.Has(probe.WarnEvictionVolatile):
		return evictsVolatile
	}
	return evictsNone
}

// choiceOf turns auto's choice into a candidate.
func choiceOf(c probe.Choice) candidate {
	return candidate{name: c.Name, Algorithm: c.Algorithm, several: c.Several}
}

// chooseFor asks auto for a choice. A named dialect gets a timestamp lock, since its fleet shares the keys.
func (a *app) chooseFor(ctx context.Context, n node, r probe.Report) (probe.Choice, error) {
	o, err := a.autoOptions(n, a.prefix)
	if err != nil {
		return probe.Choice{}, err
	}
	return probe.Choose(ctx, n.source, r, o)
}

// probing turns an error of a probe into a failure.
func (a *app) probing(ctx context.Context, n node, err error) error {
	var refused redis.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, protocol.ErrUnsafeServer), errors.Is(err, protocol.ErrDenied):
		return err
	case errors.Is(err, probe.ErrAuth):
		return exit.Because(statusUnavailable, err, passwordHint)
	case errors.As(err, &refused): // we are in
		return a.explain(refused)
	}
	return a.unreachable(ctx, n, err)
}
