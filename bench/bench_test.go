package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/compat/workload"
)

// Every part runs, every number is there, and no section overlapped. What the
// numbers are is for a quiet machine.
func TestQuick(t *testing.T) { quick(t, false) }

func TestLongQuick(t *testing.T) {
	realredis.Long(t)
	quick(t, true)
}

// quick runs the parts that make test has, or the rest.
func quick(t *testing.T, rest bool) {
	var chosen []part
	var list []string
	for _, p := range parts {
		if slices.Contains([]string{"latency", "one-key", "held", "allocs", "command"}, p.name) != rest {
			chosen, list = append(chosen, p), append(list, p.name)
		}
	}
	names := strings.Join(list, ",")
	docs := t.TempDir()
	if err := run(context.Background(), []string{"-quick", "-docs", docs, "-only", names}); err != nil {
		t.Fatal(err)
	}
	r, err := load(filepath.Join(docs, "performance", "results.json"))
	if err != nil || len(r.Servers) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if !r.Quick || r.Machine.CPU == "" || r.Machine.Go == "" || len(r.Versions) < 4 || r.Took <= 0 {
		t.Errorf("%+v", r)
	}
	for _, m := range r.Servers {
		for _, p := range chosen {
			if !p.done(m) {
				t.Errorf("%s: no %s", m.Version, p.name)
			}
		}
		ran := 0
		for _, x := range slices.Concat(m.Latency, m.Distant, m.Together) {
			if x.Err == "" {
				ran++
				check(t, x)
				if x.OverPings() <= 0 {
					t.Errorf("%s: no PINGs: %+v", x.Name, x)
				}
			}
		}
		if ran < 4 {
			t.Errorf("%s: only %d locks ran", m.Version, ran)
		}
		for _, x := range slices.Concat(m.Throughput, m.Crowd) {
			if x.Err == "" {
				check(t, x)
			}
		}
		for _, c := range append(m.OneKey, m.Sweep...) {
			for _, x := range c.Results {
				overlaps(t, x)
			}
		}
		for _, x := range m.Waiter {
			overlaps(t, x)
			if x.Err == "" && (x.HandOff.N == 0 || x.Commands == 0) {
				t.Errorf("%s: %+v", x.Name, x)
			}
		}
		for _, f := range m.Held {
			if f.Err != "" || f.Renewals == 0 || f.Lost != 0 || f.Commands <= 0 || f.Writes <= 0 {
				t.Errorf("%+v", f)
			}
		}
		if c := m.Command; c != nil && c.Err == "" {
			for _, name := range []string{redisCLI, runVersion, runNamed, runAuto} {
				if over, ok := c.over(name); !ok || over <= 0 {
					t.Errorf("%s: %+v", name, c)
				}
			}
			if c.Size == 0 || runtime.GOOS == "linux" && c.Resident == 0 {
				t.Errorf("%+v", c)
			}
		}
		for _, a := range m.Allocs {
			if a.Err == "" && (a.Allocs < 1 || a.Bytes < 1) {
				t.Errorf("%+v", a)
			}
		}
	}
}

func check(t *testing.T, x workload.Result) {
	t.Helper()
	overlaps(t, x)
	few := x.Sections < 64 // on a machine that has no time: what they sent may have been sent, and answered, before the counting
	if x.Sections == 0 || x.Rate <= 0 || !few && (x.Commands <= 0 || x.Trips <= 0) || x.Pair.N == 0 || x.Connections == 0 || x.PingRate <= 0 || x.Failed != 0 {
		t.Errorf("%s: %+v", x.Name, x)
	}
}

func overlaps(t *testing.T, x workload.Result) {
	t.Helper()
	if x.Overlaps != 0 {
		t.Errorf("%s: %d sections began while another had the key", x.Name, x.Overlaps)
	}
}

// A part that is measured anew leaves the others as they are, and the document is
// written from what there is.
func TestOnly(t *testing.T) {
	docs := t.TempDir()
	for range 2 {
		if err := run(context.Background(), []string{"-quick", "-docs", docs, "-only", "allocs"}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(docs, "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Performance", "-quick", "## Targets", "at most 16 allocations", strings.TrimSpace(explanations), "`make bench`"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the document", want)
		}
	}
	if strings.Contains(string(text), "## Many held locks") {
		t.Error("a chapter about what was not measured")
	}
	r, err := load(filepath.Join(docs, "performance", "results.json"))
	if err != nil || len(r.Servers) == 0 || r.Servers[0].Latency != nil || len(r.Servers[0].Allocs) == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.Remove(filepath.Join(docs, "performance.md")); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), []string{"-write", "-docs", docs}); err != nil {
		t.Error(err)
	}
	if again, err := os.ReadFile(filepath.Join(docs, "performance.md")); err != nil || string(again) != string(text) {
		t.Errorf("written anew it differs: %v\n%s", err, again)
	}
}

// The targets are judged by what was measured.
func TestVerdicts(t *testing.T) {
	spread := func(us int) workload.Spread {
		return workload.Spread{N: 1, P50: time.Duration(us) * 1000, P99: time.Duration(us) * 2000}
	}
	one := func(name string, us int, rate float64) workload.Result {
		return workload.Result{Name: name, Sections: 10, Trips: 2, Pair: spread(us), HandOff: spread(us), Pings: spread(100), Rate: rate, Ideal: rate / 1000, Commands: 1, Least: 8, Most: 10, Connections: 2}
	}
	r := &Report{Servers: []*Measured{{
		Version:    "7.0.0",
		Latency:    []workload.Result{one(renamedPinned, 109, 1), one(getsetPinned, 120, 1), one(byHand, 105, 1), {Name: setLua, Err: "not here"}},
		Throughput: []workload.Result{one(twoPings, 10, 9000), one(byHand, 20, 8000), one(renamedPinned, 100, 950), one(setLua+shared, 90, 2100), one(redsyncName, 100, 1000), one("redislock", 80, 900)},
		Crowd:      []workload.Result{one(twoPings, 10, 9000), one(setLua+shared, 90, 2400), one(redsyncName, 100, 1000)},
		OneKey:     []Contest{{Processes: 1, Goroutines: 64, Results: []workload.Result{one(handSignal, 10, 960), one(soloSignal, 100, 900), one("redislock", 50, 890)}}},
		Sweep:      []Contest{{Processes: 1, Goroutines: 1000, Results: []workload.Result{one(handSignal, 10, 960)}}},
		Waiter:     []workload.Result{one(handSignal, 300, 1), one("redislock", 200, 1)},
		Held:       []workload.Footprint{{Locks: 1}, {Locks: 1000, Heap: 1e6, CPU: 10}, {Locks: 100000, Heap: 2e8, CPU: 10, Writes: 1, Goroutines: 100000}},
		Allocs:     []Allocs{{Name: renamedPinned, Allocs: 20}, {Name: getsetPinned, Allocs: 21}},
	}, {
		Version:    "2.4.0",
		Throughput: []workload.Result{one(twoPings, 50, 1000), one(renamedPinned, 100, 150), {Name: redsyncName, Err: "no EVALSHA"}},
	}, {
		Version:    "2.0.5",
		Throughput: []workload.Result{one(twoPings, 50, 1000), one("getset:listed"+shared, 100, 115)},
	}}}
	var got []string
	for _, v := range verdicts(r) {
		word := "missed"
		if v.met {
			word = "met"
		}
		got = append(got, word+" "+v.measured)
	}
	want := []string{
		"met tx:renamed, pinned: 2.00", "met getset:guarded, pinned: 2.00",
		"met tx:renamed, pinned: 1.09 ×", "met 1.04 ×", "missed getset:guarded, pinned: 1.20 ×", "missed 1.14 ×",
		"missed 20", "missed 21",
		"met set:lua, shared: 2.10 × redsync", "missed 180 µs; redislock 160 µs",
		"missed set:lua, shared: 2.40 × redsync", "met 180 µs; redsync 200 µs", "met set:lua, shared: 2",
		"missed tx:renamed, pinned: 1.35 × that on 7.0.0", "met getset:listed, shared: 1.04 × that on 7.0.0",
		"missed 2000 bytes after 1000", "missed 100000 goroutines", "met 0.0 µs of processor time after 0.0", "missed 1.000 writes for each",
		"missed 96.0 %", "met 1.00", "missed 0.80 (8 and 10)", "met 0.00 ×", "met 20 µs; redislock 100 µs", "met 90.0 % of the ideal; redislock 89.0 %", "met 1.00",
		"missed 600 µs; redislock 400 µs",
		"met ours: hand-off, signal: 2",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is kept of a number is what could be the same in another run.
func TestRounded(t *testing.T) {
	in := `{"name":"at 127.0.0.1:123456","p50_ns":150098,"rate":98765.4321,"ideal":0.98765,"least":7,"tiny":1.23456e-05,"last":-123456}`
	want := `{"name":"at 127.0.0.1:123456","p50_ns":150100,"rate":98770,"ideal":0.9877,"least":7,"tiny":0.00001235,"last":-123500}`
	if got := string(number.ReplaceAllFunc([]byte(in), rounded)); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A server that can't be had is an error, and so is a part that there is not.
func TestWrong(t *testing.T) {
	docs := t.TempDir()
	if err := run(context.Background(), []string{"-quick", "-docs", docs, "-only", "nonsense"}); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Error(err)
	}
	if err := run(context.Background(), []string{"-write", "-docs", docs}); err == nil || !strings.Contains(err.Error(), "results.json") {
		t.Error(err)
	}
	t.Setenv("SETNXLOCK_TEST_REDIS", "127.0.0.1:1")
	if err := run(context.Background(), []string{"-quick", "-docs", docs}); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(docs, "performance", "results.json")); err == nil {
		t.Error("results of nothing")
	}
}

func TestAtLeast(t *testing.T) {
	for _, c := range []struct {
		version string
		want    bool
	}{{"2.6.12", true}, {"2.6.11", false}, {"2.8.0", true}, {"7.0.15", true}, {"2.4.18", false}, {"2.6", false}, {"3", true}, {"", false}} {
		if got := atLeast(c.version, "2.6.12"); got != c.want {
			t.Errorf("%q: %v", c.version, got)
		}
	}
}
