package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/spf13/cobra"
)

const repairHelp = `Heals the locks whose holders are provably dead, and touches no others:

  an expired timestamp        is removed
  two keys, both expired      are removed together
  a token without a TTL       gets one, of --lease; its client died before it could
                              set one

repair looks at each twice, a --lease apart, and heals it only if its value has not
changed in between and does not change meanwhile (WATCH): a live holder has renewed
or released it by then. --lease must be the longest that any client takes
its locks for.

Flags ("1", "true", nothing), values that any text could be, and tokens of clients
that never set a TTL are left alone, and so is what setnxlock can't read: survey
lists them. A client takes over an expired timestamp itself when it next wants the
lock; repair only tidies it away.

It needs WATCH: Redis 2.2.`

const repairExamples = `  setnxlock repair --dry-run
  setnxlock repair --match 'lock:*' --lease 5m`

func (a *app) repairCommand() *cobra.Command {
	var f repairFlags
	cmd := &cobra.Command{
		Use:               "repair",
		Short:             "Heal the locks of dead holders, and nothing else",
		Long:              repairHelp,
		Example:           repairExamples,
		Annotations:       map[string]string{"status": "  0      What was dead has been healed; or nothing was.\n" + statusHelp},
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              usageErrors(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.lease < time.Second {
				return usage(cmd, fmt.Errorf("a --lease of %v: locks are held for a second and more", f.lease))
			}
			return a.repair(f)
		},
	}
	cmd.Flags().StringVar(&f.match, "match", "", "look only at keys that match `PATTERN`; --prefix is put before it")
	cmd.Flags().DurationVar(&f.lease, "lease", time.Minute, "the longest that any client takes a lock for; how long it is watched")
	cmd.Flags().BoolVarP(&f.dryRun, "dry-run", "n", false, "watch, and say what would be healed, but change nothing")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return cmd
}

type repairFlags struct {
	match  string
	lease  time.Duration
	dryRun bool
	asJSON bool
}

// A repaired is what became of a lock that looked dead.
type repaired struct {
	Key     string `json:"key"`
	Format  string `json:"format"`
	Value   string `json:"value"`
	Outcome string `json:"outcome"`
}

// The outcomes of a repair.
const (
	outcomeRemoved = "removed"
	outcomeTTL     = "given a TTL"
	outcomeWould   = "would be " // with --dry-run: what it would be
	outcomeChanged = "left: it has changed, so its holder lives"
)

// repair watches what looks dead for a lease, and heals what has not moved.
func (a *app) repair(f repairFlags) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	before, err := a.survey(ctx, f.match, false)
	if err != nil {
		return err
	}
	suspects := slices.DeleteFunc(before.Locks, func(l surveyed) bool { return cure(l.finding) == "" })
	list := []repaired{} // [] in JSON, not null
	if len(suspects) > 0 {
		if err := a.watchFor(ctx, f.lease, len(suspects)); err != nil {
			return err
		}
		if list, err = a.heal(ctx, suspects, f); err != nil {
			return err
		}
	}
	if f.asJSON {
		return a.printJSON(list)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(r.Key), r.Format, printable(r.Value), r.Outcome)
	}
	if len(list) == 0 {
		fmt.Fprintf(w, "nothing is dead among %d keys\n", before.Keys)
	}
	return w.Flush()
}

// cure is what would heal a lock; "" for what is not dead, or not provably so.
func cure(f dialect.Finding) string {
	switch {
	case f.Kind == dialect.Flag || f.What == string(dialect.TokenText):
		return ""
	case f.Status == dialect.Dead || f.Status == dialect.TwoPart:
		return outcomeRemoved
	case f.Status == dialect.Persistent && setsTTL(f.Formats()):
		return outcomeTTL
	}
	return ""
}

// setsTTL reports whether every client that writes so gives its keys a TTL.
func setsTTL(formats []string) bool {
	for _, name := range formats {
		if f, err := dialect.Lookup(name); err != nil || f.TTL == dialect.TTLNone {
			return false
		}
	}
	return len(formats) > 0
}

// watchFor waits for a lease.
func (a *app) watchFor(ctx context.Context, lease time.Duration, suspects int) error {
	began, s := time.Now(), newStage(a.errs)
	if !s.Live {
		a.say("%d locks look dead; watching them for %v", suspects, lease)
	}
	stop := s.Progress(fmt.Sprintf("watching %d locks, seconds", suspects),
		func() int { return min(int(time.Since(began).Seconds()), int(lease.Seconds())) }, int(lease.Seconds()))
	defer stop()
	t := time.NewTimer(lease)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return &failure{statusSignal + int(syscall.SIGINT), errors.New("interrupted: nothing was changed"), ""}
	}
}

// heal looks at each suspect again, over one connection.
func (a *app) heal(ctx context.Context, suspects []surveyed, f repairFlags) ([]repaired, error) {
	p, c, err := a.session(ctx)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	defer c.Close()
	var list []repaired
	for _, l := range suspects {
		outcome, err := healOne(compat.NewConn(c), l, f)
		if err != nil {
			return list, err
		}
		if outcome != "" {
			list = append(list, repaired{l.Key, l.Format, l.Value, outcome})
		}
	}
	return list, nil
}

// healOne heals a lock if nothing about it has moved. "" says that it was no
// dead lock after all: of two keys, one whose time is to come.
func healOne(c *compat.Conn, l surveyed, f repairFlags) (outcome string, err error) {
	value, exists, err := c.Watch(l.Key)
	switch {
	case errors.Is(err, compat.ErrForeign):
		return outcomeChanged, nil
	case err != nil:
		return "", c.Lacks(err, "it has no WATCH (it came with 2.2), so that nothing can be healed safely", "setnxlock release KEY --force, for one lock at a time")
	}
	defer c.Unwatch() // where no EXEC has ended it
	ttl, err := redis.Int64(c.Do("TTL", l.Key))
	if err != nil {
		return "", err
	}
	if !exists || value != l.Value || l.finding.Status == dialect.Persistent && ttl >= 0 {
		return outcomeChanged, nil
	}
	cmds := []compat.Cmd{{"DEL", l.Key}}
	outcome = cure(l.finding)
	switch {
	case l.finding.Status == dialect.TwoPart:
		_, deadline, _ := dialect.PairOf(l.Key)
		late, err := expired(c, deadline)
		if err != nil || !late {
			return "", err
		}
		cmds = []compat.Cmd{{"DEL", l.Key, deadline}}
	case outcome == outcomeTTL:
		seconds, err := compat.Whole(f.lease, time.Second)
		if err != nil {
			return "", err
		}
		cmds = []compat.Cmd{{"EXPIRE", l.Key, seconds}}
	}
	if f.dryRun {
		return outcomeWould + outcome, nil
	}
	replies, err := c.Exec(cmds...)
	if err != nil {
		return "", err
	}
	if replies == nil {
		return outcomeChanged, nil
	}
	return outcome, nil
}

// expired watches the second of two keys, and reports whether its time has gone by.
func expired(c *compat.Conn, key string) (bool, error) {
	value, exists, err := c.Watch(key)
	if err != nil || !exists {
		return false, err
	}
	until, _, ok := dialect.Stamp{Unit: time.Second}.Parse(value)
	return ok && until.Before(time.Now()), nil
}
