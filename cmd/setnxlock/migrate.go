package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/spf13/cobra"
)

const migrateHelp = `Moves a fleet from one lock to another while it runs, without a moment of two
holders.

While a fleet is rolled over, old and new clients lock the same keys at once. Where
that is not safe there is a bridge, a lock that both respect: the whole fleet moves
to the bridge first, and then from the bridge to the new lock.`

const migrateExamples = `  setnxlock migrate plan --from redis-py-2.9 --to set
  setnxlock migrate plan --from setnx-expire --to set --json`

const migrateStatus = `  0      There is a safe way, and here it is.
  1      There is none: stop the old clients, wait for a lease, start the new.
  64     Wrong usage.`

func (a *app) migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "migrate",
		Short:       "Plan how a running fleet moves to another lock",
		Long:        migrateHelp,
		Example:     migrateExamples,
		Annotations: exit.Alone(migrateStatus),
		RunE:        exit.Help,
	}
	cmd.AddCommand(a.migratePlanCommand())
	return cmd
}

// migratePlanHelp adds the oldest versions of the targets to the help.
func migratePlanHelp() string {
	return `Prints the stages by which a fleet moves: what its clients run in each, what runs
at once while a stage is rolled out, why a stage can't be left out (the name of
the race that would follow), how to know that it is finished, and how to go back.

--from is a client in the field (setnxlock survey names those it finds), or
setnx-expire, which is what most articles have; or getset, tx or set, for a lock of
this module. --to is a family or a lock: set needs Redis ` + since("set") + `, tx ` + since("tx") + `.

` + screen.Paragraph("--to: ", strings.Join(bridge.Targets(), ", "), 80)
}

// since returns the oldest Redis with a lock of the family.
func since(family string) string {
	oldest := ""
	for _, l := range locks.Named(family) {
		oldest = l.Since // the table has the newest first
	}
	return oldest
}

func (a *app) migratePlanCommand() *cobra.Command {
	var from, to string
	var asJSON bool
	cmd := &cobra.Command{
		Use:         "plan --from CLIENT --to LOCK",
		Short:       "Print the stages, and why none can be left out",
		Long:        migratePlanHelp(),
		Example:     migrateExamples,
		Annotations: exit.Alone(migrateStatus),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" {
				return exit.Usage(cmd, errors.New("plan needs --from, the lock of the fleet"))
			}
			p, err := bridge.NewPlan(from, to)
			if err != nil {
				return exit.Because(exit.Wrong, err, "")
			}
			if asJSON {
				err = a.printJSON(p)
			} else {
				err = a.print(planPage(p, min(screen.Width(a.out), 100)))
			}
			if err == nil && p.Drain != "" {
				return exit.With(1)
			}
			return err
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&from, "from", "", "the lock of the fleet: `CLIENT` is redis-py-2.9, getset, ...")
	cmd.Flags().StringVar(&to, "to", "set", "the `LOCK` to move to")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	exit.Complete(cmd, "from", append(clients(), bridge.Ours()...))
	exit.Complete(cmd, "to", bridge.Targets())
	return cmd
}

// planPage writes the plan for people.
func planPage(p bridge.Plan, width int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "From %s to %s.\n", p.From, p.To)
	b.WriteString(screen.Paragraph("", p.About+".", width))
	if p.Drain != "" {
		fmt.Fprintln(&b)
		b.WriteString(screen.Paragraph("", "There is no safe way while it runs: "+p.Drain+". Stop all old clients, wait until the longest of their leases has passed, start the new ones.", width))
	}
	if p.Direct != "" {
		fmt.Fprintln(&b)
		b.WriteString(screen.Paragraph("", "No bridge is needed: "+p.Direct+".", width))
	}
	for i, s := range p.Stages {
		fmt.Fprintf(&b, "\nStage %d, %s: %s\n", i, s.Name, s.Lock)
		item(&b, "in Go", s.Go, math.MaxInt) // to be copied: in one line
		item(&b, "command", s.Command, math.MaxInt)
		if len(s.Mix) > 0 {
			item(&b, "beside it", s.Mix[0]+", while it is rolled out, and nothing else", width)
		}
		if s.Why != "" {
			item(&b, "why", "without it "+s.Why+".", width)
		}
		for _, r := range s.Races {
			item(&b, "see", "setnxlock race show "+r, width)
		}
		for _, d := range s.Done {
			item(&b, "done when", d+".", width)
		}
		item(&b, "back", s.Back, width)
	}
	if p.Drain == "" {
		fmt.Fprintf(&b, "\nThe old clients' lock NAME is the key %s; the new ones' is the key %s.\n", p.OldKey, p.NewKey)
	}
	if len(p.Risks) > 0 {
		fmt.Fprintf(&b, "\nUntil the last old client has gone, as before:\n")
		for _, r := range p.Risks {
			b.WriteString(screen.Paragraph("  - ", r+".", width))
		}
	}
	return b.String()
}

func item(b *strings.Builder, name, text string, width int) {
	if text != "" {
		b.WriteString(screen.Paragraph(fmt.Sprintf("  %-9s  ", name), text, width))
	}
}

// bridges returns the locks of --algorithm bridge: between the clients of --dialect and clients of tokens on
// the same key.
func bridges(d getsetlock.Dialect, fence bool) []protocol.Algorithm {
	b, err := bridge.Named(d.Name)
	if err != nil { // no client's: one of ours; or its Check refuses it
		b.Dialect = d
	}
	b.Fence = fence
	seconds := b
	b.Millis = true
	return []protocol.Algorithm{b, seconds}
}
