package catalogue

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

// traces are all that the catalogue shows: each race and how it is survived.
func traces(t *testing.T) map[string]race.Trace {
	t.Helper()
	all := map[string]race.Trace{}
	for _, s := range All() {
		seen := must.Get(s.Trace())(t)
		survived := must.Get(s.Survivor())(t)
		all[s.Name], all[s.Name+", survived"] = seen, survived
	}
	return all
}

// Who wrote the key is the client after whose step another value stood on it.
func TestWriters(t *testing.T) {
	for name, trace := range traces(t) {
		if trace.Start.Value != "" && trace.Start.Each == nil && trace.Start.Writer != "somebody before" {
			t.Errorf("%s: at the start, %q by %q", name, trace.Start.Value, trace.Start.Writer)
		}
		was := []race.Server{trace.Start}
		if trace.Start.Each != nil {
			was = trace.Start.Each
		}
		for _, e := range trace.Events {
			is := []race.Server{e.Server}
			if e.Server.Each != nil {
				is = e.Server.Each
			}
			for i := range is {
				want := was[i].Writer
				switch {
				case is[i].Value == "" || is[i].Value == "gone":
					want = ""
				case e.Note == "a replica takes over": // with what there was before
					want = is[i].Writer
				case is[i].Raw != was[i].Raw || is[i].Value != was[i].Value:
					want = e.Who
				}
				if is[i].Writer != want || is[i].Value != "" && is[i].Value != "gone" && want == "" {
					t.Errorf("%s, step %d: %q is said to be written by %q, and was by %q", name, e.N, is[i].Value, is[i].Writer, want)
				}
				if token := regexp.MustCompile(`^«(C\d)[.»]`).FindStringSubmatch(is[i].Value); token != nil && !strings.Contains(is[i].Value, ", ") && // a set has several
					is[i].Writer != token[1] && is[i].Writer != "somebody before" {
					t.Errorf("%s, step %d: %q is said to be written by %q", name, e.N, is[i].Value, is[i].Writer)
				}
			}
			was = is
		}
	}
}

// No client is shown to hold the lock past the end of its lease, by its own clock.
func TestBeliefsEnd(t *testing.T) {
	for name, trace := range traces(t) {
		for _, e := range trace.Events {
			for who, b := range e.Belief {
				if b.State == race.Holds && (b.Until < 0 || b.Now >= b.Until) || b.State == race.RunOut && b.Now < b.Until {
					t.Errorf("%s, step %d: %s %s until %d, and it is %d", name, e.N, who, b.State, b.Until, b.Now)
				}
			}
		}
	}
}

// What the file says of a run is printed only on runs that are so.
func TestArgumentsAreOfTheRun(t *testing.T) {
	for _, s := range All() {
		home := must.Get(s.Trace())(t)
		for _, server := range append(oldredis.Versions(), oldredis.Profiles()...) {
			trace, err := s.On(server)
			if err != nil {
				continue // it can't be run there as it stands
			}
			same := true
			for i, e := range trace.Events {
				h := race.Event{}
				if i < len(home.Events) {
					h = home.Events[i]
				}
				same = same && e.Cmd == h.Cmd && e.Reply == h.Reply && e.Note == h.Note && e.Lost == h.Lost && e.Server.Value == h.Server.Value && e.Server.Dead == h.Server.Dead
				if written := s.Whys[e.N]; written != "" && e.Why == written && !same {
					t.Errorf("%s on %s, step %d: %s → %s is said to be so because %q", s.Name, server, e.N, e.Cmd, e.Reply, e.Why)
				}
			}
			if trace.Verdict == home.Verdict {
				continue
			}
			if reflect.DeepEqual(trace.Argument.Then, home.Argument.Then) || trace.Argument.Fix == home.Argument.Fix || trace.Argument.So == home.Argument.So {
				t.Errorf("%s on %s breaks %+v: %+v", s.Name, server, trace.Verdict, trace.Argument)
			}
			if !strings.Contains(trace.Argument.So, "on "+server) {
				t.Errorf("%s on %s: %q", s.Name, server, trace.Argument.So)
			}
		}
	}
}

// What is generated is English: no sentence ends twice, nothing is of nothing.
func TestEnglish(t *testing.T) {
	bad := regexp.MustCompile(`(?:[^.]|^)\.\.(?:$|[^./])|of nothing|made the key (t=|\S+ of)|  +\S|\bof \.| ,|,,|;;|\. *;`)
	say := func(name, what, text string) {
		if m := bad.FindString(text); m != "" {
			t.Errorf("%s, %s: %q in %q", name, what, m, text)
		}
	}
	for _, s := range All() {
		for _, server := range append(oldredis.Versions(), oldredis.Profiles()...) {
			trace, err := s.On(server)
			if err != nil {
				continue
			}
			for _, list := range [][]string{trace.Argument.Let, trace.Argument.Then, {trace.Argument.So, trace.Argument.Fix, trace.Title}} {
				for _, text := range list {
					say(s.Name+" on "+server, "argument", text)
				}
			}
			for _, e := range trace.Events {
				say(s.Name+" on "+server, "step", e.Why)
				if e.Why != "" && !slices.Contains([]byte(".?!"), e.Why[len(e.Why)-1]) {
					t.Errorf("%s on %s, step %d: %q has no end", s.Name, server, e.N, e.Why)
				}
			}
		}
	}
}
