package textfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/internal/must"
)

// run is one run with a lock that is obtained after a second and held for a minute.
func run(t *testing.T, name, lock string, status int, events ...compat.Event) {
	t.Helper()
	f := Open(name, lock)
	for _, e := range events {
		f.Observe(e)
	}
	must.Do(t, f.Close(status))
}

func text(t *testing.T, name string) string {
	t.Helper()
	b := must.Get(os.ReadFile(name))(t)
	return regexp.MustCompile(`(ended_timestamp_seconds\{.*\}) .*`).ReplaceAllString(string(b), "$1 NOW")
}

var (
	refused  = compat.Event{Kind: compat.EventAttempt, Err: compat.ErrHeld}
	acquired = compat.Event{Kind: compat.EventAcquired, Lease: compat.Lease{How: "free"}, Took: time.Second}
	extended = compat.Event{Kind: compat.EventExtended}
	failed   = compat.Event{Kind: compat.EventFailed}
	lost     = compat.Event{Kind: compat.EventLost, Took: time.Minute}
	released = compat.Event{Kind: compat.EventReleased, Took: 2 * time.Millisecond}
)

// Counters go on from one run to the next, and from one lock to another.
func TestRunsAddUp(t *testing.T) {
	name := filepath.Join(t.TempDir(), "jobs.prom")
	run(t, name, "report", 0, refused, acquired, extended, released)
	run(t, name, "report", 76, acquired, failed, lost)
	run(t, name, "a\"b\\c\nd\xff", 75, refused)
	for _, line := range []string{
		`setnxlock_acquisitions_total{lock="report",how="free"} 2`,
		`setnxlock_attempts_total{lock="report",outcome="held"} 1`,
		`setnxlock_hold_seconds_bucket{lock="report",le="0.001"} 0`,
		`setnxlock_hold_seconds_bucket{lock="report",le="0.004"} 1`,
		`setnxlock_hold_seconds_bucket{lock="report",le="65.536"} 2`,
		`setnxlock_hold_seconds_bucket{lock="report",le="+Inf"} 2`,
		`setnxlock_hold_seconds_sum{lock="report"} 60.002`,
		`setnxlock_hold_seconds_count{lock="report"} 2`,
		`setnxlock_held{lock="report"} 0`,
		`setnxlock_lost_total{lock="report"} 1`,
		`setnxlock_renewals_total{lock="report",outcome="failed"} 1`,
		`setnxlock_renewals_total{lock="report",outcome="ok"} 1`,
		`setnxlock_releases_total{lock="report",outcome="ok"} 1`,
		`setnxlock_runs_total{lock="report",status="0"} 1`,
		`setnxlock_runs_total{lock="report",status="76"} 1`,
		`setnxlock_runs_total{lock="a\"b\\c\nd` + "\uFFFD" + `",status="75"} 1`,
		`setnxlock_run_ended_timestamp_seconds{lock="report"} NOW`,
		`setnxlock_run_waiting_since_timestamp_seconds{lock="report"} 0`,
		`# TYPE setnxlock_wait_seconds histogram`,
	} {
		if !strings.Contains(text(t, name), line+"\n") {
			t.Errorf("no %s", line)
		}
	}
	if strings.Count(text(t, name), "# TYPE setnxlock_runs_total counter\n") != 1 {
		t.Error("not one family of each name")
	}
	buckets := regexp.MustCompile(`hold_seconds_bucket.*le="(.*?)"`).FindAllStringSubmatch(text(t, name), -1)
	if len(buckets) != 13 || buckets[11][1] != "4194.304" || buckets[12][1] != "+Inf" {
		t.Errorf("buckets, not in order: %q", buckets)
	}
	all, err := os.ReadDir(filepath.Dir(name))
	if err != nil || len(all) != 2 { // itself and the one that is locked
		t.Errorf("left behind: %v, %v", all, err)
	}
	if s, err := os.Stat(name); err != nil || s.Mode().Perm()&0o044 != 0o044 {
		t.Errorf("the collector can't read it: %v, %v", s.Mode(), err)
	}
}

// While a run goes on the file says what it does, with no end to wait for.
func TestSeenAtOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "jobs.prom")
	f := Open(name, "report")
	waits := regexp.MustCompile(`waiting_since_timestamp_seconds\{lock="report"\} 1\.[0-9]+e\+09`)
	says := func(what string, ok func(text string) bool) {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			b, _ := os.ReadFile(name)
			if ok(string(b)) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("it does not say that %s:\n%s", what, b)
			}
		}
	}
	says("a run waits", waits.MatchString)
	f.Observe(acquired)
	held := `setnxlock_held{lock="report"} 1`
	says("the lock is held", func(text string) bool { return strings.Contains(text, held) })
	if waits.MatchString(text(t, name)) {
		t.Error("it says that a run waits")
	}
	must.Do(t, f.Close(0))
}

// Runs at the same time lose nothing of each other's, and a reader never sees half a file.
func TestRunsTakeTurns(t *testing.T) {
	name := filepath.Join(t.TempDir(), "jobs.prom")
	const runs, each = 6, 5
	var all sync.WaitGroup
	for r := range runs {
		all.Go(func() {
			for range each {
				f := Open(name, fmt.Sprint("lock", r%2))
				f.Observe(acquired)
				f.Observe(released)
				if err := f.Close(0); err != nil {
					t.Error(err)
				}
				if s := text(t, name); !strings.HasPrefix(s, "# HELP ") || !strings.HasSuffix(s, "\n") {
					t.Errorf("half a file: %q", s)
				}
			}
		})
	}
	all.Wait()
	for _, lock := range []string{"lock0", "lock1"} {
		for _, series := range []string{`acquisitions_total{lock="%s",how="free"} 15`, `runs_total{lock="%s",status="0"} 15`, `hold_seconds_count{lock="%s"} 15`} {
			if want := fmt.Sprintf(series, lock); !strings.Contains(text(t, name), want+"\n") {
				t.Errorf("no %s in\n%s", want, text(t, name))
			}
		}
	}
}

// What is no file of ours stays as it is.
func TestForeignFile(t *testing.T) {
	for _, foreign := range []string{"root:x:0:0::/root:/bin/sh\n", "node_load1{} 1\n", "setnxlock_held{lock=\"a\"} many\n", "# HELP other x\n"} {
		name := filepath.Join(t.TempDir(), "passwd")
		must.Do(t, os.WriteFile(name, []byte(foreign), 0o644))
		if err := Open(name, "report").Close(0); !errors.Is(err, ErrForeign) {
			t.Errorf("%q: %v", foreign, err)
		}
		if got := text(t, name); got != foreign {
			t.Errorf("%q became %q", foreign, got)
		}
	}
}

// What could not be written is written later.
func TestNothingIsForgotten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "textfiles")
	name := filepath.Join(dir, "jobs.prom")
	f := Open(name, "report")
	f.Observe(acquired)
	if err := f.write(); err == nil {
		t.Error("it wrote into nothing")
	}
	must.Do(t, os.Mkdir(dir, 0o755))
	if err := f.Close(0); err != nil || !strings.Contains(text(t, name), `setnxlock_acquisitions_total{lock="report",how="free"} 1`) {
		t.Errorf("%v:\n%s", err, text(t, name))
	}
}
