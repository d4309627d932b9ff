package racecmd

import (
	"errors"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/monitor"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/spf13/cobra"
)

const monitorHelp = `Reads what "redis-cli MONITOR" has printed (Redis 2.6 and later), and tells who
held a lock when, where two held it at once, who removed whose, and what each
client does to take and to release it. Lines that are not MONITOR's
(warnings, a line that is cut off) are skipped and counted; what a container's
log puts before each line is passed over.

MONITOR prints no replies: the commands run again, at their times, on an
embedded Redis, on a key that was free at first. A client is taken to hold the
lock until it removes it or its lease is over, by the server's clock. In a hash,
as Redisson's locks are, the field is the holder. From a command on that the
embedded Redis lacks, nothing is judged.

  redis-cli MONITOR > FILE     slows the server: stop it after a few seconds

A FILE of - is stdin. The last lines are for the explorer: a schedule that leads
to where the log breaks the lock, or ends, if a lock sends what was seen.`

const monitorExamples = `  setnxlock race monitor monitor.log
  setnxlock race monitor --key lock.report monitor.log
  docker logs -t watcher 2>&1 | setnxlock race monitor -
  setnxlock race monitor --format html -o race.html monitor.log`

const monitorStatus = `  0      Nothing was broken, as far as the log tells.
  1      Two held the lock at once, or one removed another's.
  2      Nothing broke, but a part of the log could not be judged.
` + raceStatus

func (a *app) monitorCommand() *cobra.Command {
	var p picture
	var o monitor.Options
	cmd := &cobra.Command{
		Use:         "monitor FILE|-",
		Short:       "Find in a MONITOR log who held the lock when",
		Long:        monitorHelp,
		Example:     monitorExamples,
		Annotations: exit.Alone(monitorStatus),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("monitor needs one FILE, or - for stdin")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := a.read(args[0])
			if err != nil {
				return exit.Because(exit.Wrong, err, "")
			}
			if o.Server != "" {
				if err := chooseServer(o.Server); err != nil {
					return err
				}
			}
			return a.monitored(&p, string(text), o)
		},
	}
	p.flags(cmd)
	cmd.Flags().StringVar(&o.Key, "key", "", "look at key `NAME`; default: the likeliest lock")
	cmd.Flags().StringVar(&o.Server, "server", "", "run the commands on `VERSION`; default 8.6")
	exit.Complete(cmd, "key", nil)
	exit.Complete(cmd, "server", append(oldredis.Versions(), oldredis.Today()...))
	return cmd
}

// monitored shows a log's findings.
func (a *app) monitored(p *picture, text string, o monitor.Options) error {
	log, err := monitor.Read(text, o)
	if err != nil {
		return exit.Because(exit.Wrong, err, "")
	}
	if err := a.draw(p, log.Trace, a.logged(log)); err != nil {
		return err
	}
	switch {
	case log.Trace.Verdict.Violated != "":
		return exit.With(statusBroken)
	case log.Unjudged != "":
		return exit.With(statusBounded)
	}
	return nil
}

// logged writes the text below the picture of a log.
func (a *app) logged(log monitor.Log) string {
	var b strings.Builder
	b.WriteString("\n")
	for _, s := range log.Says {
		b.WriteString(screen.Paragraph("", screen.Escaped(s), a.width()))
	}
	b.WriteString("\n")
	for _, f := range log.Follows {
		s := fmt.Sprintf("%s (%s) %s", f.Client, f.Address, strings.Join(f.Does, ", "))
		switch {
		case len(f.Does) == 0:
			s += "does not ask for it"
		case len(f.Like) > 0:
			s += ": as " + strings.Join(f.Like, ", ")
		default:
			s += ": as no lock that is known here"
		}
		b.WriteString(screen.Paragraph("", screen.Escaped(s)+".", a.width()))
	}
	if len(log.Keys) > 1 {
		b.WriteString(screen.Paragraph("", screen.Escaped("Keys that are asked for as locks are: "+strings.Join(log.Keys, ", "))+".", a.width()))
	}
	if w := log.Way; w != nil {
		fmt.Fprintf(&b, "\nto step %d  %s\n", w.Step, race.Trace{Schedule: w.Schedule}.ReplayLine())
		fmt.Fprintf(&b, "go on  %s#%s\n", workbench.Page, pages.Fragment(w.Schedule))
	}
	return b.String()
}
