package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
)

// A target is a lock and the keys that it locks.
type target struct {
	at    *deployment
	locks *compat.Locker                                   // without a prefix: key has it
	key   string                                           // for locks: one key, or several, joined
	says  string                                           // the keys for people
	asked []string                                         // the keys as they were given
	keys  []string                                         // and as they stand on the server, in that order
	owner string                                           // as the tokens of this run name it
	looks func(context.Context) ([]verdict.Verdict, error) // at each key that can be looked at by itself
	other func(context.Context) string                     // what other clients' --limit has to do with it
}

// target chooses the lock for keys, by the servers' abilities.
func (a *app) target(ctx context.Context, p *deployment, keys []string) (*target, error) {
	key, err := a.keyOf(keys)
	if err != nil {
		return nil, err
	}
	t, err := a.named(ctx, p, key)
	if err != nil {
		return nil, err
	}
	t.asked = keys
	if len(keys) == 1 { // perhaps several, joined
		return t, a.seesAll(ctx, p, t)
	}
	t.keys = nil
	for _, k := range keys {
		if k, _ := a.onServer(k); !slices.Contains(t.keys, k) {
			t.keys = append(t.keys, k)
		}
	}
	return t, a.seesAll(ctx, p, t)
}

// keyOf joins the given keys to one, with their prefixes.
func (a *app) keyOf(keys []string) (string, error) {
	var all []string
	for _, k := range keys {
		key, err := a.onServer(k)
		if err != nil {
			return "", err
		}
		all = append(all, key)
	}
	return joined(all), nil
}

// joined makes one key of several, as multilock does.
func joined(keys []string) string {
	if len(keys) == 1 {
		return keys[0]
	}
	return multilock.Join(keys...)
}

// split undoes joined.
func split(key string) []string {
	keys, err := multilock.Split(key)
	if err != nil {
		return []string{key}
	}
	return keys
}

// named builds the target of a key, or of several that were joined, with their prefixes, as in a handle.
func (a *app) named(ctx context.Context, p *deployment, key string) (*target, error) {
	keys := split(key)
	t := &target{at: p, key: key, says: named(key), asked: keys, keys: keys}
	b, err := a.lock(ctx, p, keys)
	if err != nil {
		return nil, err
	}
	t.locks = compat.NewLocker(b, a.lockOptions())
	t.other = func(ctx context.Context) string { return a.otherLimit(ctx, p.one(), key) }
	t.looks = func(ctx context.Context) ([]verdict.Verdict, error) {
		if a.readable(keys) || a.oneByOne(keys) {
			return a.lookAll(ctx, p.one(), keys)
		}
		s, err := t.locks.Inspect(ctx, key)
		v := verdict.FromState(s)
		if strings.HasPrefix(a.algorithm, "rw:") {
			v.Lock = verdict.RW
		}
		return []verdict.Verdict{v}, err
	}
	return t, nil
}

// readable reports one key on one server, which can be read without knowing its format.
func (a *app) readable(keys []string) bool {
	return len(keys) == 1 && a.algorithm != "redlock" && !strings.HasPrefix(a.algorithm, "rw:")
}

// oneByOne reports several keys that can be looked at one by one, not those of a quorum.
func (a *app) oneByOne(keys []string) bool { return len(keys) > 1 && a.algorithm != "redlock" }

// lock builds the lock of --algorithm, on all servers of the deployment.
func (a *app) lock(ctx context.Context, p *deployment, keys []string) (compat.Backend, error) {
	if a.algorithm != "redlock" {
		return a.lockOn(ctx, p.one(), p.cluster, keys)
	}
	servers := make([]compat.Backend, len(p.nodes))
	names := make([]string, len(p.nodes))
	errs := make([]error, len(p.nodes))
	var wg sync.WaitGroup
	for i, n := range p.nodes {
		names[i] = n.name
		each := &lazyBackend{choose: func(ctx context.Context) (compat.Backend, error) { return a.lockOn(ctx, n, false, keys) }}
		servers[i] = each
		wg.Go(func() { _, errs[i] = each.chosen(ctx) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for _, err := range errs {
		if errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrInvalid) {
			return nil, err
		}
	}
	return redlock.New(servers, redlock.Options{Names: names, Timeout: a.limit()}), nil
}

// hurries reports a quorum without --timeout: a server that hangs must cost little.
func (a *app) hurries() bool { return a.algorithm == "redlock" && !a.flags.Changed("timeout") }

// limit returns the time limit of a step.
func (a *app) limit() time.Duration {
	if a.hurries() {
		return redlock.DefaultTimeout
	}
	return a.timeout
}

// lockOn builds the lock on one server or cluster.
func (a *app) lockOn(ctx context.Context, n node, cluster bool, keys []string) (compat.Backend, error) {
	if strings.HasPrefix(a.algorithm, "rw:") && len(keys) > 1 {
		return nil, exit.Because(exit.Wrong, fmt.Errorf("%s takes one KEY", a.algorithm), "")
	}
	if err := a.limitWanted(keys); err != nil {
		return nil, err
	}
	c, err := a.pick(ctx, n, keys[0])
	if err == nil && a.holders > 0 {
		c.Algorithm, err = a.limited(ctx, n, keys[0], c)
	}
	if err != nil {
		return nil, err
	}
	a.warn(n, dangers(c.name, c.drops))
	if len(keys) == 1 {
		return compat.NewBackend(n.source, c.Algorithm), nil
	}
	if c.several != nil && !cluster {
		if err := a.check(ctx, n, candidate{name: c.name, Algorithm: c.several}, joined(keys)); err == nil {
			return compat.NewBackend(n.source, c.several), nil
		} else if !unfit(err) {
			return nil, err
		}
	}
	return multilock.New(n.source, c.Algorithm), nil
}

// A lazyBackend is the lock on a server of a quorum. If the server is away when the lock is to be chosen, the
// choice waits until it is back.
type lazyBackend struct {
	choose func(context.Context) (compat.Backend, error)
	mu     sync.Mutex
	b      compat.Backend
}

func (l *lazyBackend) chosen(ctx context.Context) (compat.Backend, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b != nil {
		return l.b, nil
	}
	b, err := l.choose(ctx)
	if err != nil {
		return nil, protocol.NotSent.Mark(err)
	}
	l.b = b
	return b, nil
}

// on calls do with the lock, or returns otherwise while there is none.
func on[T any](ctx context.Context, l *lazyBackend, otherwise T, do func(compat.Backend) (T, error)) (T, error) {
	b, err := l.chosen(ctx)
	if err != nil {
		return otherwise, err
	}
	return do(b)
}

func (l *lazyBackend) Acquire(ctx context.Context, now func() time.Time, key string, ttl time.Duration) (compat.Grant, error) {
	return on(ctx, l, compat.Grant{Lease: compat.Lease{Key: key}}, func(b compat.Backend) (compat.Grant, error) { return b.Acquire(ctx, now, key, ttl) })
}

func (l *lazyBackend) Extend(ctx context.Context, now func() time.Time, lease compat.Grant, ttl time.Duration) (compat.Grant, error) {
	return on(ctx, l, lease, func(b compat.Backend) (compat.Grant, error) { return b.Extend(ctx, now, lease, ttl) })
}

func (l *lazyBackend) Release(ctx context.Context, now func() time.Time, lease compat.Grant) error {
	_, err := on(ctx, l, lease, func(b compat.Backend) (compat.Grant, error) { return lease, b.Release(ctx, now, lease) })
	return err
}

func (l *lazyBackend) Inspect(ctx context.Context, now func() time.Time, key string) (compat.State, error) {
	return on(ctx, l, compat.State{Key: key}, func(b compat.Backend) (compat.State, error) { return b.Inspect(ctx, now, key) })
}

func (l *lazyBackend) Repair(ctx context.Context, now func() time.Time, s compat.State, ttl time.Duration) error {
	_, err := on(ctx, l, s, func(b compat.Backend) (compat.State, error) { return s, b.Repair(ctx, now, s, ttl) })
	return err
}

func (l *lazyBackend) Find(ctx context.Context, now func() time.Time, key, value string) (compat.Grant, error) {
	return on(ctx, l, compat.Grant{Lease: compat.Lease{Key: key}}, func(b compat.Backend) (compat.Grant, error) { return b.Find(ctx, now, key, value) })
}

// Abilities returns the chosen lock's, and none before the choice.
func (l *lazyBackend) Abilities() compat.Abilities {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b == nil {
		return compat.Abilities{}
	}
	return l.b.Abilities()
}

// busy ends a wait that is over. It looks once more at the key, for the user to learn how long it would have
// taken. It reports a key without a lock as such: no wait would end.
func (a *app) busy(ctx context.Context, t *target, f runFlags) error {
	text := t.says + " is held by another client"
	all, err := t.looks(ctx)
	refusal := t.refusal(all)
	switch {
	case errors.Is(err, compat.ErrForeign), err != nil && passes(err):
		return err
	case a.quiet || f.busyStatus == 0:
		return &exit.Failure{Status: f.busyStatus}
	case err == nil && refusal != "":
		text = refusal
	case err == nil && verdict.Together(t.key, all).Status == compat.StatusFree:
		text = t.says + " was held by other clients"
	}
	if err == nil && heldAround(all) != "" {
		text += "; that is a run around this one"
	}
	if text += t.other(ctx); f.wait > 0 {
		text += fmt.Sprintf("; not obtained within %v", time.Duration(f.wait))
	}
	return exit.Because(f.busyStatus, errors.New(text), "to see what holds it: "+a.line("inspect", t.asked...))
}
