package racecmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/spf13/cobra"
)

const exploreHelp = `Runs a lock's real code in every order of its commands, with every fault that
--faults allows at every place where it can happen, and checks whether a promise
breaks: exclusion, fencing, ownership, progress, accuracy, fence-order, fairness
("race list --help" says what they are). The search is breadth-first: what it
finds is a shortest way to break the lock. If it finds nothing, there is nothing
within the bounds: so many clients and attempts, faults and jumps of time, on an
embedded Redis of that version. Beyond them it says nothing.

  --faults lost=1    one reply is lost after its command has run
           sever=1   one request never arrives
           delay=1   one arrives at some time after its connection was given up
           cut=1     one connection breaks between two commands of one write
           refuse=1  one command that writes is answered with an error, as over
                     maxmemory; before 2.6.5 the rest of its transaction runs
           crash     clients die for good
           restart   the server comes back empty, once; restart=2: twice
           failover  a replica takes over that has not seen the last write
           evict     the server drops the key
           down      one of several servers (redlock) answers no more; there
                     restart and evict strike one of them too
           unreaped  keys that have expired may still be in memory
           late=1    a client stops once between reading its clock and acting on
                     it; late=0: never; default: as often as time jumps

  --holders extend          clients extend their leases, as well as taking and
                            releasing; extend-shorter: to a fifth of the lease;
                            extend-longer: to twice the lease
            handoff         hand the lock to the next in their process
            stale-handle    hand off, and try to release by an older handle
            detach          detach, and adopt the handle
            batch           hold a second lock, renewed in the same write
            signal          wake a waiter when they release
            one-conn        have one connection, and no second
            poll            look before each attempt
            wait            wait: after a refusal they ask again
            downgrade       go on as readers after they were writers
            write           write to a storage that accepts no older fence
            fence           draw a fence`

const exploreExamples = `  setnxlock race explore --algorithm getset:classic --server 2.4 --clients 3
  setnxlock race explore --algorithm tx:classic --faults lost=1,crash --ticks 4
  setnxlock race explore --algorithm getset:classic --skew 0,3s --html race.html
  setnxlock race explore --algorithm tx:guarded --json | jq .states`

const exploreStatus = `  0      No invariant is broken within the bounds.
  1      One is: the shortest way to break it was printed.
  2      Nothing broke before the states or the memory ran out: no proof.
` + raceStatus + `
  130    It was interrupted.`

// An exploration is the flags of race explore.
type exploration struct {
	setup
	faults     []string
	invariants []string
	ticks      int
	states     int
	megabytes  int64
	asJSON     bool
	html       string
}

func (a *app) exploreCommand() *cobra.Command {
	var x exploration
	cmd := &cobra.Command{
		Use:         "explore --algorithm NAME",
		Short:       "Try every order of a lock's commands",
		Long:        exploreHelp,
		Example:     exploreExamples,
		Annotations: exit.Alone(exploreStatus),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := x.config(cmd)
			if err != nil {
				return err
			}
			return a.explore(c, x)
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) { // every command would wait for the list
		cmd.Long = exploreHelp + "\n\n" + algorithmsHelp()
		cmd.Parent().HelpFunc()(cmd, args)
	})
	x.flags(cmd)
	f := cmd.Flags()
	f.StringSliceVar(&x.faults, "faults", nil, "which faults happen: `LIST`, as in lost=1,crash")
	f.IntVar(&x.ticks, "ticks", 2, "let time jump to the next event `N` times")
	f.StringSliceVar(&x.invariants, "invariant", nil, "check only `NAME`; may be repeated")
	f.IntVar(&x.states, "max-states", 50_000_000, "give up beyond `N` states")
	f.Int64Var(&x.megabytes, "max-memory", 1500, "give up beyond so many `MB`")
	f.BoolVar(&x.asJSON, "json", false, "print JSON")
	f.StringVar(&x.html, "html", "", "write what breaks the lock as a page to `FILE`")
	completeList(cmd, "faults", faultWords)
	exit.Complete(cmd, "invariant", race.Invariants())
	for _, name := range []string{"ticks", "max-states", "max-memory"} {
		exit.Complete(cmd, name, nil)
	}
	return cmd
}

// config reads the flags.
func (x *exploration) config(cmd *cobra.Command) (race.Config, error) {
	c, err := x.over(race.Config{Server: "2.4"}, cmd.Flags())
	if err != nil {
		return c, err
	}
	if c.Faults, err = faults(x.faults); err != nil {
		return c, err
	}
	for _, name := range x.invariants {
		if err := choose("invariant", name, race.Invariants()); err != nil {
			return c, err
		}
		// What is needed to break them.
		c.Write = c.Write || name == "fencing"
		c.Fence = c.Fence || name == "fence-order"
		c.Wait = c.Wait || name == "fairness"
	}
	switch {
	case x.states < 1:
		return c, exit.Usage(cmd, fmt.Errorf("--max-states %d", x.states))
	case x.megabytes < 1:
		return c, exit.Usage(cmd, fmt.Errorf("--max-memory %d", x.megabytes))
	}
	c.Invariants, c.Ticks, c.MaxStates, c.MaxMemory = x.invariants, x.ticks, x.states, x.megabytes<<20
	return c, nil
}

func (a *app) explore(c race.Config, x exploration) error {
	var last atomic.Pointer[race.Stats]
	last.Store(&race.Stats{})
	c.Progress = func(s race.Stats) { last.Store(&s) }
	var r race.Result
	if err := a.interruptible(func(ctx context.Context) (err error) {
		defer searching(screen.New(a.errs), &last)()
		if r, err = race.Explore(ctx, c); ctx.Err() == nil {
			err = inRace(err)
		}
		return err
	}); err != nil {
		return err
	}
	if r.Trace != nil {
		r.Trace.Argument.Fix = remedy(*r.Trace)
	}
	if err := a.found(c, r, x); err != nil {
		return err
	}
	switch r.Verdict {
	case race.Safe:
		return nil
	case race.Violated:
		return exit.With(statusBroken)
	}
	return exit.With(statusBounded)
}

// found reports an exploration's result.
func (a *app) found(c race.Config, r race.Result, x exploration) error {
	if x.html != "" && r.Trace == nil {
		a.say("nothing broke: %s was not written", x.html)
	} else if x.html != "" {
		if err := a.write(x.html, func(w io.Writer) error { return pages.HTML(w, *r.Trace) }); err != nil {
			return err
		}
	}
	if x.asJSON {
		return answer.Write(a.out, struct {
			Algorithm string `json:"algorithm"`
			Server    string `json:"server"`
			race.Report
		}{c.Algorithm, c.Server, r.Report()})
	}
	s := screen.New(a.out)
	width := a.width()
	return a.write("", func(w io.Writer) error {
		fmt.Fprint(w, screen.Paragraph("", fmt.Sprintf("%s on %s, %s", c.Algorithm, c.Server, r.Bounds), width))
		looked := screen.Paragraph("", r.Looked.Says(), width)
		counts := fmt.Sprintf("%s states, %s transitions, depth %d, %s", view.Thousands(r.States), view.Thousands(r.Transitions), r.Depth, took(r.Elapsed))
		switch r.Verdict {
		case race.Safe:
			fmt.Fprintln(w, s.Good("no violation within these bounds"))
			fmt.Fprintf(w, "%s\n%s", counts, looked)
		case race.Violated:
			fmt.Fprintln(w, s.Bad(fmt.Sprintf("%s is violated, in %d steps", r.Trace.Verdict.Violated, len(r.Trace.Events))))
			fmt.Fprintf(w, "%s\n%s\n", counts, looked)
			fmt.Fprint(w, view.Timeline(*r.Trace, a.timelineOptions("")))
		default:
			fmt.Fprintf(w, "%s\n%s\n", s.Bad("nothing broke before "+r.Bound+" ran out, which proves nothing"), counts)
			fmt.Fprint(w, looked)
			fmt.Fprint(w, screen.Paragraph("hint: ", "fewer clients, attempts, faults or jumps of time; a higher --max-states or --max-memory", width))
		}
		return nil
	})
}

// searched writes the n-th such line. How many states there are nobody knows at first: the bar says
// that it goes on, the numbers how, and an estimate comes with the middle of the search.
func searched(n int, at *race.Stats, took time.Duration) string {
	rate := int(float64(at.States) / max(took.Seconds(), 0.001))
	line := fmt.Sprintf("%s  %s states  %s/s  %d MB  depth %d  %.1f s", shuttle(n), view.Thousands(at.States), view.Thousands(rate),
		at.Memory>>20, at.Depth, took.Seconds())
	if at.States > 0 && at.Left >= 0 {
		line += fmt.Sprintf("  about %d %%, %.0f s more", 100*at.States/(at.States+at.Left), took.Seconds()*float64(at.Left)/float64(at.States))
	}
	return line
}

// searching shows on a terminal how far a search has come, anew some times a second, until the function
// it returns has wiped the line away.
func searching(s screen.Screen, last *atomic.Pointer[race.Stats]) (wipe func()) {
	return s.Line(0, 80*time.Millisecond, func(n int, took time.Duration) string {
		return searched(n, last.Load(), took)
	})
}

// shuttle draws a bar without an end: its mark goes to and fro.
func shuttle(n int) string {
	const width, mark = 20, 4
	at := n % (2 * (width - mark))
	if at > width-mark {
		at = 2*(width-mark) - at
	}
	return "[" + strings.Repeat(".", at) + strings.Repeat("#", mark) + strings.Repeat(".", width-mark-at) + "]"
}

func took(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
