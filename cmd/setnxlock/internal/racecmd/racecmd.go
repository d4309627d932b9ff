// Package racecmd is `setnxlock race`: the commands that show how locks break, and
// that prove within bounds where they don't. They need no server.
package racecmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/spf13/cobra"
)

const raceHelp = `Shows how locks in Redis break, and proves within bounds where they don't. The
code that runs is the shipping one, on an embedded Redis with the quirks of old
versions, one command at a time: all that is shown has happened. It needs no
server.

Begin with "race list" and "race show" for the races that are known, "race play"
to make them happen yourself, "race explore" to have every order of a lock's
commands tried.`

const raceExamples = `  setnxlock race list
  setnxlock race show getset/double-takeover
  setnxlock race play getset/double-takeover
  setnxlock race explore --algorithm tx:classic --faults lost=1,crash`

// The exit statuses beside those of all commands.
const (
	statusBroken  = 1 // an invariant broke
	statusBounded = 2 // nothing broke, and not everything was seen
)

const raceStatus = `  64     Wrong usage: no such race, algorithm, server or invariant, or a
         schedule that can't be run.
  70     Something else went wrong: a file that can't be written.`

// An app is one run of the program.
type app struct{ in, out, errs *os.File }

// Command returns the command with its subcommands. What a run ends with is nil or
// an *exit.Failure.
func Command(in, out, errs *os.File) *cobra.Command {
	a := &app{in, out, errs}
	cmd := &cobra.Command{
		Use:         "race",
		Short:       "See how locks break, step by step, and where they can't",
		Long:        raceHelp,
		Example:     raceExamples,
		Annotations: exit.Alone(raceStatus),
		RunE:        exit.Help,
	}
	cmd.AddCommand(a.listCommand(), a.showCommand(), a.playCommand(), a.replayCommand(), a.exploreCommand(),
		a.monitorCommand(), a.guaranteesCommand(), a.mixingCommand(), a.siteCommand())
	return cmd
}

// say tells something on stderr: stdout is for answers.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.errs, "setnxlock: "+format+"\n", args...)
}

// interruptible runs f until an interrupt.
func (a *app) interruptible(f func(context.Context) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := f(ctx)
	switch {
	case err == nil || errors.As(err, new(*exit.Failure)):
		return err
	case ctx.Err() != nil:
		a.say("interrupted: this proves nothing")
		return exit.With(exit.Signal + int(syscall.SIGINT))
	}
	return exit.Because(exit.Software, err, "")
}

// scenario finds a race by its name, or suggests similar ones.
func scenario(name string) (catalogue.Scenario, error) {
	if s, ok := catalogue.Find(name); ok {
		return s, nil
	}
	return catalogue.Scenario{}, exit.Because(exit.Wrong, fmt.Errorf("there is no race %q", name),
		suggest(name, scenarioNames(), "see setnxlock race list"))
}

func scenarioNames() []string {
	var names []string
	for _, s := range catalogue.All() {
		names = append(names, s.Name)
	}
	return names
}

func servers() []string {
	return slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today())
}

// chooseServer checks a server's name, and lists all of them in its error.
func chooseServer(value string) error {
	if slices.Contains(servers(), value) {
		return nil
	}
	return exit.Because(exit.Wrong, fmt.Errorf("there is no server %q", value), "there are "+strings.Join(servers(), ", "))
}

// choose checks a value against a few.
func choose(what, value string, of []string) error {
	if slices.Contains(of, value) {
		return nil
	}
	return exit.Because(exit.Wrong, fmt.Errorf("there is no %s %q", what, value),
		suggest(value, of, "it is one of "+strings.Join(of, ", ")))
}

// suggest lists likely names for a mistyped value, nearest first.
func suggest(value string, names []string, otherwise string) string {
	far := func(name string) int {
		if len(value) > 2 && strings.Contains(name, value) {
			return 0
		}
		_, short, _ := strings.Cut(name, "/")
		return min(distance(value, name), distance(value, short))
	}
	near := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return far(name) > len(value)/3 })
	slices.SortStableFunc(near, func(a, b string) int { return far(a) - far(b) })
	if len(near) == 0 {
		return otherwise
	}
	return "perhaps " + strings.Join(near[:min(4, len(near))], ", ")
}

// distance counts the letters to change, add or leave out to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// inRace rewords an error of the packages below: without their names, and as wrong usage, since they
// refuse typed input only.
func inRace(err error) error {
	if err == nil || errors.As(err, new(*exit.Failure)) {
		return err
	}
	return exit.Because(exit.Wrong, errors.New(strings.ReplaceAll(err.Error(), "race: ", "")), "")
}

// A picture is the flags of a command that shows a trace.
type picture struct {
	format string
	asJSON bool
	step   int
	file   string
}

func formats() []string { return []string{"text", "json", "mermaid", "html"} }

func (p *picture) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.format, "format", "text", "`FORM` is text, json, mermaid or html")
	f.BoolVar(&p.asJSON, "json", false, "the same as --format json")
	f.IntVar(&p.step, "step", 0, "show the run up to step `N`")
	f.StringVarP(&p.file, "output", "o", "", "write to `FILE` in place of stdout")
	exit.Complete(cmd, "format", formats())
	exit.Complete(cmd, "step", nil)
}

// draw shows a trace in the requested form. Below a text stands the end, where the whole run is shown.
func (a *app) draw(p *picture, t race.Trace, end string) error {
	if p.asJSON {
		p.format = "json"
	}
	if err := choose("format", p.format, formats()); err != nil {
		return err
	}
	switch {
	case p.step != 0 && p.format != "text":
		return exit.Because(exit.Wrong, fmt.Errorf("--step goes with --format text, not with %s", p.format),
			"a page opens at a step by its address: race.html#7")
	case p.step < 0 || p.step > len(t.Events):
		return exit.Because(exit.Wrong, fmt.Errorf("there is no step %d: there are %d", p.step, len(t.Events)), "")
	}
	if t.Verdict.Violated != "" && t.Argument.Fix == "" {
		t.Argument.Fix = remedy(t)
	}
	return a.write(p.file, func(w io.Writer) error {
		switch p.format {
		case "json":
			return t.WriteJSON(w)
		case "mermaid":
			_, err := io.WriteString(w, view.Mermaid(t))
			return err
		case "html":
			return pages.HTML(w, t)
		}
		o := a.timelineOptions(p.file)
		o.Step = p.step
		if p.step != 0 && p.step < len(t.Events) {
			end = ""
		}
		_, err := io.WriteString(w, view.Timeline(t, o)+end)
		return err
	})
}

// write has f write to a file, or to stdout if it has no name. A file that fails half-way is not
// begun.
func (a *app) write(file string, f func(io.Writer) error) error {
	var b bytes.Buffer
	if err := f(&b); err != nil {
		return err
	}
	if file != "" && file != "-" {
		if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
			return exit.Because(exit.Software, err, "")
		}
		return nil
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

// timelineOptions suit stdout, or a file.
func (a *app) timelineOptions(file string) view.TimelineOptions {
	if file != "" && file != "-" {
		return view.TimelineOptions{}
	}
	return view.TimelineOptions{Color: screen.New(a.out).Color, Width: a.width()}
}

// width returns the terminal's, or 80.
func (a *app) width() int { return screen.Width(a.out) }

// verdict returns the exit status of a shown run.
func verdict(t race.Trace) error {
	if t.Verdict.Violated != "" {
		return exit.With(statusBroken)
	}
	return nil
}

// scenarioArgs completes the name of one race.
func scenarioArgs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var list []string
	if len(args) == 0 {
		for _, s := range catalogue.All() {
			list = append(list, s.Name+"\t"+s.Title)
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// algorithmNames completes an algorithm, with its description.
func algorithmNames() []string {
	var list []string
	for _, name := range race.Algorithms(workbench.Locks()) {
		list = append(list, name+"\t"+race.Describe(name, workbench.Locks()))
	}
	return list
}
