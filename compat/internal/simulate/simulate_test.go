package simulate

import (
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

var (
	forSo = flag.Duration("for", 0, "simulate for this long, not a fixed number of seeds")
	seed  = flag.Uint64("seed", 1, "the first seed")
	step  = flag.Uint64("step", 1, "the distance between two seeds, for several processes that share the work")
	first = flag.Bool("first", false, "end with the first seed that fails, and do not shrink it")
	only  = flag.Bool("only", false, "run only the first seed, and print its trace")
	runs  = flag.Uint64("runs", fixed, "the number of seeds, without -for")
	many  = flag.Int("sections", 12, "the critical sections that each goroutine tries")
	lock  = flag.String("lock", "", "only this lock, by its name in Kinds")
)

// fixed is the number of seeds of every test run.
const fixed = 300

// TestSimulation runs seed after seed, and reports each broken promise with the shortest run that breaks it.
func TestSimulation(t *testing.T) {
	var all Report
	began := time.Now()
	for n := uint64(0); ; n++ {
		if *forSo > 0 && time.Since(began) > *forSo || *forSo == 0 && n == *runs || *only && n == 1 || all.Runs > 0 && len(all.Broken) > 20 {
			break
		}
		c := FromSeed(*seed + n**step)
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
			reportBroken(t, c, r)
		}
	}
	t.Logf("%v:\n%s", time.Since(began).Round(time.Second), all.Table())
	if *forSo > 0 {
		t.Logf("figure: %d sections, %d broken", all.Sections, len(all.Broken))
	}
	if *forSo > 0 || !*only && *lock == "" && !t.Failed() {
		happened(t, all)
		called(t, all)
	}
}

// reportBroken reports a broken promise with the trace of the shortest run that breaks it.
func reportBroken(t *testing.T, c Config, r Report) {
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

// happened requires every fault and every result at least once: runs without faults prove nothing.
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
	if *forSo > 0 { // depending on the order of goroutines, the fixed seeds may never have it
		must = append(must, "Downgrade: ErrLost")
	}
	for _, what := range must {
		if r.Counts[what] == 0 {
			t.Errorf("it never happened: %s", what)
		}
	}
}

// called requires the runs to call each method of Locker and Lock, to set each of the Options, and to use each Kind.
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
				t.Errorf("no run has called %v.%s", of, name)
			}
		}
	}
	options := reflect.TypeFor[compat.Options]()
	for i := range options.NumField() {
		if name := options.Field(i).Name; r.Counts["option: "+name] == 0 {
			t.Errorf("no run has set Options.%s", name)
		}
	}
	for _, k := range Kinds() {
		if r.Counts["lock: "+k.Name] == 0 {
			t.Errorf("no run has taken %s", k.Name)
		}
	}
}

// On one processor, where make simulate runs and repeats seeds, two runs of a seed have the same trace, but for random
// values. The runtime may run goroutines that wake at the same moment in any order. Where that order matters, two runs
// differ: dials and checks of a server run beside the step that started them.
func TestLongDeterministic(t *testing.T) {
	realredis.Long(t)
	if realredis.UnderRace() {
		t.Skip("the race detector changes the order of goroutines on purpose")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const runs = 40
	differ := 0
	for s := range uint64(runs) {
		c := FromSeed(s + 1000)
		c.Trace = true
		first, again := numbered(Run(t, c).Lines), numbered(Run(t, c).Lines)
		for i := range min(len(first), len(again)) {
			if first[i] != again[i] {
				t.Logf("%v\n\tline %d of %d, %d:\n\t%s\n\t%s", c, i, len(first), len(again), first[i], again[i])
				differ++
				break
			}
		}
	}
	t.Logf("figure: %d of %d runs were not the same twice, %d at most", differ, runs, runs/5)
	if differ > runs/5 {
		t.Errorf("%d of %d runs were not the same twice", differ, runs)
	}
}

var random = regexp.MustCompile(`[0-9a-f]{32}|\d{10}\.\d{15}`)

// numbered replaces random values by the numbers of their first appearance.
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
