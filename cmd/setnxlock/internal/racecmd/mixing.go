package racecmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/mixing"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/spf13/cobra"
)

const mixingHelp = `Tells what happens when two fleets lock the same key, each in its own format:
our locks in every dialect, as they ship, and the clients in the field, as
models of their published code, faults included. Safe: within the bounds no two
hold the lock at once, and each fleet recovers the locks of the other's dead
clients. Otherwise it tells what it takes to break the lock: nothing ("at once"),
a dead lock ("at takeover"), time ("early") or a slow client ("late"), with a
shortest schedule.

With --a and --b one pair is computed; without, the whole matrix, every pair
with a shortest schedule: some minutes on two cores. docs/migration.md
says in words what may share a key.`

const mixingExamples = `  setnxlock race mixing --a redis-py-2.10 --b npm-redis-lock-0.0
  setnxlock race mixing --a ours/getset:guarded/redis-py-2.9 --b redis-py-2.9
  setnxlock race mixing --list
  setnxlock race mixing -o matrix.md`

const mixingStatus = `  0      Of a pair: they may share a key. Else: it was computed.
  1      Of a pair: they may not: what breaks it was printed.
` + raceStatus + `
  130    It was interrupted.`

func (a *app) mixingCommand() *cobra.Command {
	var first, second, file string
	var list, asJSON bool
	cmd := &cobra.Command{
		Use:         "mixing",
		Short:       "Show what two fleets do to each other on one key",
		Long:        mixingHelp,
		Example:     mixingExamples,
		Annotations: exit.Alone(mixingStatus),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case list:
				return a.write(file, printParties)
			case first == "" && second == "" && asJSON:
				return exit.Usage(cmd, errors.New("--json goes with --a and --b"))
			case first == "" && second == "":
				return a.mixAll(file)
			}
			return a.mixPair(cmp.Or(first, second), cmp.Or(second, first), file, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&first, "a", "", "one `FLEET`: ours/…, theirs/…, or the name of a dialect")
	f.StringVar(&second, "b", "", "the other `FLEET`; default: more of the same")
	f.BoolVar(&list, "list", false, "list the fleets")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVarP(&file, "output", "o", "", "write to `FILE` in place of stdout")
	completeList(cmd, "a", partyNames)
	completeList(cmd, "b", partyNames)
	return cmd
}

// party finds a fleet by its name. A dialect's stands for the client itself.
func party(name string) (mixing.Party, error) {
	for _, n := range []string{name, "theirs/" + name, "ours/" + name} {
		if p, err := mixing.Find(n); err == nil {
			return p, nil
		}
	}
	return mixing.Party{}, exit.Because(exit.Wrong, fmt.Errorf("there is no fleet %q", name),
		suggest(name, partyNames(), "see setnxlock race mixing --list"))
}

// fleet reports whether an algorithm's name is a party's to a mixture.
func fleet(name string) bool {
	return strings.HasPrefix(name, "ours/") || strings.HasPrefix(name, "theirs/")
}

func partyNames() []string {
	var names []string
	for _, p := range mixing.Parties() {
		names = append(append(names, p.Name), p.Alike...)
	}
	return names
}

func printParties(w io.Writer) error {
	for _, p := range mixing.Parties() {
		says := p.Says
		if len(p.Alike) > 0 {
			says += "; the same: " + strings.Join(p.Alike, ", ")
		}
		if _, err := fmt.Fprintf(w, "%-9s  %-46s  %s\n", p.Kind, p.Name, says); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) mixPair(first, second, file string, asJSON bool) error {
	p, err := party(first)
	if err != nil {
		return err
	}
	q, err := party(second)
	if err != nil {
		return err
	}
	var v mixing.Verdict
	if err := a.interruptible(func(ctx context.Context) (err error) {
		v, err = mixing.Pair(ctx, p, q)
		return err
	}); err != nil {
		return err
	}
	if asJSON {
		err = answer.Write(a.out, jsonPair{v.A.Name, v.B.Name, v.Safe(), v.Clash, v.Stuck, v.States})
	} else {
		err = a.write(file, func(w io.Writer) error { return a.tellPair(w, v) })
	}
	if err == nil && !v.Safe() {
		err = exit.With(statusBroken)
	}
	return err
}

// tellPair prints a verdict with the steps of its violation.
func (a *app) tellPair(w io.Writer, v mixing.Verdict) error {
	s, width := screen.New(a.out), a.width()
	fmt.Fprint(w, screen.Paragraph("", v.A.Name+": "+v.A.Says, width), screen.Paragraph("", v.B.Name+": "+v.B.Says, width), "\n")
	if v.Safe() {
		fmt.Fprintln(w, s.Good("safe on one key, within the bounds"))
	}
	if c := v.Clash; c != nil {
		t, err := race.ReplaySchedule(c.Schedule, workbench.Locks())
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\n\n%s", s.Bad(fmt.Sprintf("two hold it %s, in %d steps: it takes %s", c.Grade, c.Steps, c.Takes)), view.Timeline(t, a.timelineOptions("")))
	}
	for _, k := range v.Stuck {
		fmt.Fprintf(w, "%s\nsetnxlock race replay '%s'\n", s.Bad(fmt.Sprintf("stuck: what a client of %s left, %s never gets (%s)", k.Of, k.By, k.When)), k.Schedule)
	}
	fmt.Fprintf(w, "%s states\n", view.Thousands(v.States))
	return nil
}

// A jsonPair is a verdict as machines get it.
type jsonPair struct {
	A     string         `json:"a"`
	B     string         `json:"b"`
	Safe  bool           `json:"safe"`
	Clash *mixing.Clash  `json:"clash,omitempty"`
	Stuck []mixing.Stuck `json:"stuck,omitempty"`

	States int `json:"states"`
}

// mixAll computes every pair, with a bar for the progress.
func (a *app) mixAll(file string) error {
	parties := mixing.Mixed()
	var seen atomic.Int32
	var m mixing.Matrix
	if err := a.interruptible(func(ctx context.Context) (err error) {
		defer screen.New(a.errs).Progress("pairs", func() int { return int(seen.Load()) }, len(parties)*(len(parties)+1)/2)()
		m, err = mixing.Compute(ctx, parties, func() { seen.Add(1) })
		return err
	}); err != nil {
		return err
	}
	return a.write(file, func(w io.Writer) error { _, err := io.WriteString(w, m.Markdown()); return err })
}
