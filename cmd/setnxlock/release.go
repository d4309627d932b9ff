package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const releaseHelp = `Removes the lock KEY only if it holds the given token: no other client's lock is removed
by mistake.

--token takes a token ($SETNXLOCK_TOKEN of setnxlock run) or a handle
($SETNXLOCK_HANDLE). A handle names the key, too: KEY may be left out.

--force removes the lock of a dead holder. It shows the value on KEY, asks, and removes
it, unless another client has taken the lock in the meantime. A holder that lives
notices at its next renewal, and goes on until then. With --yes it does not ask, and
refuses plain text (64): a page, a profile or a counter can look like a lock.
--not-a-lock removes that, too.

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
	var f releaseFlags
	cmd := &cobra.Command{
		Use:         "release [KEY...] {--token TOKEN | --force}",
		Short:       "Remove a lock, by its token or by force",
		Long:        releaseHelp,
		Example:     releaseExamples,
		Annotations: map[string]string{"status": releaseStatus},
		Args:        cobra.ArbitraryArgs,

		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			force, token := f.force, f.token
			switch {
			case force == cmd.Flags().Changed("token"):
				return exit.Usage(cmd, errors.New("release needs either --token or --force"))
			case strings.HasPrefix(token, "snx1."): // a handle, or what is left of one
				return a.releaseByHandle(cmd, args, f)
			case len(args) == 0:
				return exit.Usage(cmd, errors.New("release needs a KEY"))
			case force:
				return a.releaseByForce(args, f)
			case token == "":
				return exit.Usage(cmd, errors.New("--token must not be empty"))
			}
			key, err := a.keyOf(args)
			if err != nil {
				return err
			}
			return a.releaseByToken(key, f)
		},
	}
	cmd.Flags().StringVar(&f.token, "token", "", "remove the lock with this `TOKEN`, or handle")
	cmd.Flags().BoolVar(&f.force, "force", false, "remove whatever lock is on KEY, after showing it")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&f.notALock, "not-a-lock", false, "with --yes, remove plain text, too")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

type releaseFlags struct {
	token                        string
	force, yes, notALock, asJSON bool
}

// A jsonRelease lists the locks on the keys of release --force, and the removed keys.
type jsonRelease struct {
	Removed []string  `json:"removed"`
	Locks   []jsonKey `json:"locks"`
}

// releaseByHandle releases the lock of a handle. Keys need not be given; given ones must be the handle's.
func (a *app) releaseByHandle(cmd *cobra.Command, keys []string, f releaseFlags) error {
	h, err := handle(f.token)
	if err != nil {
		return err
	}
	if len(keys) > 0 {
		if key, err := a.keyOf(keys); err != nil || key != h.Key {
			return exit.Usage(cmd, cmp.Or(err, fmt.Errorf("the handle belongs to %q, not to %q", h.Key, key)))
		}
	}
	f.token = h.Token
	return a.releaseByToken(h.Key, f)
}

// releaseByToken releases the holder of the token on a key with its prefix.
func (a *app) releaseByToken(key string, f releaseFlags) error {
	token := f.token
	ctx := context.Background()
	v, err := a.viewOf(ctx, key)
	if err != nil {
		return err
	}
	defer v.at.Close()
	if err := a.mayRelease(ctx, v); err != nil {
		return err
	}
	lock := verdict.Plain
	if strings.HasPrefix(token, "r:") || strings.HasPrefix(token, "w:") {
		lock = verdict.RW // of whatever algorithm: only that lock has such tokens
	} else if ofSlot(token) {
		lock = verdict.Slots
	}
	err = a.byToken(ctx, v, token, func(token string) error { return a.remove(ctx, v, key, lock, token) })
	if err == nil && f.asJSON {
		return a.printJSON(jsonRelease{Removed: split(key), Locks: []jsonKey{}})
	}
	return err
}

// releaseByForce removes the locks that it has shown, and nothing else.
func (a *app) releaseByForce(keys []string, f releaseFlags) error {
	ctx := context.Background()
	v, err := a.view(ctx, keys)
	if err != nil {
		return err
	}
	defer v.at.Close()
	if err := a.mayRelease(ctx, v); err != nil {
		return err
	}
	all, err := v.looks(ctx)
	if err != nil {
		return err
	}
	answer := jsonRelease{Removed: []string{}}
	for _, one := range all {
		answer.Locks = append(answer.Locks, keyJSON(one, time.Now()))
	}
	if !f.asJSON || !f.yes { // who is asked sees it
		out := a.out
		if f.asJSON {
			out = a.errs
		}
		if _, err := io.WriteString(screen.Page{W: out}, statesPage(all)); err != nil {
			return err
		}
	}
	if i := slices.IndexFunc(all, verdict.Verdict.IsUnseen); i >= 0 {
		return exit.Because(statusUnavailable, fmt.Errorf("%q: %s; nothing was removed", all[i].Key, all[i].Wrong[0]), "")
	}
	held := slices.DeleteFunc(all, func(one verdict.Verdict) bool { return one.Status == compat.StatusFree })
	if len(held) > 0 {
		if err := a.mayRemove(held, f); err != nil {
			return err
		}
	}
	for i, one := range held {
		if err = a.removeShown(ctx, v, one); err != nil {
			if i > 0 {
				a.say("%d of %d locks were removed before this", i, len(held))
			}
			break
		}
		answer.Removed = append(answer.Removed, split(one.Key)...)
		if !f.asJSON {
			for _, key := range split(one.Key) {
				a.print(printable(key) + ": removed\n") //nolint:errcheck // the lock is removed nevertheless
			}
		}
	}
	if f.asJSON && (err == nil || len(answer.Removed) > 0) {
		err = cmp.Or(err, a.printJSON(answer))
	}
	return err
}

// mayRelease refuses servers on which a release would be none. Those of a chosen lock were asked when it was chosen.
func (a *app) mayRelease(ctx context.Context, v *target) error {
	if v.locks != nil {
		return nil
	}
	return a.mayChange(ctx, v.at.one(), v.key)
}

// mayRemove asks, unless the flags have answered, and refuses locks of others and plain texts.
func (a *app) mayRemove(held []verdict.Verdict, f releaseFlags) error {
	text := false
	for _, one := range held {
		switch {
		case one.Cut:
			return exit.Because(
				statusForeign,
				fmt.Errorf("%q holds more than a lock does: nothing was removed", one.Key),
				"look at it with redis-cli",
			)
		case one.Lock == verdict.Theirs:
			return exit.Because(statusForeign, fmt.Errorf("%q holds a lock of %s, which setnxlock can't release: nothing was removed", one.Key, one.Clients[0]), releasedBy(one.Clients[0]))
		case one.Value == "" && a.algorithm == "redlock":
			return exit.Because(statusLost, fmt.Errorf("%q is held in parts, by several clients: nothing was removed", one.Key), "remove it on each server: --redis HOST:PORT, without --algorithm redlock")
		case !one.OnlyText(time.Now()), a.dialect != "" && a.written(one), f.notALock:
		case f.yes:
			return exit.Because(exit.Wrong, fmt.Errorf("%q holds a text that need not be a lock: nothing was removed", one.Key), "--not-a-lock removes it nevertheless; without --yes it is shown first, and you are asked")
		default:
			text = true
		}
	}
	if f.yes {
		return nil
	}
	question := "Remove it? "
	if len(held) > 1 {
		question = "Remove them? "
	}
	if text {
		question += "It may be no lock: any text looks like this. "
	}
	return a.confirm(question + holderWill(held))
}

// written reports whether the clients of --dialect write all values of a lock.
func (a *app) written(one verdict.Verdict) bool {
	of, err := a.whose(nil)
	if err != nil {
		return false
	}
	if len(one.Holders) == 0 {
		return of.reads(one.Value)
	}
	return !slices.ContainsFunc(one.Holders, func(h compat.Holder) bool { return !of.reads(h.Value) })
}

// releasedBy tells how clients of hashes and sorted sets release a lock.
func releasedBy(client string) string {
	return cmp.Or(map[string]string{
		dialect.Redisson:      "a client of Redisson's releases it with forceUnlock",
		dialect.SidekiqUnique: "Sidekiq's page of unique digests deletes it, or SidekiqUniqueJobs::Digests.new.delete_by_digest(DIGEST)",
		dialect.RubySemaphore: "Redis::Semaphore.new(NAME).delete! does it, when nobody holds it",
		dialect.BookSemaphore: "ZREM KEY HOLDER does it, on KEY:owner too if there is one; the next to come sweeps whose time is over",
	}[client], "its own client releases it; it ends by itself, as inspect says")
}

// holderWill tells how the holders of removed locks go on.
func holderWill(held []verdict.Verdict) string {
	who, ours := "Its holder", held[0].Sure == verdict.Certain && held[0].Owner != ""
	switch owner := held[0].Owner; {
	case len(held) > 1 || len(held[0].Holders) > 1:
		who, ours = "A holder", false
	case owner != "":
		who += ", " + ownerInWords(owner) + ","
	}
	if ours {
		return who + " is not told. It works on until its next renewal fails, and ends then; whoever takes the lock before works beside it."
	}
	return who + " is not told. It works on until it looks at the key again, if it ever does; whoever takes the lock before works beside it."
}

// removeShown removes a lock, if it is as it was shown.
func (a *app) removeShown(ctx context.Context, v *target, one verdict.Verdict) error {
	all := values(one)
	for i, value := range all {
		err := a.remove(ctx, v, one.Key, one.Lock, value)
		if err == nil {
			continue
		}
		what := "it"
		if i > 0 {
			what = "the rest"
			a.say("%d of %d holders were removed before this", i, len(all))
		}
		if errors.Is(err, compat.ErrLost) && failure(err) == nil { // which has words of its own
			err = exit.Because(statusLost, fmt.Errorf("%q has changed since it was shown: %s was not removed", one.Key, what), "")
		}
		return err
	}
	return nil
}

// values returns the values to be removed of a shown lock: each holder's, if it has several.
func values(v verdict.Verdict) []string {
	switch {
	case v.Status == compat.StatusFree:
		return nil
	case v.Lock != verdict.RW && v.Lock != verdict.Slots:
		return []string{v.Value}
	}
	var all []string
	for _, h := range v.Holders {
		all = append(all, h.Value)
	}
	return all
}

// confirm asks on a terminal, and refuses without one.
func (a *app) confirm(question string) error {
	if !term.IsTerminal(int(a.in.Fd())) {
		return exit.Misuse("there is no terminal to ask on: nothing was changed", "--yes does it without asking")
	}
	fmt.Fprintf(a.errs, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	if a := strings.ToLower(strings.TrimSpace(answer)); a == "y" || a == "yes" {
		return nil
	}
	return exit.Because(1, errors.New("nothing was changed"), "")
}

// remove removes a value from a key: a lock on one key whatever its format, any other by its own algorithm,
// or that of --algorithm.
func (a *app) remove(ctx context.Context, v *target, key string, lock verdict.Lock, value string) error {
	n := v.at.one()
	switch {
	case lock == verdict.RW && strings.HasPrefix(value, "r:"):
		return a.removeBy(ctx, n, key, value, "rw:read")
	case lock == verdict.RW:
		return a.removeBy(ctx, n, key, value, "rw:write")
	case lock == verdict.Slots:
		return a.removeBy(ctx, n, key, value, "semaphore")
	case v.locks != nil && key == v.key: // a quorum, several keys at once
		return v.locks.ReleaseToken(ctx, key, value)
	case lock == verdict.Pair:
		return a.removeBy(ctx, n, strings.TrimPrefix(key, verdict.PairPrefix), value, "getset:two-keys")
	}
	return a.removeKey(ctx, n, key, value)
}

// removeBy releases a token by the first of the named locks that the server is fit for.
func (a *app) removeBy(ctx context.Context, n node, key, token string, names ...string) error {
	var list []candidate
	for _, name := range names {
		l, _ := locks.Get(name)
		for _, o := range l.Fallbacks(locks.Options{Millis: true, ServerClock: true}) {
			list = append(list, candidate{name: name, Algorithm: l.New(o)})
		}
	}
	c, err := a.firstFit(ctx, n, key, list)
	if err != nil {
		return err
	}
	return compat.NewOn(n.source, c.Algorithm, a.lockOptions()).ReleaseToken(ctx, key, token)
}

// removeKey deletes the key if it holds value: in one transaction on servers with WATCH or comparing list
// commands, whatever the format, by the server's own comparison or a script if the user may not do that, and
// otherwise as getsetlock.Classic does.
func (a *app) removeKey(ctx context.Context, n node, key, value string) error {
	if value == "" { // of clients that write nothing; no token is empty
		c, err := n.source.Get(ctx, key)
		if err != nil {
			return err
		}
		defer c.Close()
		conn := protocol.NewConn(c)
		_, err = conn.Run(protocol.Change{Key: key})
		if unfit(conn.Lacks(err, "", "")) {
			_, err = conn.Run(protocol.Change{If: protocol.Unguarded, Key: key})
		}
		return conn.Denied(key, err)
	}
	var err error
	for _, names := range [][]string{{"tx:guarded", "getset:guarded", "getset:listed"},
		{"set:ifeq"}, {"set:lua"}, {"set:watch"}} { // for a user who may do what that lock needs, and no more
		by := a.removeBy(ctx, n, key, value, names...)
		if err == nil || !unfit(by) && !errors.Is(by, protocol.ErrDenied) {
			err = by
		}
		if !errors.Is(err, protocol.ErrDenied) {
			break
		}
	}
	if !unfit(err) {
		return err
	}
	d := getsetlock.Dialects()[timed(value)]
	classic := getsetlock.Classic{Options: getsetlock.Options{Dialect: d}}
	err = compat.NewOn(n.source, classic, a.lockOptions()).ReleaseToken(ctx, key, value)
	if until, ok := d.Parse(value); ok && until.Before(time.Now()) && errors.Is(err, compat.ErrLost) {
		return exit.Because(statusLost, fmt.Errorf("the time on %q passed at %s: clients that write such times take it over, and nothing was removed", key, verdict.Moment(until)), "")
	}
	return err
}

// timed finds a dialect in which value is a time; "": none. The order matters: float reads integer seconds, too.
func timed(value string) (name string) {
	for _, name := range dialects() {
		if _, ok := getsetlock.Dialects()[name].Parse(value); ok {
			return name
		}
	}
	return ""
}
