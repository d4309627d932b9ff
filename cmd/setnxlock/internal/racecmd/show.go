package racecmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/spf13/cobra"
)

const showHelp = `Runs a race of the catalogue and shows what happens: a row for each step, a
column for each client, the key last. The left edge of a client's column is what
that client believes:

  #  it holds the lock      :  it is paused            ?  it does not know
  .  its lease has run out  !  it acts on the lock     x  it is dead

Below stands why it happened, what prevents it, and the line that replays it.

The part of the name after the slash is enough if no other race has it.`

const showExamples = `  setnxlock race show getset/double-takeover
  setnxlock race show --step 5 double-takeover
  setnxlock race show --survives double-takeover
  setnxlock race show --server 1.2 setnx-on-volatile
  setnxlock race show --format html -o race.html double-takeover`

func (a *app) showCommand() *cobra.Command {
	var p picture
	var survives bool
	var server string
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show a race step by step",
		Long:              showHelp,
		Example:           showExamples,
		Annotations:       exit.Alone("  0      It was shown.\n" + raceStatus),
		ValidArgsFunction: scenarioArgs,
		Args:              one("the NAME of one race"),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := scenario(args[0])
			if err != nil {
				return err
			}
			t, err := showing(s, survives, server)
			if err != nil {
				return err
			}
			end := ""
			if !survives && server == "" {
				end = a.furtherReading(s)
			}
			return a.draw(&p, t, end)
		},
	}
	p.flags(cmd)
	cmd.Flags().BoolVar(&survives, "survives", false, "show how another lock survives the same race")
	cmd.Flags().StringVar(&server, "server", "", "run it on `VERSION`, where it may not happen")
	exit.Complete(cmd, "server", servers())
	return cmd
}

// one makes a command refuse any number of arguments but one.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s needs %s, not %d", cmd.Name(), what, len(args))
		}
		return nil
	}
}

// showing returns the requested trace of a race.
func showing(s catalogue.Scenario, survives bool, server string) (t race.Trace, err error) {
	switch {
	case survives && server != "":
		return t, exit.Because(exit.Wrong, errors.New("either --survives or --server, not both"), "")
	case survives && s.Survives.Schedule == "":
		return t, exit.Because(exit.Wrong, fmt.Errorf("no lock survives %s", s.Name), s.Instead)
	case survives:
		t, err = s.Survivor()
	case server != "":
		if err := chooseServer(server); err != nil {
			return t, err
		}
		t, err = s.On(server)
		if err != nil {
			err = fmt.Errorf("it can't be run on %s as it stands: %w", server, errors.Unwrap(err))
		}
	default:
		t, err = s.Trace()
	}
	return t, inRace(err)
}

// furtherReading stands below the text of a race.
func (a *app) furtherReading(s catalogue.Scenario) string {
	var b strings.Builder
	width := a.width()
	fmt.Fprintf(&b, "%-7ssetnxlock race play %s\n", "next", s.Name)
	if s.Survives.Schedule != "" {
		fmt.Fprintf(&b, "%-7ssetnxlock race show --survives %s\n", "", s.Name)
	}
	for _, text := range strings.Split(s.Text, "\n\n") {
		if text != "" {
			b.WriteString("\n" + screen.Paragraph("", text, width))
		}
	}
	if s.Exercise != nil {
		b.WriteString("\n" + screen.Paragraph("Exercise: ", s.Exercise.Text, width) + screen.Paragraph("Goal: ", s.Exercise.Goal(), width))
		fmt.Fprintf(&b, "%-10ssetnxlock race replay --exercise %s 'C1 ...'\n", "", s.Name)
	}
	return b.String()
}
