package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/duration"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const repairHelp = `Removes or ends locks that their clients left behind: locks of one dialect, on the keys
that you name. It shows its plan first, and asks.

  a time that has passed, on a key without a TTL        is removed
  two keys, both past their time                        are removed together
  a token without a TTL, in a dialect that always       is given one, of --lease
  sets one

repair looks at each key twice, a --lease apart, and prints a plan: each key, its value,
for how long it was seen, the clients that write so, and how sure that is. Then it asks.
Without a terminal it changes nothing unless --yes is given. It compares each key once
more in the transaction that changes it (WATCH): a key that changed stays as it is.
--lease must be the longest lease of any client.

--dialect names the clients of the locks (setnxlock survey finds them); on a terminal
repair asks for it. "setnxlock" stands for this command's own tokens.

repair leaves these alone, and says why:
  a key whose TTL runs                    it is held, whatever its value says
  a value of another form
  a token of a client that need not set   redis-py does not, unless it has a
  a TTL                                   timeout: such a lock may be held
  a flag ("1", "true") or a free text
  a key of --match whose name does not    ordinary data look the same: give the
  tell that it is a lock                  key itself, if you know that it is one

It needs WATCH: Redis 2.2.`

const repairStatus = `  0      What the plan says was done, or there was nothing to do; or --dry-run.
  1      The answer was no. Nothing was changed.
` + statusHelp + `
  128+N  Signal N ended it before it changed anything.`

const repairExamples = `  setnxlock repair --dialect resque-lock --match 'resque:lock:*' --dry-run
  setnxlock repair --dialect redis-py-2.9 --lease 5m nightly-report
  setnxlock repair --dialect redis-in-action --lease 5m --yes lock:report`

func (a *app) repairCommand() *cobra.Command {
	var f repairFlags
	cmd := &cobra.Command{
		Use:         "repair {KEY... | --match PATTERN} --dialect NAME",
		Short:       "End locks that their clients left behind",
		Long:        repairHelp,
		Example:     repairExamples,
		Annotations: map[string]string{"status": repairStatus},
		Args:        cobra.ArbitraryArgs,

		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, keys []string) error {
			switch {
			case len(keys) == 0 && f.match == "":
				return exit.Usage(cmd, errors.New("repair needs keys, or --match"))
			case len(keys) > 0 && f.match != "":
				return exit.Usage(cmd, errors.New("repair takes keys or --match, not both"))
			case f.lease < time.Second:
				return exit.Usage(cmd, fmt.Errorf("--lease must be a second or more, got %v", f.lease))
			case a.algorithm != "auto":
				return exit.Usage(cmd, errors.New("repair goes by --dialect, not by --algorithm"))
			}
			return a.repair(keys, f)
		},
	}
	cmd.Flags().StringVar(&f.match, "match", "", "look at keys that match `PATTERN`, behind --prefix")
	duration.Var(cmd.Flags(), &f.lease, "lease", time.Minute, "the longest lease of any client; watch that long")
	cmd.Flags().BoolVarP(&f.dryRun, "dry-run", "n", false, "watch, print the plan, and change nothing")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "don't ask")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON; without --yes nothing is changed")
	return cmd
}

type repairFlags struct {
	match               string
	lease               time.Duration
	dryRun, yes, asJSON bool
}

// What a remedy does about a key, and what becomes of it.
const (
	doRemove = "remove"
	doExpire = "expire"
	doLeave  = "leave"

	outcomePlanned = "planned"
	outcomeRemoved = "removed"
	outcomeExpires = "expires"
	outcomeChanged = "changed"
	outcomeLeft    = "left"
)

// A remedy is the plan for one key, and its outcome.
type remedy struct {
	Key      string   `json:"key"`
	Action   string   `json:"action"` // "remove", "expire" or "leave"
	Why      string   `json:"why"`    // what speaks for it, or why it is left
	Evidence evidence `json:"evidence"`
	Outcome  string   `json:"outcome"` // "planned", "removed", "expires", "changed" or "left"
	was      verdict.Verdict
}

// An evidence is the sight of a key that speaks for its remedy.
type evidence struct {
	First      time.Time `json:"first_seen"`
	Last       time.Time `json:"last_seen"`
	Status     string    `json:"status"`
	Value      string    `json:"value"`
	ValueBytes string    `json:"value_base64,omitempty"`
	Format     string    `json:"format"`
	LooksLike  []string  `json:"looks_like"`
	Confidence string    `json:"confidence,omitempty"`
	Reasons    []string  `json:"reasons"`
}

// A repairPlan is the plan for all keys, as machines get it.
type repairPlan struct {
	Server  string   `json:"server"`
	Dialect string   `json:"dialect"`
	Keys    int      `json:"keys"` // looked at
	Applied bool     `json:"applied"`
	Plan    []remedy `json:"plan"`
}

// repair plans, asks and does.
func (a *app) repair(keys []string, f repairFlags) error {
	ctx := context.Background()
	if err := a.oneServer(); err != nil {
		return err
	}
	p, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	if !f.dryRun {
		if err := a.mayChange(ctx, p.one(), a.prefix); err != nil {
			return err
		}
	}
	on := func(do func(redis.Conn) error) error { // anew each time: a server closes what is idle for a lease
		c, err := p.one().source.Get(ctx, "")
		if err != nil {
			return a.unreachable(ctx, p.one(), err)
		}
		defer c.Close()
		return do(c)
	}
	plan := repairPlan{Server: p.one().name}
	if err := a.plan(on, keys, f, &plan); err != nil {
		return err
	}
	plan.Applied = !f.dryRun && slices.ContainsFunc(plan.Plan, acts) && (f.yes || !f.asJSON)
	if !f.asJSON {
		err = a.print(plan.page(f))
	}
	if err == nil && plan.Applied && !f.yes {
		err = a.confirm("Do this?")
	}
	if err == nil && plan.Applied {
		_, stop := caught() // what has begun is finished, and told
		defer stop()
		err = on(func(c redis.Conn) error { return a.apply(c, plan.Plan, f) })
	}
	if f.asJSON && (err == nil || slices.ContainsFunc(plan.Plan, done)) {
		err = cmp.Or(err, a.printJSON(plan))
	}
	return err
}

// plan fills in the plan, after a second look.
func (a *app) plan(on func(func(redis.Conn) error) error, keys []string, f repairFlags, plan *repairPlan) error {
	var seen []verdict.Verdict
	err := on(func(c redis.Conn) (err error) {
		seen, plan.Keys, err = a.suspects(c, keys, f)
		return err
	})
	if err != nil {
		return err
	}
	of, err := a.whose(seen)
	if err != nil {
		return err
	}
	plan.Dialect, plan.Plan = of.name, make([]remedy, 0, len(seen))
	for _, v := range seen {
		plan.Plan = append(plan.Plan, of.remedy(v, len(keys) > 0))
	}
	if !slices.ContainsFunc(plan.Plan, acts) {
		return nil
	}
	if err := a.watchFor(plan.Plan, f.lease); err != nil {
		return err
	}
	return on(func(c redis.Conn) error { return lookAgain(c, plan.Plan) })
}

// suspects judges the named keys, or the matching ones with more than ordinary data.
func (a *app) suspects(c redis.Conn, keys []string, f repairFlags) (seen []verdict.Verdict, looked int, err error) {
	server := verdict.Server{}
	look := func(keys []string) error {
		all, err := server.Read(protocol.NewConn(c), time.Now(), keys...)
		for _, content := range all {
			looked++
			v := verdict.Lens{}.Judge(content, time.Now())
			if f.match == "" || v.IsLock(false) && v.Status != protocol.StatusHeld {
				seen = append(seen, v)
			}
		}
		return err
	}
	if f.match != "" {
		err = a.eachKeys(c, f.match, f.yes, &server, look)
	} else {
		var all []string
		for _, k := range keys {
			key, err := a.onServer(k)
			if err != nil {
				return nil, 0, err
			}
			if _, _, pair := dialect.PairOf(key); strings.EqualFold(a.dialect, "mlanett-redis-lock") && !pair {
				key, _ = dialect.Pair(key) // as its clients call it
			}
			all = append(all, key)
		}
		err = look(all)
	}
	slices.SortStableFunc(seen, func(x, y verdict.Verdict) int { return strings.Compare(x.Key, y.Key) })
	seen = slices.CompactFunc(seen, func(x, y verdict.Verdict) bool { return x.Key == y.Key })
	return seen, looked, err
}

// A repairing names the clients of the locks to be repaired.
type repairing struct {
	name   string
	format dialect.Format // of a client
	time   verdict.Lens   // how its times are read
	own    bool           // our tokens
}

// whose reads --dialect; on a terminal it asks for a missing one.
func (a *app) whose(seen []verdict.Verdict) (repairing, error) {
	names := map[string]bool{}
	for _, v := range seen {
		for _, name := range v.Clients {
			names[strings.Fields(name)[0]] = true
		}
	}
	near := slices.Sorted(maps.Keys(names))
	if a.dialect == "" {
		hint := "--dialect NAME: setnxlock survey shows whose locks they look like"
		if len(near) > 0 {
			hint = "--dialect NAME; these keys look like locks of " + firstThree(near)
		}
		if !term.IsTerminal(int(a.in.Fd())) {
			return repairing{}, exit.Misuse("repair needs --dialect, the client whose locks these are", hint)
		}
		if len(near) > 0 {
			fmt.Fprintf(a.errs, "These keys look like locks of %s.\n", strings.Join(near, ", "))
		}
		fmt.Fprint(a.errs, "Whose are they (--dialect)? ")
		answer, _ := bufio.NewReader(a.in).ReadString('\n')
		if a.dialect = strings.TrimSpace(answer); a.dialect == "" {
			return repairing{}, exit.Because(1, errors.New("nothing was changed"), "")
		}
	}
	of := repairing{name: a.dialect}
	if a.dialect == "setnxlock" {
		of.own = true
		return of, nil
	}
	d, err := a.dialectValue()
	if err != nil {
		return of, err
	}
	if f, err := dialect.Lookup(a.dialect); err == nil {
		of.name, of.format = f.Name, f
	}
	if of.format.Name == "" || of.format.Kind.Timed() {
		of.time = verdict.Lens{Time: &d}
	}
	return of, nil
}

// reads reports whether the clients write such a value.
func (of repairing) reads(value string) (yes bool) {
	switch {
	case of.own:
		_, yes = dialect.OwnerOf(value)
	case of.time.Time != nil:
		_, yes = of.time.Time.Parse(value)
	default:
		_, yes = of.format.Token.Read(value)
	}
	return yes
}

// remedy plans for one key. given: the operator named the key, and did not only match it.
func (of repairing) remedy(v verdict.Verdict, given bool) remedy {
	r := remedy{Key: v.Key, Action: doLeave, Outcome: outcomeLeft, was: v}
	now := time.Now()
	r.Evidence = evidence{
		First: *moment(now), Last: *moment(now), Status: string(v.Status), Value: v.Value, ValueBytes: raw(v.Value), Format: v.Format,
		LooksLike: orEmpty(v.Clients), Confidence: string(v.Sure), Reasons: orEmpty(v.Why),
	}
	r.Action, r.Why = of.judge(v, given)
	if r.Action != doLeave {
		r.Outcome = outcomePlanned
	}
	return r
}

func (of repairing) judge(v verdict.Verdict, given bool) (action, why string) {
	pair := of.format.Kind == dialect.TwoKeys
	switch {
	case v.Status == protocol.StatusFree:
		return doLeave, "there is no such key"
	case v.Lock == verdict.Theirs, v.Lock == verdict.NoLock, v.Lock == verdict.RW, v.Lock == verdict.Slots:
		return doLeave, "it is a " + v.Format + ", which repair does not touch"
	case v.TTL != protocol.NoTTL:
		return doLeave, fmt.Sprintf("its TTL of %v runs: it is held", v.TTL.Round(time.Millisecond))
	case pair && v.Lock != verdict.Pair, !pair && v.Lock == verdict.Pair:
		return doLeave, "it is no lock of " + of.name
	case !given && of.format.Name != "" && !of.format.Names(v.Key):
		return doLeave, fmt.Sprintf("the keys of %s are called %s; give the key itself if it is one", of.name, of.format.KeyName)
	case !given && v.Sure == verdict.Possible:
		return doLeave, "nothing but the value's form says that it is a lock; give the key itself if it is one"
	case pair && v.Status == protocol.StatusDead:
		return doRemove, "its time passed at " + verdict.Moment(v.Until) + "; both keys go"
	case pair:
		return doLeave, "its time has not passed"
	case of.time.Time != nil:
		return of.judgeTime(v)
	}
	return of.judgeToken(v)
}

func (of repairing) judgeTime(v verdict.Verdict) (action, why string) {
	until, ok := of.time.Time.Parse(v.Value)
	switch {
	case !ok:
		return doLeave, "its value is no time as " + of.name + " writes it"
	case !of.time.Time.Dead(v.Value, time.Now()):
		return doLeave, "its time, " + verdict.Moment(until) + ", has not passed"
	}
	return doRemove, "its time passed at " + verdict.Moment(until) + ", and it has no TTL"
}

func (of repairing) judgeToken(v verdict.Verdict) (action, why string) {
	_, ours := dialect.OwnerOf(v.Value)
	if of.own {
		if !ours {
			return doLeave, "its value is no token of setnxlock's that names its owner"
		}
		return doExpire, "every token of setnxlock's has a TTL, and this one has none"
	}
	_, reads := of.format.Token.Read(v.Value)
	switch {
	case of.format.Token == dialect.TokenFlag, of.format.Token == dialect.TokenText, of.format.Token == dialect.TokenMillis:
		return doLeave, "the values of " + of.name + " say nothing: any text, or the same for every holder"
	case !reads || ours:
		return doLeave, "its value is no token as " + of.name + " writes it"
	case !of.format.Bounded():
		return doLeave, of.name + " need not set a TTL: a lock without one may be held"
	}
	return doExpire, of.name + " sets a TTL on every lock, and this one has none"
}

// acts reports whether r changes anything.
func acts(r remedy) bool { return r.Action != doLeave }

// done reports whether r has changed something.
func done(r remedy) bool { return r.Outcome == outcomeRemoved || r.Outcome == outcomeExpires }

// caught returns a channel of the signals for the end, which no longer end us.
func caught() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c, func() { signal.Stop(c) }
}

// watchFor waits for a lease.
func (a *app) watchFor(plan []remedy, lease time.Duration) error {
	signals, release := caught()
	defer release()
	suspects := 0
	for _, r := range plan {
		if acts(r) {
			suspects++
		}
	}
	began, s := time.Now(), screen.New(a.errs)
	if !s.Live {
		a.say("watching %d keys for %v", suspects, lease)
	}
	stop := s.Progress(fmt.Sprintf("watching %d keys, seconds", suspects),
		func() int { return min(int(time.Since(began).Seconds()), int(lease.Seconds())) }, int(lease.Seconds()))
	defer stop()
	t := time.NewTimer(lease)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case sig := <-signals:
		return exit.Because(exit.Signal+int(sig.(syscall.Signal)), errors.New("interrupted: nothing was changed"), "")
	}
}

// lookAgain looks a second time at the keys to be repaired, and leaves changed ones alone.
func lookAgain(c redis.Conn, plan []remedy) error {
	for i := range plan {
		r := &plan[i]
		if !acts(*r) {
			continue
		}
		all, err := new(verdict.Server).Read(protocol.NewConn(c), time.Now(), r.Key)
		if err != nil {
			return err
		}
		v := verdict.Lens{}.Judge(all[0], time.Now())
		r.Evidence.Last = *moment(time.Now())
		if v.Value != r.was.Value || v.TTL != r.was.TTL || v.Lock != r.was.Lock || !v.Until.Equal(r.was.Until) {
			r.Action, r.Outcome, r.Why = doLeave, outcomeChanged, "it changed while it was watched: somebody uses it"
		}
	}
	return nil
}

func (a *app) apply(c redis.Conn, plan []remedy, f repairFlags) error {
	for i := range plan {
		if !acts(plan[i]) {
			continue
		}
		if err := plan[i].apply(protocol.NewConn(c), f.lease); err != nil {
			return err
		}
		if !f.asJSON {
			a.print(printable(plan[i].Key) + ": " + plan[i].Outcome + "\n") //nolint:errcheck // it is done nevertheless
		}
	}
	return nil
}

// page writes the plan and the evidence for people.
func (p *repairPlan) page(f repairFlags) string {
	var b strings.Builder
	some := 0
	for _, r := range p.Plan {
		e := r.Evidence
		what := map[string]string{doRemove: "remove", doExpire: fmt.Sprintf("give a TTL of %v", f.lease), doLeave: "leave"}[r.Action]
		fmt.Fprintf(&b, "%s: %s\n", printable(r.Key), what)
		fmt.Fprintf(&b, "  why   %s\n", r.Why)
		if r.was.Status == protocol.StatusFree {
			continue
		}
		saw := "seen once, at " + verdict.Moment(e.First.Local())
		if e.Last.After(e.First) {
			saw = fmt.Sprintf("unchanged for %v, until %s", e.Last.Sub(e.First).Round(time.Second), verdict.Moment(e.Last.Local()))
			if r.Outcome == outcomeChanged {
				saw = fmt.Sprintf("it changed within %v", e.Last.Sub(e.First).Round(time.Second))
			}
		}
		fmt.Fprintf(&b, "  seen  %s %s, TTL %s; %s\n", e.Format, printable(e.Value), ttl(r.was.State), saw)
		if len(e.LooksLike) > 0 {
			fmt.Fprintf(&b, "  like  %s\n", likeClients(r.was))
		}
		if acts(r) {
			some++
		}
	}
	if some == 0 {
		fmt.Fprintf(&b, "nothing to repair for %s among %d keys\n", p.Dialect, p.Keys)
	} else if f.dryRun {
		fmt.Fprintf(&b, "%d of %d keys would be changed; nothing was\n", some, p.Keys)
	}
	return b.String()
}

// apply changes the key if it still holds the value that was seen, and has no TTL; of two keys also the deadline.
func (r *remedy) apply(c *protocol.Conn, lease time.Duration) error {
	ch := protocol.Change{Key: r.Key, Value: r.was.Value, Persistent: true, Once: true}
	switch {
	case r.was.Lock == verdict.Pair:
		ch.Custom = r.removePair
	case r.Action == doExpire:
		ch.TTL, ch.Whole = lease, true
	}
	switch _, err := c.Run(ch); {
	case err == nil:
		r.Outcome = map[string]string{doRemove: outcomeRemoved, doExpire: outcomeExpires}[r.Action]
	case errors.Is(err, protocol.ErrLost), errors.Is(err, protocol.ErrAborted), errors.Is(err, protocol.ErrForeign):
		r.Outcome = outcomeChanged
	default:
		return c.Denied(r.Key, c.Lacks(err, "it has no WATCH (it came with 2.2), so that nothing can be repaired safely", "setnxlock release KEY --force, for one lock at a time"))
	}
	return nil
}

// removePair removes both keys of a lock if they hold what was seen, and the owner's has no TTL.
func (r *remedy) removePair(c *protocol.Conn) ([]any, error) {
	owner, deadline, _ := dialect.PairOf(r.Key)
	keys := []string{owner, deadline}
	read := []protocol.Cmd{{"GET", owner}, {"GET", deadline}, {"TTL", owner}}
	return c.CompareAndSet(keys, read, func(held []any) ([]protocol.Cmd, error) {
		var texts [2]string
		for i, key := range keys {
			var err error
			if texts[i], err = redis.String(held[i], nil); err != nil && err != redis.ErrNil {
				return nil, protocol.Foreign(key, err)
			}
		}
		left, err := redis.Int64(held[2], nil)
		if err != nil {
			return nil, err
		}
		until, _, ok := dialect.Stamp{Unit: time.Second}.Parse(texts[1])
		if texts[0] != r.was.Value || !ok || !until.Equal(r.was.Until) || left != -1 {
			return nil, protocol.ErrLost
		}
		return []protocol.Cmd{{"DEL", owner, deadline}}, nil
	})
}
