package racecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/mixing"
	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/spf13/cobra"
)

const guaranteesHelp = `Explores every lock of this library on every version of Redis and every proxy,
under every fault, with two and with three clients, and prints what holds and
what breaks, as the site shows it: "holds" within the bounds of race
explore; the promises that break, with a shortest schedule for each; "refused"
where the lock itself declines to work. It takes a minute on two cores.`

const guaranteesExamples = `  setnxlock race guarantees > guarantees.md
  setnxlock race guarantees --json -o g.json
  setnxlock race site --guarantees g.json DIR
  setnxlock race guarantees --json | jq .states`

const guaranteesStatus = `  0      It was computed.
  2      Somewhere there was no room for all states: nothing is proved there.
` + raceStatus + `
  130    It was interrupted.`

func (a *app) guaranteesCommand() *cobra.Command {
	var asJSON bool
	var file string
	cmd := &cobra.Command{
		Use:         "guarantees",
		Short:       "Show what each lock promises on each server",
		Long:        guaranteesHelp,
		Example:     guaranteesExamples,
		Annotations: alone(guaranteesStatus),
		Args:        usageErrors(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			m, err := a.matrix()
			if err != nil {
				return err
			}
			if err := a.write(file, func(w io.Writer) error {
				if asJSON {
					return answer.Write(w, matrixJSON(m))
				}
				skews, err := mixing.Skews(context.Background())
				if err != nil {
					return err
				}
				_, err = io.WriteString(w, view.Guarantees(m)+mixing.Clocks(skews))
				return err
			}); err != nil {
				return err
			}
			if slices.ContainsFunc(m.Cells, func(c race.Cell) bool { return c.Bound != "" }) {
				return exit(statusBounded)
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE` in place of stdout")
	return cmd
}

// matrix computes the guarantees, and tells on a terminal how far it is.
func (a *app) matrix() (race.Matrix, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Most of what is allocated is short-lived, and what lives is small beside a machine's memory.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var at atomic.Pointer[standing]
	at.Store(&standing{})
	wipe := live(screen.New(a.errs), func(_ int, took time.Duration) string { return at.Load().line(took, heap()) })
	states := 0
	m, err := race.Guarantees(ctx, func(done, of int, c race.Cell) {
		states += c.States
		at.Store(&standing{done, of, states})
	})
	wipe()
	switch {
	case ctx.Err() != nil:
		a.say("interrupted: this proves nothing")
		return m, exit(statusSignal + int(syscall.SIGINT))
	case err != nil:
		return m, &Failure{statusSoftware, err, ""}
	}
	return m, nil
}

// A standing is how far the guarantees are.
type standing struct {
	done, of int // cells
	states   int
}

// line says it. The estimate takes the cells to come for as long as those that are done: the long ones come
// first, so it rather falls than grows.
func (s *standing) line(took time.Duration, memory uint64) string {
	line := fmt.Sprintf("guarantees  %s of %s cells  %s states  %s/s  %d MB", view.Thousands(s.done), view.Thousands(s.of), view.Thousands(s.states),
		rate(s.states, took), memory>>20)
	if s.done > 0 && s.done < s.of {
		line += fmt.Sprintf("  about %.0f s more", took.Seconds()*float64(s.of-s.done)/float64(s.done))
	}
	return line
}

// heap is how many bytes of objects there are.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// A jsonMatrix is the guarantees as machines get them.
type jsonMatrix struct {
	States  int        `json:"states"`
	Seconds float64    `json:"seconds"`
	Cells   []jsonCell `json:"cells"`
}

type jsonCell struct {
	Algorithm string      `json:"algorithm"`
	Server    string      `json:"server"`
	Fault     string      `json:"fault"`
	Clients   int         `json:"clients"`
	Verdict   string      `json:"verdict"` // "holds", "breaks", "refused", "bound"
	Refused   string      `json:"refused,omitempty"`
	Bounds    string      `json:"bounds"`
	States    int         `json:"states"`
	Bound     string      `json:"bound,omitempty"` // of what there was no more
	Breaks    []jsonBreak `json:"breaks,omitempty"`
}

type jsonBreak struct {
	Invariant string `json:"invariant"`
	Steps     int    `json:"steps"`
	Text      string `json:"text"`
	Schedule  string `json:"schedule"`
}

func matrixJSON(m race.Matrix) jsonMatrix {
	j := jsonMatrix{States: m.States, Seconds: m.Elapsed.Seconds(), Cells: []jsonCell{}}
	for _, c := range m.Cells {
		cell := jsonCell{
			Algorithm: c.Algorithm, Server: c.Server, Fault: c.Fault, Clients: c.Clients,
			Verdict: "holds", Refused: c.Refused, Bounds: c.Bounds, States: c.States, Bound: c.Bound,
		}
		switch {
		case c.Refused != "":
			cell.Verdict = "refused"
		case len(c.Breaks) > 0:
			cell.Verdict = "breaks"
		case c.Bound != "":
			cell.Verdict = "bound"
		}
		for _, b := range c.Breaks {
			cell.Breaks = append(cell.Breaks, jsonBreak{Invariant: b.Invariant, Steps: b.Steps, Text: b.Text, Schedule: b.Schedule})
		}
		j.Cells = append(j.Cells, cell)
	}
	return j
}

// readMatrix reads what --json has written.
func readMatrix(file string) (m race.Matrix, err error) {
	b, err := os.ReadFile(file)
	var j jsonMatrix
	if err == nil {
		err = json.Unmarshal(b, &j)
	}
	if err == nil && len(j.Cells) == 0 {
		err = fmt.Errorf("%s has no cells: it is no output of race guarantees --json", file)
	}
	if err != nil {
		return m, &Failure{statusUsage, err, ""}
	}
	m.States, m.Elapsed = j.States, time.Duration(j.Seconds*float64(time.Second))
	for _, c := range j.Cells {
		cell := race.Cell{
			Algorithm: c.Algorithm, Server: c.Server, Fault: c.Fault, Clients: c.Clients,
			Refused: c.Refused, Bounds: c.Bounds, States: c.States, Bound: c.Bound,
		}
		for _, b := range c.Breaks {
			cell.Breaks = append(cell.Breaks, race.Break{Invariant: b.Invariant, Steps: b.Steps, Text: b.Text, Schedule: b.Schedule})
		}
		m.Cells = append(m.Cells, cell)
	}
	return m, nil
}

// siteTables are the guarantees as a site shows them: a table for each
// algorithm, with a row for each fault and a column for all servers on which
// the algorithm promises the same.
func siteTables(m race.Matrix) ([]view.SiteTable, error) {
	var tables []view.SiteTable
	for _, algorithm := range race.Guaranteed() {
		columns := alike(m, algorithm)
		if columns == nil {
			continue // not computed
		}
		t := view.SiteTable{Title: algorithm, Note: race.Describe(algorithm, knownLocks()) + "."}
		for _, c := range columns {
			t.Columns = append(t.Columns, span(c.servers))
		}
		for i, fault := range race.FaultsOf(algorithm) {
			row := view.SiteRow{Name: fault.Name + ": " + fault.Says}
			for _, c := range columns {
				cell, err := c.fields[i].site(m)
				if err != nil {
					return nil, err
				}
				row.Cells = append(row.Cells, cell)
			}
			t.Rows = append(t.Rows, row)
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// nearby is how many states around a counterexample its page has.
const nearby = 80

// A column is servers on which an algorithm promises the same, with a field for
// each fault.
type column struct {
	servers []string
	fields  []field
	text    string
}

// alike are the columns of an algorithm's table.
func alike(m race.Matrix, algorithm string) []column {
	var columns []column
	for _, server := range servers() {
		c, known := column{servers: []string{server}}, false
		for _, fault := range race.FaultsOf(algorithm) {
			f := fieldOf(m, algorithm, server, fault.Name)
			text, _ := f.verdict()
			c.fields, c.text, known = append(c.fields, f), c.text+text+"|", known || len(f) > 0
		}
		like := slices.IndexFunc(columns, func(other column) bool { return other.text == c.text })
		switch {
		case !known:
		case like >= 0:
			columns[like].servers = append(columns[like].servers, server)
			for i, f := range c.fields {
				columns[like].fields[i] = append(columns[like].fields[i], f...)
			}
		default:
			columns = append(columns, c)
		}
	}
	return columns
}

// A field of a table is the cells of one algorithm and fault: with two clients
// and with three, on one server or on several that are alike.
type field []race.Cell

func fieldOf(m race.Matrix, algorithm, server, fault string) (f field) {
	for _, c := range m.Cells {
		if c.Algorithm == algorithm && c.Server == server && c.Fault == fault {
			f = append(f, c)
		}
	}
	return f
}

// verdict is a field's text and class.
func (f field) verdict() (text, class string) {
	if len(f) == 0 {
		return "", "" // nothing is known
	}
	var broken []string
	for _, c := range f {
		if c.Refused != "" {
			return "refused", ""
		}
		for _, b := range c.Breaks {
			broken = append(broken, b.Invariant)
		}
	}
	switch {
	case len(broken) > 0:
		slices.Sort(broken)
		return "breaks " + strings.Join(slices.Compact(broken), ", "), "breaks"
	case slices.ContainsFunc(f, func(c race.Cell) bool { return c.Bound != "" }):
		return "not proved", "unknown"
	}
	return "holds", "holds"
}

// site is a field with its proof: the bounds within which it holds, or the
// shortest way to break the worst of what breaks.
func (f field) site(m race.Matrix) (view.SiteCell, error) {
	text, class := f.verdict()
	cell := view.SiteCell{Text: text, Class: class}
	switch text {
	case "":
		return cell, nil
	case "refused":
		cell.Bounds = f[0].Refused
		return cell, nil
	}
	var worst *race.Break
	var of race.Cell
	worse := func(a, b race.Break) bool {
		order := race.Invariants()
		return cmp.Or(cmp.Compare(slices.Index(order, a.Invariant), slices.Index(order, b.Invariant)), cmp.Compare(a.Steps, b.Steps)) < 0
	}
	for _, c := range f {
		for _, b := range c.Breaks {
			if worst == nil || worse(b, *worst) {
				worst, of = &b, c
			}
		}
	}
	if worst == nil {
		cell.Bounds = f.bounds()
		return cell, nil
	}
	t, err := race.ReplaySchedule(worst.Schedule, knownLocks())
	if err != nil {
		return cell, err
	}
	if t, err = race.WithFork(t, nearby, knownLocks()); err != nil {
		return cell, err
	}
	t.Argument.Fix = fixOf(m, of, worst.Invariant)
	cell.Trace, cell.Bounds = &t, fmt.Sprintf("%s, in %d steps", worst.Text, worst.Steps)
	return cell, err
}

// bounds are all that a field was explored in, with as many states as the server
// with the fewest and the one with the most made of it.
func (f field) bounds() string {
	var order []string
	fewest, most := map[string]int{}, map[string]int{}
	for _, c := range f {
		if _, ok := most[c.Bounds]; !ok {
			order = append(order, c.Bounds)
			fewest[c.Bounds] = c.States
		}
		fewest[c.Bounds] = min(fewest[c.Bounds], c.States)
		most[c.Bounds] = max(most[c.Bounds], c.States)
	}
	for i, b := range order {
		states := view.Thousands(most[b])
		if fewest[b] != most[b] {
			states = view.Thousands(fewest[b]) + " to " + states
		}
		order[i] = b + ": " + states + " states"
	}
	return strings.Join(order, "; ")
}
