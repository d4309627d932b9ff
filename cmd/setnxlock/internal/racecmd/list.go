package racecmd

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/spf13/cobra"
)

const listHelp = `Lists the races of the catalogue: first the course, in the order in which each
adds one idea to those before it, then all others. A race breaks one of

  exclusion    two clients hold the lock at the same time
  fencing      the storage behind the lock accepts an earlier holder's write
  ownership    a client changed another's lock, or an operation reported a
               success that was none
  progress     no client can take the lock any more
  accuracy     a client was told "lost" or "held", and it was not so
  fence-order  the fences of successive holders don't grow
  fairness     a client waits and asks, and others come in before it for ever

SHOWN ON has the versions of Redis and the proxies on which it was shown, with one lock.`

const listExamples = `  setnxlock race list
  setnxlock race list --long getset
  setnxlock race list --json | jq -r '.races[].name'`

func (a *app) listCommand() *cobra.Command {
	var asJSON, long bool
	cmd := &cobra.Command{
		Use:         "list [GROUP]",
		Short:       "List the known races",
		Long:        listHelp,
		Example:     listExamples,
		Annotations: exit.Alone("  0      They were listed.\n" + raceStatus),
		Args:        cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			all := catalogue.All()
			if len(args) == 1 {
				if err := choose("group", args[0], catalogue.Groups()); err != nil {
					return err
				}
				all = slices.DeleteFunc(all, func(s catalogue.Scenario) bool { return s.Group() != args[0] })
			}
			if asJSON {
				return answer.Write(a.out, struct {
					Races []jsonRace `json:"races"`
				}{listed(all)})
			}
			return a.write("", func(w io.Writer) error { return printList(w, all, long, min(a.width(), 100)) })
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return catalogue.Groups(), cobra.ShellCompDirectiveNoFileComp
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&long, "long", "l", false, "say what each is about, and its objective")
	return cmd
}

// printList writes the table for people.
func printList(w io.Writer, all []catalogue.Scenario, long bool, width int) error {
	names := len("NAME")
	for _, s := range all {
		names = max(names, len(s.Name))
	}
	row := func(n, name, breaks, on string) {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%2s  %-*s  %-9s  %s", n, names, name, breaks, on), " "))
	}
	row("", "NAME", "BREAKS", "SHOWN ON")
	course := len(all) > 0 && all[0].Star > 0
	for _, s := range all {
		if course && s.Star == 0 {
			fmt.Fprintln(w)
			course = false
		}
		n := ""
		if s.Star > 0 {
			n = fmt.Sprint(s.Star)
		}
		row(n, s.Name, cmp.Or(s.Expect.Violated, "-"), cut(span(s.Servers), width-names-17))
		if long {
			fmt.Fprint(w, screen.Paragraph("    ", s.Title, width))
			if s.Objective != "" {
				fmt.Fprint(w, screen.Paragraph("    Objective: ", s.Objective, width))
			}
			fmt.Fprintln(w)
		}
	}
	_, err := fmt.Fprintln(w, "\nSee one with: setnxlock race show NAME")
	return err
}

// span shortens a list of servers: versions as ranges.
func span(on []string) string {
	versions := oldredis.Versions()
	var parts []string
	whole := len(versions)
	for i := 0; i < len(versions); i++ {
		if !slices.Contains(on, versions[i]) {
			continue
		}
		first := i
		for i+1 < len(versions) && slices.Contains(on, versions[i+1]) {
			i++
		}
		switch {
		case i-first+1 == whole:
			parts = append(parts, "all versions")
		case i == first:
			parts = append(parts, versions[i])
		case first == 0:
			parts = append(parts, "to "+versions[i])
		case i == whole-1:
			parts = append(parts, "from "+versions[first])
		default:
			parts = append(parts, versions[first]+"-"+versions[i])
		}
	}
	for _, p := range append(oldredis.Profiles(), oldredis.Today()...) {
		if slices.Contains(on, p) {
			parts = append(parts, p)
		}
	}
	if len(on) == len(versions)+len(oldredis.Profiles()) {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// cut keeps a text within a column.
func cut(s string, width int) string {
	if r := []rune(s); len(r) > width && width > 0 {
		return strings.TrimRight(string(r[:width-1]), " ,") + "…"
	}
	return s
}

// A jsonRace is a race of the list as machines get it.
type jsonRace struct {
	Name      string   `json:"name"`
	Star      int      `json:"star,omitempty"`
	Title     string   `json:"title"`
	Objective string   `json:"objective,omitempty"`
	Algorithm string   `json:"algorithm"`
	Breaks    string   `json:"breaks,omitempty"`
	Step      int      `json:"step,omitempty"`
	Also      []string `json:"also_breaks,omitempty"` // at other steps
	Servers   []string `json:"servers"`
	Survives  string   `json:"survives,omitempty"`
	Exercise  string   `json:"exercise,omitempty"`
}

func listed(all []catalogue.Scenario) []jsonRace {
	list := []jsonRace{}
	for _, s := range all {
		j := jsonRace{
			Name: s.Name, Star: s.Star, Title: s.Title, Objective: s.Objective, Algorithm: s.Run.Config.Algorithm,
			Breaks: s.Expect.Violated, Step: s.Expect.Step, Servers: s.Servers, Survives: s.Survives.Config.Algorithm,
		}
		for _, v := range s.Breaking() {
			if v.Violated != s.Expect.Violated {
				j.Also = append(j.Also, v.Violated)
			}
		}
		if s.Exercise != nil {
			j.Exercise = s.Exercise.Text
		}
		list = append(list, j)
	}
	return list
}
