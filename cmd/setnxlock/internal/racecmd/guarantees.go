package racecmd

import (
	"context"
	"io"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/mixing"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/spf13/cobra"
)

const guaranteesHelp = `Explores every lock of this library on every version of Redis and every proxy,
under every fault, with two and with three clients, and prints what holds and
what breaks, as the site shows it: "holds" within the bounds of race
explore; the promises that break, with a shortest schedule for each; "refused"
where the lock itself declines to work. It takes some seven minutes on two cores, and 2 GB of memory.`

const guaranteesExamples = `  setnxlock race guarantees > guarantees.md
  setnxlock race guarantees --json | jq .states`

const guaranteesStatus = `  0      It was computed.
  2      Somewhere the memory ran out: nothing is proved there.
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
		Annotations: exit.Alone(guaranteesStatus),
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
				_, err = io.WriteString(w, pages.Guarantees(m)+mixing.Clocks(skews))
				return err
			}); err != nil {
				return err
			}
			if slices.ContainsFunc(m.Cells, func(c race.Cell) bool { return c.Bound != "" }) {
				return exit.With(statusBounded)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE` in place of stdout")
	return cmd
}

// matrix computes the guarantees, and tells on a terminal how far it is.
func (a *app) matrix() (m race.Matrix, err error) {
	// Most of what is allocated is short-lived, and what lives is small beside a machine's memory.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var done atomic.Int32
	err = a.interruptible(func(ctx context.Context) (err error) {
		defer screen.New(a.errs).Progress("guarantees", func() int { return int(done.Load()) }, len(race.Cells()))()
		m, err = race.Guarantees(ctx, func(race.Cell) { done.Add(1) })
		return err
	})
	return m, err
}

// A jsonMatrix is the guarantees as machines get them.
type jsonMatrix struct {
	States  int        `json:"states"`
	Seconds float64    `json:"seconds"`
	Cells   []jsonCell `json:"cells"`
}

type jsonCell struct {
	race.Cell
	Verdict string `json:"verdict"` // "holds", "breaks", "refused", "bound"
}

func matrixJSON(m race.Matrix) jsonMatrix {
	j := jsonMatrix{States: m.States, Seconds: m.Elapsed.Seconds(), Cells: []jsonCell{}}
	for _, c := range m.Cells {
		cell := jsonCell{c, "holds"}
		switch {
		case c.Refused != "":
			cell.Verdict = "refused"
		case len(c.Breaks) > 0:
			cell.Verdict = "breaks"
		case c.Bound != "":
			cell.Verdict = "bound"
		}
		j.Cells = append(j.Cells, cell)
	}
	return j
}
