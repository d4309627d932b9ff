package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/workload"
)

// Every part runs, every number is there, and no section overlapped. What the
// numbers are is for a quiet machine.
func TestQuick(t *testing.T) {
	docs := t.TempDir()
	if err := run(context.Background(), []string{"-quick", "-docs", docs}); err != nil {
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
		for _, p := range parts {
			if !p.done(m) {
				t.Errorf("%s: no %s", m.Version, p.name)
			}
		}
		ran := 0
		for _, x := range append(m.Latency, m.Together...) {
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
		for _, x := range m.Throughput {
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
	if x.Sections == 0 || x.Rate <= 0 || x.Commands <= 0 || x.Trips <= 0 || x.Pair.N == 0 || x.Connections == 0 || x.PingRate <= 0 || x.Failed != 0 {
		t.Errorf("%s: %+v", x.Name, x)
	}
}

func overlaps(t *testing.T, x workload.Result) {
	t.Helper()
	if x.Overlaps != 0 {
		t.Errorf("%s: %d sections began while another had the key", x.Name, x.Overlaps)
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
		if got := atLeast(c.version, 2, 6, 12); got != c.want {
			t.Errorf("%q: %v", c.version, got)
		}
	}
}
