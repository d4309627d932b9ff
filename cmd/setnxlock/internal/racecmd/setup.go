package racecmd

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/duration"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A setup is the flags that say whose lock is run, where, and by how many.
type setup struct {
	race.Config
	holders []string
}

func (s *setup) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.Algorithm, "algorithm", "", "the `NAME` of a lock, or A+B for two")
	f.StringVar(&s.Server, "server", "2.4", "the `VERSION` of Redis, or a proxy")
	f.IntVar(&s.Clients, "clients", 2, "how many clients, `1-4`")
	f.IntVar(&s.Attempts, "attempts", 2, "how often each takes the lock, `1-9`")
	duration.Var(f, &s.TTL, "ttl", 10*time.Second, "the lease")
	duration.SliceVar(f, &s.Skew, "skew", "how far each client's clock is ahead: `0,3s`")
	f.StringArrayVar(&s.Given, "given", nil, "a `COMMAND` that the server has run: 'SET {key} t=-2s'")
	f.StringSliceVar(&s.holders, "holders", nil, "what else clients do: `WHAT`; see race explore --help")
	f.BoolVar(&s.Bare, "bare", false, "run the algorithm alone, without the library's Locker")
	completeList(cmd, "algorithm", algorithmNames)
	exit.Complete(cmd, "server", servers())
	exit.Complete(cmd, "holders", holderWords())
	for _, name := range []string{"clients", "attempts", "ttl", "skew", "given"} {
		exit.Complete(cmd, name, nil)
	}
}

// shipped lists the algorithms for use.
func shipped() []string {
	return slices.DeleteFunc(race.Algorithms(workbench.Locks()), func(name string) bool { return !isShipped(name) })
}

func isShipped(name string) bool {
	lock, _, _ := strings.Cut(name, "/")
	return strings.Contains(lock, ":")
}

// algorithmsHelp writes the part of a help text on --algorithm.
func algorithmsHelp() string {
	var b strings.Builder
	var others []string
	b.WriteString("The algorithms are\n\n")
	for _, name := range race.Algorithms(workbench.Locks()) {
		switch group, _, _ := strings.Cut(name, "/"); {
		case group == "broken" || group == "other":
			others = append(others, name)
		case !fleet(name):
			b.WriteString(screen.Paragraph(fmt.Sprintf("  %-24s", name), race.Describe(name, workbench.Locks()), 80))
		}
	}
	return b.String() + "\nand, which exist only to be broken,\n\n" + screen.Paragraph("  ", strings.Join(others, ", "), 80) +
		"\nand the fleets of race mixing --list.\n"
}

// completeList completes values from a late look-up.
func completeList(cmd *cobra.Command, flag string, values func() []string) {
	cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) { //nolint:errcheck // the flag exists
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
}

func holderWords() []string {
	return []string{"extend", "extend-shorter", "extend-longer", "handoff", "stale-handle", "detach", "batch", "signal", "one-conn", "poll", "wait", "downgrade", "write", "fence"}
}

// over returns base, changed by the flags.
func (s *setup) over(base race.Config, flags *pflag.FlagSet) (race.Config, error) {
	base.Locks = workbench.Locks()
	change := map[string]func(){
		"algorithm": func() { base.Algorithm = strings.ReplaceAll(s.Algorithm, " ", "") },
		"server":    func() { base.Server = s.Server },
		"clients":   func() { base.Clients = s.Clients },
		"attempts":  func() { base.Attempts = s.Attempts },
		"ttl":       func() { base.TTL = s.TTL },
		"skew":      func() { base.Skew = s.Skew },
		"given":     func() { base.Given = s.Given },
		"bare":      func() { base.Bare = s.Bare },
	}
	for name, f := range change {
		if flags.Changed(name) {
			f()
		}
	}
	for _, what := range s.holders {
		if err := choose("word for --holders", what, holderWords()); err != nil {
			return base, err
		}
		switch what {
		case "extend-shorter":
			base.ExtendTo = append(base.ExtendTo, cmp.Or(base.TTL, 10*time.Second)/5)
		case "extend-longer":
			base.ExtendTo = append(base.ExtendTo, cmp.Or(base.TTL, 10*time.Second)*2)
		case "stale-handle":
			base.Handoff, base.StaleHandle = true, true
		default:
			if err := base.Set(what); err != nil {
				return base, err
			}
		}
	}
	if base.Algorithm == "" {
		return base, exit.Because(exit.Wrong, fmt.Errorf("no --algorithm was given"),
			"it is one of "+strings.Join(shipped(), ", "))
	}
	for _, name := range strings.Split(base.Algorithm, "+") {
		if !slices.Contains(race.Algorithms(workbench.Locks()), name) {
			return base, exit.Because(exit.Wrong, fmt.Errorf("there is no algorithm %q", name),
				suggest(name, race.Algorithms(workbench.Locks()), "it is one of "+strings.Join(shipped(), ", ")))
		}
	}
	if base.Server != "" {
		if err := chooseServer(base.Server); err != nil {
			return base, err
		}
	}
	return base, nil
}

// faults reads --faults: lost=1,sever=1,delay=1,cut=1,refuse=1,crash,restart,failover,evict,down,late=1.
func faults(words []string) (f race.Faults, err error) {
	counts := map[string]*int{
		"lost": &f.LostReplies, "sever": &f.LostRequests, "delay": &f.LateRequests, "cut": &f.Cuts, "refuse": &f.Refusals,
		"restart": &f.Restart, "failover": &f.Failover, "evict": &f.Evict, "down": &f.Down,
	}
	flags := map[string]*bool{"crash": &f.Crash, "unreaped": &f.Unreaped}
	for _, w := range words {
		name, number, given := strings.Cut(w, "=")
		n := 1
		if given {
			if n, err = strconv.Atoi(number); err != nil || n < 0 {
				return f, exit.Because(exit.Wrong, fmt.Errorf("--faults %s: %q is not a number", w, number), "")
			}
		}
		switch count, flag := counts[name], flags[name]; {
		case count != nil:
			*count = n
		case name == "late":
			if f.Late = n; n == 0 {
				f.Late = -1 // 0 is as often as time jumps
			}
		case flag != nil && !given:
			*flag = true
		case flag != nil:
			return f, exit.Because(exit.Wrong, fmt.Errorf("--faults %s: %s takes no number", w, name), "")
		default:
			return f, choose("fault", name, faultWords())
		}
	}
	return f, nil
}

func faultWords() []string {
	return []string{"lost", "sever", "delay", "cut", "refuse", "crash", "restart", "failover", "evict", "down", "unreaped", "late"}
}
