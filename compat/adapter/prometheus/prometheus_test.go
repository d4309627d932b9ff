package prometheus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter/prometheus"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"

	"github.com/gomodule/redigo/redis"
)

// held uses locks in each way that is counted, and returns the registry.
func held(t *testing.T) *client.Registry {
	t.Helper()
	addr := realredis.Start(t)
	pool := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	t.Cleanup(func() { pool.Close() })
	r := client.NewPedanticRegistry()
	m := must.Get(prometheus.New(r, func(key string) string { name, _, _ := strings.Cut(key, ":"); return name }))(t)
	if _, err := prometheus.New(r, nil); err == nil {
		t.Error("registered twice")
	}
	locks := compat.New(pool, txlock.Renamed{}, compat.Options{Observer: m.Observe})
	ctx := context.Background()
	take := func(key string) *compat.Lock {
		t.Helper()
		return must.Get(locks.TryLock(ctx, key, time.Minute))(t)
	}
	first := take("job:1")
	if _, err := locks.TryLock(ctx, "job:1", time.Minute); !errors.Is(err, compat.ErrHeld) {
		t.Fatal(err)
	}
	must.Do(t, errors.Join(first.Extend(ctx, time.Minute), first.Release(ctx)))
	gone := take("job:2")
	c := pool.Get()
	defer c.Close()
	must.Get(c.Do("DEL", "job:2"))(t)
	if err := gone.Extend(ctx, time.Minute); !errors.Is(err, compat.ErrLost) {
		t.Fatal(err)
	}
	late := take("job:3")
	must.Get(c.Do("DEL", "job:3"))(t)
	if err := late.Release(ctx); !errors.Is(err, compat.ErrLost) {
		t.Fatal(err)
	}
	take("report")
	take("\xff:1")
	return r
}

func TestMetrics(t *testing.T) {
	r := held(t)
	want := `
# HELP setnxlock_acquisitions_total Locks that were obtained, by how: free, taken over, resolved, adopted, handed off.
# TYPE setnxlock_acquisitions_total counter
setnxlock_acquisitions_total{how="free",lock="job"} 3
setnxlock_acquisitions_total{how="free",lock="report"} 1
setnxlock_acquisitions_total{how="free",lock="�"} 1
# HELP setnxlock_attempts_total Single attempts to take a lock that did not obtain it, by outcome: held, not sent, unknown, refused.
# TYPE setnxlock_attempts_total counter
setnxlock_attempts_total{lock="job",outcome="held"} 1
# HELP setnxlock_held Locks that this process holds.
# TYPE setnxlock_held gauge
setnxlock_held{lock="job"} 0
setnxlock_held{lock="report"} 1
setnxlock_held{lock="�"} 1
# HELP setnxlock_lost_total Locks that were lost: another client may have worked at the same time.
# TYPE setnxlock_lost_total counter
setnxlock_lost_total{lock="job"} 1
setnxlock_lost_total{lock="report"} 0
setnxlock_lost_total{lock="�"} 0
# HELP setnxlock_releases_total Ends of holds that were asked for, by outcome: ok, lost, unknown; a hand-off is one.
# TYPE setnxlock_releases_total counter
setnxlock_releases_total{lock="job",outcome="lost"} 1
setnxlock_releases_total{lock="job",outcome="ok"} 1
# HELP setnxlock_renewals_total Extensions of held locks, by outcome: ok, failed (it is tried again).
# TYPE setnxlock_renewals_total counter
setnxlock_renewals_total{lock="job",outcome="ok"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "setnxlock_acquisitions_total", "setnxlock_attempts_total", "setnxlock_held",
		"setnxlock_lost_total", "setnxlock_releases_total", "setnxlock_renewals_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) != 0 {
		t.Errorf("against Prometheus' conventions: %v, %v", problems, err)
	}
}

// The file of setnxlock run --metrics-file is what Prometheus reads, by its conventions, and what it
// shares with the adapter is the same: name, type, help, labels and buckets.
func TestMetricsFile(t *testing.T) {
	dir := t.TempDir()
	program, file := filepath.Join(dir, "setnxlock"), filepath.Join(dir, "jobs.prom")
	build := exec.Command("go", "build", "-o", program, "./cmd/setnxlock")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := realredis.Start(t)
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command(program, append([]string{"run", "--metrics-file", file}, args...)...)
		cmd.Env = append(os.Environ(), "SETNXLOCK_REDIS="+address, "PATH="+dir+":"+os.Getenv("PATH"), "FILE="+file)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	run("job", "--", "sh", "-c", `setnxlock run --metrics-file "$FILE" --try job -- true; :`)
	run("--ttl", "3s", "job", "--", "sh", "-c", `until grep -q 'renewals_total{lock="job",outcome="ok"}' "$FILE"; do sleep 0.1; done`)
	text := must.Get(os.ReadFile(file))(t)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil || len(problems) != 0 {
		t.Errorf("against Prometheus' conventions: %v, %v", problems, err)
	}
	registered := must.Get(held(t).Gather())(t)
	shared := 0
	for _, want := range registered {
		got := families[want.GetName()]
		if got == nil {
			t.Errorf("the file lacks %s:\n%s", want.GetName(), text)
			continue
		}
		shared++
		if got.GetType() != want.GetType() || got.GetHelp() != want.GetHelp() {
			t.Errorf("%s: %v %q in the file, %v %q in the adapter", want.GetName(), got.GetType(), got.GetHelp(), want.GetType(), want.GetHelp())
		}
		if g, w := shape(got), shape(want); !slices.Equal(g, w) {
			t.Errorf("%s: %q in the file, %q in the adapter", want.GetName(), g, w)
		}
	}
	if shared != 8 || len(families) != shared+3 {
		t.Errorf("%d metrics are shared, of %d in the file:\n%s", shared, len(families), text)
	}
}

// shape is the names of a family's labels, and its buckets' bounds.
func shape(f *dto.MetricFamily) (all []string) {
	m := f.GetMetric()[0]
	for _, l := range m.GetLabel() {
		all = append(all, l.GetName())
	}
	slices.Sort(all)
	for _, b := range m.GetHistogram().GetBucket() {
		if !math.IsInf(b.GetUpperBound(), 1) {
			all = append(all, fmt.Sprint(b.GetUpperBound()))
		}
	}
	return all
}

// The dashboard, and the page with the alerts, name no metric that is not there.
func TestNamesInUse(t *testing.T) {
	families := must.Get(held(t).Gather())(t)
	there := map[string]bool{
		"setnxlock_repairs_total": true,                                                                                                       // nothing was repaired
		"setnxlock_runs_total":    true, "setnxlock_run_ended_timestamp_seconds": true, "setnxlock_run_waiting_since_timestamp_seconds": true, // of the command's file
	}
	for _, f := range families {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			there[f.GetName()+suffix] = true
		}
	}
	for _, name := range []string{"dashboard.json", "../../../docs/observing.md"} {
		text := must.Get(os.ReadFile(name))(t)
		if strings.HasSuffix(name, ".json") && !json.Valid(text) {
			t.Errorf("%s is no JSON", name)
		}
		used := regexp.MustCompile(`setnxlock_[a-z_]+`).FindAllString(string(text), -1)
		if len(used) < 6 {
			t.Errorf("%s uses %q", name, used)
		}
		for _, metric := range used {
			if !there[metric] {
				t.Errorf("%s uses %s, of %q", name, metric, slices.Sorted(maps.Keys(there)))
			}
		}
	}
}

// A wait and a hold have the exemplar that the caller's context leads to, or none.
func TestExemplars(t *testing.T) {
	addr := realredis.Start(t)
	pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer pool.Close()
	type trace struct{}
	for _, traced := range []bool{false, true} {
		r := client.NewPedanticRegistry()
		m := must.Get(prometheus.New(r, nil))(t)
		ctx, want := context.Background(), 0
		m.Exemplar = func(ctx context.Context) client.Labels {
			if id, ok := ctx.Value(trace{}).(string); ok {
				return client.Labels{"trace_id": id}
			}
			return nil
		}
		if traced {
			ctx, want = context.WithValue(ctx, trace{}, "17"), 1
		}
		locks := compat.New(pool, txlock.Renamed{}, compat.Options{Observer: m.Observe})
		must.Do(t, locks.Do(ctx, "k", time.Minute, func(context.Context) error { return nil }))
		for _, f := range must.Get(r.Gather())(t) {
			if f.GetType() != dto.MetricType_HISTOGRAM {
				continue
			}
			n := 0
			for _, b := range f.Metric[0].Histogram.Bucket {
				if l := b.GetExemplar().GetLabel(); len(l) == 1 && l[0].GetValue() == "17" {
					n++
				}
			}
			if n != want || f.Metric[0].Histogram.GetSampleCount() != 1 {
				t.Errorf("traced %v: %s has %d exemplars", traced, f.GetName(), n)
			}
		}
	}
}
