package catalogue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue/broken"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// columns is how wide a timeline of the catalogue may be.
const columns = 100

// Timelines returns what the scenario's file has below its lines: the timeline
// of the race and of its survivor, without what stands above them already.
func (s Scenario) Timelines() (seen, survived string, err error) {
	t, err := s.Trace()
	if err != nil {
		return "", "", err
	}
	seen = bare(t)
	if s.Survives.Schedule == "" {
		return seen, "", nil
	}
	t, err = s.Survivor()
	return seen, bare(t), err
}

func bare(t race.Trace) string {
	t.Scenario, t.Title, t.Objective, t.Sources, t.Instead = "", "", "", nil, ""
	return view.Timeline(t, view.TimelineOptions{Width: columns})
}

// File is the name of the scenario's page: "getset-double-takeover.md".
func (s Scenario) File() string { return strings.ReplaceAll(s.Name, "/", "-") + ".md" }

// Page is the scenario as a page of Markdown.
func (s Scenario) Page() (string, error) {
	t, err := s.Trace()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("<!-- Written by go test ./compat/race/catalogue -update from scenarios/%s.txt. -->", s.Name)
	p("# %s\n", s.Name)
	p("%s. %s\n", upper(s.Title), s.neighbours())
	p("> **Objective:** %s\n", s.Objective)
	if s.Text != "" {
		p("%s\n", s.Text)
	}
	p("%s\n", s.runs())
	p("## What happens\n\n```text\n%s```\n", table(t))
	for _, e := range t.Events {
		p("%d. %s", e.N, step(e))
	}
	p("\n```mermaid\n%s```\n", view.Mermaid(t))
	p("## Why\n")
	for _, part := range [][2]string{{"Let", join(t.Argument.Let)}, {"Then", join(t.Argument.Then)}, {"So", t.Argument.So}} {
		if part[1] != "" {
			p("**%s** %s.\n", part[0], strings.TrimSuffix(part[1], "."))
		}
	}
	p("## What helps\n\n%s\n\n**This library:** %s\n", t.Argument.Fix, s.Instead)
	if err := s.surviving(p); err != nil {
		return "", err
	}
	s.exercising(p)
	p("## Sources\n")
	for _, source := range s.Sources {
		if source.URL == "" {
			p("- %s", source.Name)
		} else {
			p("- [%s](%s)", source.Name, source.URL)
		}
	}
	return b.String(), nil
}

// join makes one sentence of parts, of which one that ends in a comma goes on.
func join(parts []string) string {
	var b strings.Builder
	for i, part := range parts {
		b.WriteString(part)
		switch {
		case i == len(parts)-1:
		case strings.HasSuffix(part, ","):
			b.WriteString(" ")
		default:
			b.WriteString("; ")
		}
	}
	return b.String()
}

// neighbours says where in the course the race stands.
func (s Scenario) neighbours() string {
	if s.Star == 0 {
		return "[All races](README.md)."
	}
	text := fmt.Sprintf("Race %d of the [course](README.md)", s.Star)
	for _, other := range catalogue() {
		if other.Star == s.Star+1 {
			return text + fmt.Sprintf("; next: [%s](%s).", other.Name, other.File())
		}
	}
	return text + ", the last one."
}

// runs says what is run, and where it happens.
func (s Scenario) runs() string {
	var list []string
	for _, name := range strings.Split(s.Run.Config.Algorithm, "+") {
		says := race.Describe(name, Locks())
		if strings.HasPrefix(says, "the same") { // as the one above it in a list of them
			list = append(list, "`"+name+"`")
		} else {
			list = append(list, fmt.Sprintf("`%s` (%s)", name, says))
		}
	}
	return fmt.Sprintf("Run with %s on Redis %s; it happens so on %s. It breaks **%s**%s.",
		strings.Join(list, " and "), s.Run.Config.Server, span(s.Servers), s.Expect.Violated, s.also())
}

// span is a list of servers, with its versions as a range if they are one.
func span(servers []string) string {
	versions, profiles := oldredis.Versions(), oldredis.Profiles()
	var list []string
	for i := 0; i < len(servers); {
		n := 1
		at := slices.Index(versions, servers[i])
		for at >= 0 && i+n < len(servers) && at+n < len(versions) && servers[i+n] == versions[at+n] {
			n++
		}
		if n > 2 {
			list = append(list, servers[i]+" to "+servers[i+n-1])
			i += n
			continue
		}
		list = append(list, servers[i])
		i++
	}
	if len(servers) == len(versions)+len(profiles) {
		return "every server (" + strings.Join(list, ", ") + ")"
	}
	return strings.Join(list, ", ")
}

func (s Scenario) also() string {
	var list []string
	for _, v := range s.Also {
		list = append(list, fmt.Sprintf("%s (step %d)", v.Violated, v.Step))
	}
	if list == nil {
		return ""
	}
	return ", and " + strings.Join(list, " and ")
}

// who is what a run is run with, for a sentence.
func (r Run) who() string {
	text := "`" + strings.ReplaceAll(r.Config.Algorithm, "+", "` and `") + "`"
	if r.Config.Fence {
		text += " with a fence"
	}
	return text
}

func (s Scenario) surviving(p func(string, ...any)) error {
	if s.Survives.Schedule == "" {
		return nil
	}
	t, err := s.Survivor()
	if err != nil {
		return err
	}
	p("The same race, survived by %s:\n\n```text\n%s```\n", s.Survives.who(), table(t))
	return nil
}

func (s Scenario) exercising(p func(string, ...any)) {
	p("Play it, and see it step by step:\n\n```sh\nsetnxlock race play %s\nsetnxlock race show %s\n```\n", s.Name, s.Name)
	if s.Exercise == nil {
		return
	}
	p("## Exercise\n\n%s\n\n```sh\nsetnxlock race replay --exercise %s '%s'   # put your schedule in place of this one\n```\n",
		s.Exercise.Text, s.Name, s.Run.Schedule)
}

// table is the part of a timeline that is a table, with the replay line.
func table(t race.Trace) string {
	t.Argument = race.Argument{}
	return bare(t)
}

// step is an event as a sentence.
func step(e race.Event) string {
	what := e.Note
	if e.Cmd != "" {
		what = "`" + e.Cmd + "`"
		switch {
		case e.Lost != "":
			what += " ⇢ " + e.Lost + " lost"
		case e.Reply != "":
			what += " → " + e.Reply
		}
		if e.Note != "" {
			what += " (" + e.Note + ")"
		}
	}
	text := fmt.Sprintf("**%s** %s. %s", e.Who, what, e.Why)
	if e.Violation != nil {
		text += fmt.Sprintf(" **%s: %s.**", e.Violation.Invariant, e.Violation.Text)
	}
	return text
}

// Index returns the page that links to all others.
func Index() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("<!-- Written by go test ./compat/race/catalogue -update. -->")
	p("# Races\n")
	p("Each is a file of compat/race/catalogue/scenarios that runs real code on the embedded Redis of the version named: a test that fails")
	p("when the race is gone, or breaks something else first. `setnxlock race show NAME` prints one, `race play NAME` lets you bring it about,")
	p("`race site DIR` writes all of them as pages to step through.\n")
	p("**exclusion**: at no moment do two clients hold the lock, each by its own clock. **fencing**: the storage accepts no write of a")
	p("superseded holder. **ownership**: no client changes another's lock, and what reports success has succeeded. **progress**: when all")
	p("are idle or dead, a client can acquire in time. **accuracy**: the library reports lost, held and unknown if and only if it is so.\n")
	p("## The course\n\nEach race adds one idea. The last ones are of newer locks.\n")
	p("|  | race | objective | breaks |\n|--:|---|---|---|")
	for _, s := range catalogue() {
		if s.Star > 0 {
			p("| %d | [%s](%s) | %s | %s |", s.Star, s.Name, s.File(), s.Objective, s.Expect.Violated)
		}
	}
	p("\n## The others\n")
	p("|  race | objective | breaks | survives |\n|---|---|---|---|")
	for _, s := range catalogue() {
		if s.Star == 0 {
			p("| [%s](%s) | %s | %s | %s |", s.Name, s.File(), s.Objective, s.Expect.Violated, s.Survives.who())
		}
	}
	p("\n## Locks that exist to be broken\n")
	p("|  name | what it is |\n|---|---|")
	for _, o := range others {
		if strings.HasPrefix(o.name, "other/") {
			p("| %s | %s |", o.name, o.says)
		}
	}
	for _, l := range broken.Locks() {
		p("| %s | %s |", l.Name, l.Says)
	}
	return b.String()
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
