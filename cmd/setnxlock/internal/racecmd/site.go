package racecmd

import (
	"context"
	"errors"
	"os"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/mixing"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/spf13/cobra"
)

const siteHelp = `Writes all races into DIR as pages that a browser opens from the disk: an index
in the order of teaching, a page to step through for each race, one for how
another lock survives it, what each lock promises on your server under your
faults, and which two fleets may share a key. Nothing is loaded from elsewhere.

With --workbench it has the explorer as a page that runs in the browser. The go command
compiles that, from the clone of this module that the working directory is in.`

func (a *app) siteCommand() *cobra.Command {
	var s site
	cmd := &cobra.Command{
		Use:         "site DIR",
		Short:       "Write all races as a static web site",
		Long:        siteHelp,
		Example:     "  setnxlock race site /tmp/races && xdg-open /tmp/races/index.html",
		Annotations: exit.Alone("  0      It was written.\n" + raceStatus + "\n  130    It was interrupted."),
		Args:        one("one DIR"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(_ *cobra.Command, args []string) error { return a.site(args[0], s) },

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&s.workbench, "workbench", false, "with the workbench, which go compiles from a clone here")
	cmd.Flags().BoolVar(&s.compute, "compute", false,
		"compute anew what each lock promises, in minutes")
	return cmd
}

// A site is what of it is wanted.
type site struct {
	workbench bool
	compute   bool // what each lock promises is not taken from what is stored
}

func (a *app) site(dir string, s site) error {
	if err := os.MkdirAll(dir, 0o777); err != nil { // before anything is computed
		return exit.Because(exit.Software, err, "")
	}
	guarantees := pages.Stored
	if s.compute {
		m, err := a.matrix()
		if err != nil {
			return err
		}
		guarantees = pages.Guarantees(m)
	}
	var races []pages.Page
	for i, race := range catalogue.All() {
		p, err := page(race)
		if err != nil {
			return exit.Because(exit.Software, err, "")
		}
		if race.Star == 0 {
			p.Order = i
		}
		races = append(races, p)
	}
	link := ""
	if s.workbench {
		link = workbench.Page
	}
	if err := pages.Site(dir, link, guarantees, races, mixing.FleetsPage(link)); err != nil {
		return exit.Because(exit.Software, err, "")
	}
	if s.workbench {
		if err := a.workbench(dir, races); err != nil {
			return err
		}
	}
	a.say("%d races are in %s/index.html", len(races), dir)
	return nil
}

// workbench writes the page with the explorer.
func (a *app) workbench(dir string, races []pages.Page) error {
	switch err := workbench.Site(context.Background(), dir, races); {
	case errors.Is(err, workbench.ErrNoSource):
		return exit.Because(exit.Wrong, err, "run it in a clone, with Go installed, or leave --workbench out")
	case err != nil:
		return exit.Because(exit.Software, err, "")
	}
	a.say("the workbench is %s/%s", dir, workbench.Page)
	return nil
}

// page makes a race's page of the site.
func page(s catalogue.Scenario) (pages.Page, error) {
	t, err := s.Trace()
	p := pages.Page{Trace: t, Lecture: s.Lecture(), Order: s.Star, Where: s.Where()}
	if err != nil {
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
		p.Survives = &survives
	}
	return p, nil
}
