package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const releaseHelp = `Removes the lock KEY if, and only if, it holds the given token, so that no other
client's lock is removed by mistake.

--token is for a program that knows its token ($SETNXLOCK_TOKEN of setnxlock run)
or its handle ($SETNXLOCK_HANDLE, which names the key too: KEY may be left out).

--force is for a lock whose holder is known to be dead. It shows what is on KEY,
asks, and removes it, unless another client has taken the lock in the meantime. The holder learns of it only when it next renews, and goes on until then.

On servers without WATCH (before 2.2, and proxies) the comparison and the removal
are two steps: a lock that changes hands in between is removed nevertheless.`

const releaseStatus = `  0      The lock was removed; with --force, also if there was none.
  1      --force was answered with no.
` + statusHelp + `
  76     KEY does not hold this token (any more). Nothing was removed.`

const releaseExamples = `  setnxlock release nightly-report --token "$SETNXLOCK_TOKEN"
  setnxlock release --token "$SETNXLOCK_HANDLE"
  setnxlock release nightly-report --force
  setnxlock release nightly-report --force --yes   # from a script`

func (a *app) releaseCommand() *cobra.Command {
	var token string
	var force, yes bool
	cmd := &cobra.Command{
		Use:               "release [KEY...] {--token TOKEN | --force}",
		Short:             "Remove a lock, by its token or by force",
		Long:              releaseHelp,
		Example:           releaseExamples,
		Annotations:       map[string]string{"status": releaseStatus},
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              usageErrors(cobra.ArbitraryArgs),

		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case force == cmd.Flags().Changed("token"):
				return usage(cmd, errors.New("release needs either --token or --force"))
			case strings.HasPrefix(token, "snx1."): // a handle, or what is left of one
				return a.releaseByHandle(cmd, args, token)
			case len(args) == 0:
				return usage(cmd, errors.New("release needs a KEY"))
			case force:
				return a.releaseByForce(args, yes)
			case token == "":
				return usage(cmd, errors.New("the token is empty"))
			}
			key, err := a.all(args)
			if err != nil {
				return err
			}
			return a.releaseByToken(key, token)
		},
	}
	cmd.Flags().StringVar(&token, "token", "", "remove KEY if it holds `TOKEN`, or release the lock that a handle names")
	cmd.Flags().BoolVar(&force, "force", false, "remove whatever lock is on KEY, after showing it")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}

// releaseByHandle releases the lock that a handle names. The keys need not be
// given; if they are, they must be its own.
func (a *app) releaseByHandle(cmd *cobra.Command, keys []string, s string) error {
	h, err := handle(s)
	if err != nil {
		return err
	}
	if len(keys) > 0 {
		if key, err := a.all(keys); err != nil || key != h.Key {
			return usage(cmd, cmp.Or(err, fmt.Errorf("the handle is of %q, not of %q", h.Key, key)))
		}
	}
	return a.releaseByToken(h.Key, h.Token)
}

// releaseByToken releases what holds the token on a key with its prefix.
func (a *app) releaseByToken(key, token string) error {
	ctx := context.Background()
	v, err := a.viewOf(ctx, key, nil)
	if err != nil {
		return err
	}
	defer v.Close()
	lock := verdict.Plain
	if strings.HasPrefix(token, "r:") || strings.HasPrefix(token, "w:") {
		lock = verdict.RW // of whatever algorithm: only that lock has such tokens
	}
	return a.remove(ctx, v, lock, token)
}

// releaseByForce removes what it has shown, and nothing else.
func (a *app) releaseByForce(keys []string, yes bool) error {
	ctx := context.Background()
	v, err := a.view(ctx, keys)
	if err != nil {
		return err
	}
	defer v.Close()
	s, err := v.look(ctx)
	if err != nil {
		return err
	}
	if err := a.printState(s); err != nil {
		return err
	}
	if s.Status == compat.StatusFree {
		return nil
	}
	if !yes {
		if err := a.confirm("Remove it? Its holder is not told."); err != nil {
			return err
		}
	}
	values := []string{s.Value}
	if s.Lock == verdict.Redisson {
		return &failure{statusForeign, fmt.Errorf("%q is Redisson's lock, which setnxlock does not release", s.Key), "a client of Redisson's releases it with forceUnlock"}
	}
	if s.Value == "" && v.locks != nil {
		return &failure{statusLost, fmt.Errorf("%q is held in parts, by several clients: nothing was removed", s.Key), "remove it on each server: --redis HOST:PORT, without --algorithm redlock"}
	}
	if s.Lock == verdict.RW || strings.HasPrefix(a.algorithm, "rw:") { // every reader
		values = nil
		for _, h := range s.Holders {
			values = append(values, h.Value)
		}
	}
	for _, value := range values {
		err = a.remove(ctx, v, s.Lock, value)
		if errors.Is(err, compat.ErrLost) {
			err = &failure{statusLost, fmt.Errorf("%q has changed since it was shown: nothing was removed", s.Key), ""}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// confirm asks, on a terminal; elsewhere nobody can answer.
func (a *app) confirm(question string) error {
	if !term.IsTerminal(int(a.in.Fd())) {
		return &failure{statusUsage, errors.New("there is no terminal to ask on: nothing was changed"), "--yes does it without asking"}
	}
	fmt.Fprintf(a.errs, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a == "y" || a == "yes" {
		return nil
	}
	return &failure{1, errors.New("nothing was changed"), ""}
}

// remove removes what holds value: a lock on one key whatever its format, any
// other as the lock that it is, or that --algorithm names.
func (a *app) remove(ctx context.Context, v *view, lock verdict.Lock, value string) error {
	n := node{}
	if v.locks == nil {
		n = v.one()
	}
	switch {
	case v.locks != nil:
		return v.locks.ReleaseToken(ctx, v.key, value)
	case lock == verdict.Pair:
		name := strings.TrimPrefix(v.key, verdict.PairPrefix)
		return compat.NewOn(n.source, getsetlock.TwoKeys{}, a.lockOptions()).ReleaseToken(ctx, name, value)
	case lock == verdict.RW:
		side := "rw:write"
		if strings.HasPrefix(value, "r:") {
			side = "rw:read"
		}
		l, _ := locks.Get(side)
		var err error
		for _, o := range l.Fallbacks(locks.Options{Millis: true, ServerClock: true}) {
			c := candidate{name: side, Algorithm: l.New(o)}
			if err = a.check(ctx, n, c, v.key); err == nil {
				return compat.NewOn(n.source, c.Algorithm, a.lockOptions()).ReleaseToken(ctx, v.key, value)
			}
		}
		return err
	}
	return a.removeKey(ctx, n, v.key, value)
}

// removeKey deletes the key if it holds value: in one transaction where there is
// WATCH or where list commands compare, whatever the format, and otherwise as
// getsetlock.Classic does.
func (a *app) removeKey(ctx context.Context, n node, key, value string) error {
	for _, name := range []string{"tx:guarded", "getset:guarded", "getset:listed"} {
		l, _ := locks.Get(name)
		c := candidate{name: name, Algorithm: l.New(locks.Options{})}
		err := a.check(ctx, n, c, key)
		if err == nil {
			return compat.NewOn(n.source, c.Algorithm, a.lockOptions()).ReleaseToken(ctx, key, value)
		}
		if !unfit(err) {
			return err
		}
	}
	d, isTime := timed(value)
	classic := getsetlock.Classic{Options: getsetlock.Options{Dialect: d}}
	err := compat.NewOn(n.source, classic, a.lockOptions()).ReleaseToken(ctx, key, value)
	if until, _ := d.Parse(value); isTime && until.Before(time.Now()) && errors.Is(err, compat.ErrLost) {
		return &failure{statusLost, fmt.Errorf("the time on %q passed at %s: clients that write such times take it over, and nothing was removed", key, verdict.Moment(until)), ""}
	}
	return err
}

// timed is a dialect in which value is a time. The order matters: what float
// reads without a fraction is integer seconds.
func timed(value string) (getsetlock.Dialect, bool) {
	for _, name := range dialects() {
		d := getsetlock.Dialects()[name]
		if _, ok := d.Parse(value); ok {
			return d, true
		}
	}
	return getsetlock.Dialect{}, false
}
