package simulate

import (
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

var (
	forSo = flag.Duration("for", 0, "simulate for so long, not a fixed number of seeds")
	seed  = flag.Uint64("seed", 1, "the first seed")
	step  = flag.Uint64("step", 1, "the next ones are so far apart: several processes share the work")
	first = flag.Bool("first", false, "end with the first seed that fails, and do not shrink it")
	only  = flag.Bool("only", false, "that seed alone, told line by line")
	runs  = flag.Uint64("runs", fixed, "how many seeds to try, without -for")
	many  = flag.Int("sections", 12, "that each goroutine of a run tries to have")
	lock  = flag.String("lock", "", "this lock alone, as Kinds has it")
)

// fixed is how many seeds every test run tries.
const fixed = 250

// TestSimulation runs seed after seed. What breaks is shrunk, and told.
func TestSimulation(t *testing.T) {
	var all Report
	began := time.Now()
	for n := uint64(0); ; n++ {
		if *forSo > 0 && time.Since(began) > *forSo || *forSo == 0 && n == *runs || *only && n == 1 || all.Runs > 0 && len(all.Broken) > 20 {
			break
		}
		c := Draw(*seed + n**step)
		if *lock != "" {
			k, ok := KindNamed(*lock)
			if !ok {
				t.Fatalf("no lock %q", *lock)
			}
			c.Kind, c.At = k, nil
			for i := range k.Servers {
				c.At = append(c.At, k.Versions[(int(n)+i)%len(k.Versions)])
			}
			c = c.fitting()
		}
		c.Trace, c.Sections = *only, *many
		r := Run(t, c)
		all.Add(r)
		for _, line := range r.Lines {
			fmt.Println(line)
		}
		switch {
		case len(r.Broken) > 0 && *first:
			t.Fatalf("%v\n\t%s\nrun %d, section %d", c, r.Broken[0], all.Runs, all.Sections)
		case len(r.Broken) > 0:
			tell(t, c, r)
		}
	}
	t.Logf("%v:\n%s", time.Since(began).Round(time.Second), all.Table())
	if *forSo > 0 {
		t.Logf("figure: %d sections, %d broken", all.Sections, len(all.Broken))
	}
	if *forSo > 0 || !*only && *lock == "" && !t.Failed() {
		happened(t, all)
		if !*first { // what looks for mutants has methods of theirs
			called(t, all)
		}
	}
}

// tell says what was broken, by the shortest run that breaks it.
func tell(t *testing.T, c Config, r Report) {
	t.Errorf("%v\n\t%s", c, r.Broken[0])
	short, r := Shrink(t, c, 200)
	if len(r.Broken) == 0 {
		t.Errorf("\tnot every time: goroutines that woke at the same moment ran in another order")
		return
	}
	last := r.Lines[max(0, len(r.Lines)-60):]
	for i, line := range r.Lines {
		if strings.Contains(line, "BROKEN") {
			last = r.Lines[max(0, i-60) : i+1]
			break
		}
	}
	t.Errorf("shrunk to %v, faults %v:\n%s", short, r.Faults, strings.Join(last, "\n"))
}

// happened checks that everything did that is to be survived: a run in which nothing goes wrong
// proves nothing.
func happened(t *testing.T, r Report) {
	t.Helper()
	var must []string
	for f := arrives; f < fates; f++ {
		must = append(must, "message: "+f.String())
	}
	for _, m := range misfortunes {
		must = append(must, "misfortune: "+m.name)
	}
	must = append(must,
		"Lock: nil", "TryLock: nil", "TryLock: ErrHeld", "Do: nil", "Adopt: nil", "AdoptHandle: nil", "AdoptHandle: ErrLost", "Lock: ErrUnknown", "Lock: DeadlineExceeded", "Lock: Canceled",
		"Extend: nil", "Extend: ErrLost", "Extend: ErrInvalid", "Handoff: nil", "Detach: nil", "Release: nil", "Release: ErrLost", "Release: ErrReleased",
		"Release: ErrUnknown", "ReleaseHandle: nil", "ReleaseHandle: ErrLost", "ReleaseToken: nil", "ReleaseToken: ErrLost", "Inspect: nil",
		"Downgrade: nil", "Close: nil",
		"event: extended", "event: failed", "event: lost", "event: repaired")
	if *forSo > 0 { // the fixed seeds have it once or twice, or, by the order of goroutines, never
		must = append(must, "Downgrade: ErrLost")
	}
	for _, what := range must {
		if r.Counts[what] == 0 {
			t.Errorf("it never happened: %s", what)
		}
	}
}

// called checks that nothing of the API is left out: each method of Locker and Lock was called, each of the Options was
// set, each Kind had its turn.
func called(t *testing.T, r Report) {
	t.Helper()
	counted := func(what string) bool {
		for name := range r.Counts {
			if strings.HasPrefix(name, what) {
				return true
			}
		}
		return false
	}
	for _, of := range []reflect.Type{reflect.TypeFor[*compat.Locker](), reflect.TypeFor[*compat.Lock]()} {
		for i := range of.NumMethod() {
			if name := of.Method(i).Name; !counted(name + ": ") {
				t.Errorf("nobody has called %v.%s", of, name)
			}
		}
	}
	options := reflect.TypeFor[compat.Options]()
	for i := range options.NumField() {
		if name := options.Field(i).Name; r.Counts["option: "+name] == 0 {
			t.Errorf("nobody has set Options.%s", name)
		}
	}
	for _, k := range Kinds() {
		if r.Counts["lock: "+k.Name] == 0 {
			t.Errorf("nobody has taken %s", k.Name)
		}
	}
}

// A seed is one run: twice the same, word by word, but for what is random. The runtime is free in
// the order in which it runs goroutines that wake at the same moment; where that matters to what
// follows, two runs part: connections are dialled, and a server is checked, beside the step that asked for it.
func TestLongDeterministic(t *testing.T) {
	realredis.Long(t)
	if realredis.UnderRace() {
		t.Skip("the race detector changes the order of goroutines on purpose")
	}
	const runs = 40
	parted := 0
	for s := range uint64(runs) {
		c := Draw(s + 1000)
		c.Trace = true
		first, again := numbered(Run(t, c).Lines), numbered(Run(t, c).Lines)
		for i := range min(len(first), len(again)) {
			if first[i] != again[i] {
				t.Logf("%v\n\tline %d of %d, %d:\n\t%s\n\t%s", c, i, len(first), len(again), first[i], again[i])
				parted++
				break
			}
		}
	}
	t.Logf("figure: %d of %d runs were not the same twice, %d at most", parted, runs, runs/4)
	if parted > runs/4 {
		t.Errorf("%d of %d runs were not the same twice", parted, runs)
	}
}

var random = regexp.MustCompile(`[0-9a-f]{32}|\d{10}\.\d{15}`)

// numbered replaces what is random by its number of appearance.
func numbered(lines []string) []string {
	seen := map[string]string{}
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = random.ReplaceAllStringFunc(line, func(s string) string {
			if seen[s] == "" {
				seen[s] = fmt.Sprintf("«%d»", len(seen))
			}
			return seen[s]
		})
	}
	slices.SortStableFunc(out, func(a, b string) int { // goroutines that wake at the same moment run in any order
		ta, _, _ := strings.Cut(a, "  ")
		tb, _, _ := strings.Cut(b, "  ")
		if ta == tb {
			return strings.Compare(a, b)
		}
		return 0
	})
	return out
}
