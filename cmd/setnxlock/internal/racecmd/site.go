package racecmd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/setnxlock/setnxlock/compat/race/workbench"
	"github.com/spf13/cobra"
)

const siteHelp = `Writes all races into DIR as pages that a browser opens from the disk: an index
in the order of teaching, a page to step through for each race, one for how
another lock survives it, and what each lock promises on which server, where
each cell links to its proof. Nothing is loaded from elsewhere.`

func (a *app) siteCommand() *cobra.Command {
	var without, workbench bool
	var file string
	cmd := &cobra.Command{
		Use:         "site DIR",
		Short:       "Write all races as a static web site",
		Long:        siteHelp,
		Example:     "  setnxlock race site /tmp/races && xdg-open /tmp/races/index.html",
		Annotations: alone("  0      It was written.\n" + raceStatus + "\n  130    It was interrupted."),
		Args: usageErrors(func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("site needs one DIR, not %d", len(args))
			}
			return nil
		}),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.site(args[0], file, without, workbench) },

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().StringVar(&file, "guarantees", "", "show what each lock promises from `FILE`, an output of race guarantees --json, in place of minutes of computing")
	cmd.Flags().BoolVar(&workbench, "workbench", false, "with the workbench, which runs the explorer in the browser; the go command compiles it from the clone of this module that the working directory is in")
	cmd.Flags().BoolVar(&without, "no-guarantees", false, "leave out what each lock promises")
	return cmd
}

func (a *app) site(dir, file string, without, bench bool) error {
	if err := os.MkdirAll(dir, 0o777); err != nil { // before anything is computed
		return &Failure{statusSoftware, err, ""}
	}
	var tables []view.SiteTable
	if !without {
		m, err := a.promises(file)
		if err != nil {
			return err
		}
		if tables, err = siteTables(m); err != nil {
			return &Failure{statusSoftware, err, ""}
		}
	}
	var pages []view.Page
	for i, s := range catalogue.All() {
		p, err := page(s)
		if err != nil {
			return &Failure{statusSoftware, err, ""}
		}
		if s.Star == 0 {
			p.Order = i
		}
		pages = append(pages, p)
	}
	link := ""
	if bench {
		link = workbench.Page
	}
	if err := view.Site(dir, link, pages, tables...); err != nil {
		return &Failure{statusSoftware, err, ""}
	}
	if bench {
		if err := a.workbench(dir, pages); err != nil {
			return err
		}
	}
	a.say("%d races are in %s/index.html", len(pages), dir)
	return nil
}

// workbench writes the page that runs the explorer, with the course as its levels.
func (a *app) workbench(dir string, pages []view.Page) error {
	var levels []*workbench.Level
	for _, p := range pages {
		if l := workbench.LevelOf(p); l != nil && p.Starred {
			levels = append(levels, l)
		}
	}
	switch err := workbench.Site(context.Background(), dir, levels); {
	case errors.Is(err, workbench.ErrNoSource):
		return &Failure{statusUsage, err, "run it in a clone, with Go installed, or leave --workbench out"}
	case err != nil:
		return &Failure{statusSoftware, err, ""}
	}
	a.say("the workbench is %s/%s", dir, workbench.Page)
	return nil
}

// promises are the guarantees, computed or from a file.
func (a *app) promises(file string) (race.Matrix, error) {
	if file != "" {
		return readMatrix(file)
	}
	return a.matrix()
}

// page is a race as the site has it.
func page(s catalogue.Scenario) (view.Page, error) {
	t, err := s.Trace()
	p := view.Page{Trace: t, Starred: s.Star > 0, Order: s.Star}
	if err != nil {
		return p, err
	}
	if p.Trace, err = race.WithFork(t, race.ForkStates, knownLocks()); err != nil {
		return p, err
	}
	if s.Exercise != nil {
		p.Exercise = s.Exercise.Text
	}
	if s.Survives.Schedule != "" {
		survives, err := s.Survivor()
		if err != nil {
			return p, err
		}
		if survives, err = race.WithFork(survives, nearby, knownLocks()); err != nil {
			return p, err
		}
		p.Survives = &survives
	}
	return p, nil
}
