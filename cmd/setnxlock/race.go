package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	raceview "github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const raceHelp = `Shows how locks in Redis break, and proves within bounds where they don't. The
code that runs is the shipping one, on an embedded Redis with the manners of old
versions, one command at a time: nothing is told that does not happen. It needs
no server.

Begin with "race list" and "race show" for the races that are known, "race play"
to make them happen yourself, "race explore" to have every order of a lock's
commands tried.`

const raceExamples = `  setnxlock race list
  setnxlock race show getset/double-takeover
  setnxlock race play getset/double-takeover
  setnxlock race explore --algorithm tx:classic --server 2.4 --faults lost=1,crash`

// What a race ends with, beside the statuses of all commands.
const (
	statusBroken  = 1 // an invariant broke
	statusBounded = 2 // nothing broke, and not everything was seen
)

const raceStatus = `  64     Wrong usage: no such race, algorithm, server or invariant, or a
         schedule that can't be run.
  70     Something else went wrong: a file that can't be written.`

func (a *app) raceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "race",
		Short:       "See how locks break, step by step, and where they can't",
		Long:        raceHelp,
		Example:     raceExamples,
		Annotations: alone(raceStatus),
		Args:        usageErrors(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(a.errs)
			cmd.Help() //nolint:errcheck
			return exit(statusUsage)
		},
	}
	cmd.AddCommand(a.raceListCommand(), a.raceShowCommand(), a.racePlayCommand(), a.raceReplayCommand(), a.raceExploreCommand(),
		a.raceGuaranteesCommand(), a.raceMixingCommand(), a.raceSiteCommand())
	return cmd
}

// alone is the annotations of a command that speaks to no server.
func alone(status string) map[string]string {
	return map[string]string{"status": status, "alone": "yes"}
}

// scenario finds a race by its name, or says which ones are like it.
func scenario(name string) (catalogue.Scenario, error) {
	if s, ok := catalogue.Find(name); ok {
		return s, nil
	}
	return catalogue.Scenario{}, &failure{statusUsage, fmt.Errorf("there is no race %q", name),
		suggest(name, scenarioNames(), "see setnxlock race list")}
}

func scenarioNames() []string {
	var names []string
	for _, s := range catalogue.All() {
		names = append(names, s.Name)
	}
	return names
}

func servers() []string { return append(oldredis.Versions(), oldredis.Profiles()...) }

// choose says what is wrong with a value that must be one of a few.
func choose(what, value string, of []string) error {
	if slices.Contains(of, value) {
		return nil
	}
	return &failure{statusUsage, fmt.Errorf("there is no %s %q", what, value),
		suggest(value, of, "it is one of "+strings.Join(of, ", "))}
}

// suggest is the names that value may have been meant to be, nearest first.
func suggest(value string, names []string, otherwise string) string {
	type near struct {
		name string
		far  int
	}
	var list []near
	for _, name := range names {
		_, short, _ := strings.Cut(name, "/")
		far := min(distance(value, name), distance(value, short))
		if len(value) > 2 && strings.Contains(name, value) {
			far = 0
		}
		if far <= len(value)/3 {
			list = append(list, near{name, far})
		}
	}
	slices.SortStableFunc(list, func(a, b near) int { return cmp.Compare(a.far, b.far) })
	var best []string
	for _, n := range list[:min(4, len(list))] {
		best = append(best, n.name)
	}
	if best == nil {
		return otherwise
	}
	return "perhaps " + strings.Join(best, ", ")
}

// distance is how many letters must be changed, added or left out to make b of a.
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

// inRace is an error of the packages below as this command says it: without
// their names, and as wrong usage, since all that they refuse was typed.
func inRace(err error) error {
	if err == nil || errors.As(err, new(*failure)) {
		return err
	}
	return &failure{status: statusUsage, err: errors.New(strings.ReplaceAll(err.Error(), "race: ", ""))}
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
	f.IntVar(&p.step, "step", 0, "show the run up to step `N` and what each client is about to do then")
	f.StringVarP(&p.file, "output", "o", "", "write to `FILE` in place of stdout")
	complete(cmd, "format", formats())
	complete(cmd, "step", nil)
}

// draw shows a trace in the form that was asked for. Below a text stands the
// end, where the whole run is shown.
func (a *app) draw(p *picture, t race.Trace, end string) error {
	if p.asJSON {
		p.format = "json"
	}
	if err := choose("format", p.format, formats()); err != nil {
		return err
	}
	switch {
	case p.step != 0 && p.format != "text":
		return &failure{statusUsage, fmt.Errorf("--step goes with --format text, not with %s", p.format),
			"a page opens at a step by its address: race.html#7"}
	case p.step < 0 || p.step > len(t.Events):
		return &failure{statusUsage, fmt.Errorf("there is no step %d: there are %d", p.step, len(t.Events)), ""}
	}
	return a.write(p.file, func(w io.Writer) error {
		switch p.format {
		case "json":
			return t.WriteJSON(w)
		case "mermaid":
			_, err := io.WriteString(w, raceview.Mermaid(t))
			return err
		case "html":
			return html(w, t)
		}
		o := a.timelineOptions(p.file)
		o.Step = p.step
		if p.step != 0 && p.step < len(t.Events) {
			end = ""
		}
		_, err := io.WriteString(w, raceview.Timeline(t, o)+end)
		return err
	})
}

// write has f write to a file, or to stdout if it has no name. A file that
// fails half-way is not begun.
func (a *app) write(file string, f func(io.Writer) error) error {
	var b bytes.Buffer
	if err := f(&b); err != nil {
		return err
	}
	if file != "" && file != "-" {
		if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
			return &failure{statusSoftware, err, ""}
		}
		return nil
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

// timelineOptions suit stdout, or a file.
func (a *app) timelineOptions(file string) raceview.TimelineOptions {
	if file != "" && file != "-" {
		return raceview.TimelineOptions{}
	}
	return raceview.TimelineOptions{Color: newStage(a.out).color, Width: a.width()}
}

// width is the terminal's, or 80.
func (a *app) width() int {
	if w, _, err := term.GetSize(int(a.out.Fd())); err == nil && w > 0 {
		return w
	}
	return 80
}

// verdict is the exit status of a run that was shown.
func verdict(t race.Trace) error {
	if t.Verdict.Violated != "" {
		return exit(statusBroken)
	}
	return nil
}

// paragraph is text under a label, in lines of the width.
func paragraph(label, text string, width int) string {
	var b strings.Builder
	line, indent := label, strings.Repeat(" ", len(label))
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
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

// algorithmNames completes an algorithm, with what it is.
func algorithmNames() []string {
	var list []string
	for _, name := range race.Algorithms(raceLocks()) {
		list = append(list, name+"\t"+race.Describe(name, raceLocks()))
	}
	return list
}

// html is the page of a trace, with the ways around it where they are few
// enough to walk.
func html(w io.Writer, t race.Trace) error {
	t, err := race.WithFork(t, race.ForkStates, raceLocks())
	if err != nil {
		return err
	}
	return raceview.HTML(w, t)
}
