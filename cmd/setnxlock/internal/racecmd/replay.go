package racecmd

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/spf13/cobra"
)

const replayHelp = `Runs a schedule and shows what happens, as "race show" does. A schedule is one
line that needs nothing else:

  tx:classic 2.4 2x1 : C1 C1 +9.898s C2 C1- C1.crash

the algorithm, the version of Redis, clients x attempts, what is not as usual
(skew=0s,3s), and a word for each step:

  C1         client 1's next command    C1.crash        it dies
  C1*        and all of its attempt     C1.pause        it stops, until
  C1-        its reply is lost          C1.resume       it goes on
  C1.sever   it never arrives           C1.clock+3s     its clock jumps
  C1.cut     the connection breaks      +9s             time passes
             between two commands       redis.restart   it comes back empty
             of one write               redis.failover  without the last write
  C1.delay   it is on its way, and the  redis.evict     it drops the key
             connection given up; with
  C1.arrive  it arrives

Of the three servers of redlock, S2.restart and S2.evict befall one, and with
S2.down it answers no more.

The lock may be written out in place of its name, as the workbench does it:
form/SETNX,KEY,TOKEN;0=held;EXPIRE,KEY,TTL;1=mine;release;DEL,KEY

A FILE is a scenario as the catalogue has them (algorithm and schedule are
enough), a trace as --format json writes it, or holds a schedule; - is stdin.

The last line is where the workbench goes on from there (race site --workbench);
an address of the workbench can stand in place of its SCHEDULE.

With --exercise, the words are an answer to that race's exercise.`

const replayExamples = `  setnxlock race replay 'tx:classic 2.4 2x1 : C1 C1.crash'
  setnxlock race replay --format mermaid mylock.txt
  setnxlock race show --format json double-takeover | setnxlock race replay -
  setnxlock race replay --exercise double-takeover 'C1 C1 C2 C2 C1 C1 C2 C2'`

const replayStatus = `  0      No invariant was broken; with --exercise: the answer is right.
  1      One was; with --exercise: the answer is not right yet.
` + raceStatus

func (a *app) replayCommand() *cobra.Command {
	var p picture
	var exercise string
	cmd := &cobra.Command{
		Use:         "replay SCHEDULE|FILE|-",
		Short:       "Run a schedule, a scenario or a trace again",
		Long:        replayHelp,
		Example:     replayExamples,
		Annotations: exit.Alone(replayStatus),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && exercise == "" {
				return errors.New("replay needs a SCHEDULE or a FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			// A schedule that was not quoted comes in pieces.
			text := strings.Join(args, " ")
			if cmd.Flags().Changed("exercise") {
				return a.mark(&p, exercise, text)
			}
			t, err := a.again(text)
			if err != nil {
				return inRace(err)
			}
			if err := a.draw(&p, t, "go on  "+workbench.Page+"#"+pages.Fragment(t.Schedule)+"\n"); err != nil {
				return err
			}
			return verdict(t)
		},
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&exercise, "exercise", "", "judge the words as an answer to race `NAME`'s exercise")
	completeList(cmd, "exercise", func() (list []string) {
		for _, s := range catalogue.All() {
			if s.Exercise != nil {
				list = append(list, s.Name)
			}
		}
		return list
	})
	return cmd
}

// rerun runs a schedule, with its forms.
func rerun(schedule string) (race.Trace, error) {
	locks, err := locksOf(schedule)
	if err != nil {
		return race.Trace{}, err
	}
	return race.ReplaySchedule(schedule, locks)
}

// locksOf returns knownLocks, and the schedule's forms.
func locksOf(schedule string) (race.Locks, error) {
	c, _, err := race.ParseSchedule(schedule)
	if err != nil {
		return nil, err
	}
	return catalogue.With(workbench.Locks(), c.Algorithm)
}

// pasted reads the schedule in the address of a state of the workbench, and leaves other text alone.
func pasted(text string) string {
	_, fragment, _ := strings.Cut(text, "#")
	if s, err := url.PathUnescape(fragment); err == nil && strings.Contains(s, " :") {
		return s
	}
	return text
}

// again runs a text, or the file of this name.
func (a *app) again(text string) (race.Trace, error) {
	name := ""
	if b, err := a.read(text); err == nil {
		name, text = strings.TrimSuffix(filepath.Base(text), ".txt"), string(b)
	} else if text = pasted(text); !strings.Contains(text, " ") {
		return race.Trace{}, exit.Because(exit.Wrong, fmt.Errorf("%s: neither a file nor a schedule", text), "see setnxlock race replay --help")
	}
	text = strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, "{"):
		t, err := race.ReadTrace(strings.NewReader(text))
		if err != nil || t.Schedule == "" { // a simulated run has none, but a seed: it is shown as it was
			return t, err
		}
		return rerun(t.Schedule)
	case name == "" || !strings.Contains(text, "\n") && strings.Contains(text, " : "):
		return rerun(text)
	}
	s, err := catalogue.Parse(name, []byte(text))
	if err != nil {
		return race.Trace{}, err
	}
	s.Run.Config.Locks = workbench.Locks()
	t, err := s.Trace()
	if err == nil && s.Expect.Violated != "" && s.Expect != t.Verdict {
		a.say("%s expects %s to break at step %d: it was otherwise", name, s.Expect.Violated, s.Expect.Step)
	}
	return t, err
}

func (a *app) read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(a.in)
	}
	return os.ReadFile(file)
}

// mark judges words as an answer to a race's exercise, and without words prints the exercise.
func (a *app) mark(p *picture, name, words string) error {
	s, err := scenario(name)
	if err != nil {
		return err
	}
	if s.Exercise == nil {
		return exit.Because(exit.Wrong, fmt.Errorf("%s has no exercise", s.Name), "setnxlock race play "+s.Name)
	}
	if words == "" {
		_, err := io.WriteString(a.out, screen.Paragraph("Exercise: ", s.Exercise.Text, a.width())+screen.Paragraph("Goal: ", s.Exercise.Goal(), a.width()))
		return err
	}
	// The words count. What stands before the colon is the race's own.
	_, choices, err := race.ParseSchedule(words)
	if err != nil {
		return inRace(err)
	}
	t, wrong := s.Check(race.Words(choices))
	if wrong != nil && len(t.Events) < len(choices) {
		return inRace(wrong) // it can't be run
	}
	says := "right: that answers the exercise of " + s.Name
	if wrong != nil {
		says = "not yet: " + inRace(wrong).Error()
	}
	if err := a.draw(p, t, "\n"+screen.Paragraph("", says, a.width())); err != nil {
		return err
	}
	if wrong != nil {
		return exit.With(statusBroken)
	}
	return nil
}
