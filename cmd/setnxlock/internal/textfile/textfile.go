// Package textfile keeps the metrics of setnxlock's runs in a file that node_exporter's textfile
// collector reads. The metrics have the names of compat/adapter/prometheus; a few describe the runs.
//
// A run is short, a counter is not: each run adds to the figures in the file. Runs that share a file
// take turns by a lock on FILE.lock. Readers see the file before or after a write, never half of it.
package textfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// families are the metrics, in the order of the file. A test of compat/adapter/prometheus compares the shared
// ones with the registered ones there.
var families = []struct{ name, kind, help string }{
	{"setnxlock_acquisitions_total", "counter", "Locks that were obtained, by how: free, taken over, resolved, adopted, handed off."},
	{"setnxlock_attempts_total", "counter", "Single attempts to take a lock that did not obtain it, by outcome: held, not sent, unknown, refused."},
	{"setnxlock_wait_seconds", "histogram", "From the call to the lock, of locks that were obtained."},
	{"setnxlock_hold_seconds", "histogram", "How long locks were held, to their release or their loss."},
	{"setnxlock_held", "gauge", "Locks that this process holds."},
	{"setnxlock_lost_total", "counter", "Locks that were lost: another client may have worked at the same time."},
	{"setnxlock_renewals_total", "counter", "Extensions of held locks, by outcome: ok, failed (it is tried again)."},
	{"setnxlock_releases_total", "counter", "Ends of holds that were asked for, by outcome: ok, lost, unknown; a hand-off is one."},
	{"setnxlock_repairs_total", "counter", "Keys that nothing would have ended and that were given an end."},
	{"setnxlock_runs_total", "counter", "Runs that have ended, by the exit status of setnxlock."},
	{"setnxlock_run_ended_timestamp_seconds", "gauge", "When the last run ended."},
	{"setnxlock_run_waiting_since_timestamp_seconds", "gauge", "Since when a run waits for the lock; 0: none does."},
}

var (
	// ErrForeign means that a file has lines in it that are none of ours: it is not written over.
	ErrForeign = errors.New("it holds other lines than metrics of setnxlock")

	errIrregular = errors.New("it is not a regular file")
	errLate      = errors.New("the file can't be written in time")
)

const (
	every   = 5 * time.Second // at most between an attempt or a renewal and its place in the file
	patient = 2 * time.Second // with another run that is writing
	atEnd   = 5 * time.Second // of Close, with all that may hang
)

// A File adds one run's figures to the metrics of one lock.
type File struct {
	name, lock string
	changed    chan struct{} // something that is to be seen at once
	end        chan struct{}
	ended      chan error // of the last writing

	mu    sync.Mutex
	added map[string]float64 // by series, since the last writing
	set   map[string]float64 // gauges
}

// Open begins a run that waits for lock, a name for the label. It neither fails nor waits: trouble with the
// file is no reason not to run, and Close tells of it.
func Open(name, lock string) *File {
	f := &File{
		name: name, lock: lock,
		changed: make(chan struct{}, 1), end: make(chan struct{}), ended: make(chan error, 1),
		added: map[string]float64{}, set: map[string]float64{},
	}
	f.add("setnxlock_lost_total", 0) // a counter that appears with its first event hides it from increase()
	f.add("setnxlock_runs_total", 0, "status", "76")
	f.gauge("setnxlock_held", 0)
	f.gauge("setnxlock_run_waiting_since_timestamp_seconds", now())
	f.changed <- struct{}{}
	go f.writeOnChange()
	return f
}

// Close ends the run with its exit status. It returns within five seconds.
func (f *File) Close(status int) error {
	f.mu.Lock()
	f.add("setnxlock_runs_total", 1, "status", strconv.Itoa(status))
	f.gauge("setnxlock_held", 0) // also if it was left to another process
	f.gauge("setnxlock_run_waiting_since_timestamp_seconds", 0)
	f.gauge("setnxlock_run_ended_timestamp_seconds", now())
	f.mu.Unlock()
	close(f.end)
	late := time.NewTimer(atEnd)
	defer late.Stop()
	select {
	case err := <-f.ended:
		return err
	case <-late.C:
		return errLate
	}
}

// writeOnChange writes the changes. The next write makes up for a failed one.
func (f *File) writeOnChange() {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-f.end:
			f.ended <- f.write()
			return
		case <-f.changed:
		case <-tick.C:
		}
		f.write() //nolint:errcheck // Close tells of what lasts
	}
}

// Observe counts an event, as a compat.Observer, and leaves the writing to another goroutine.
func (f *File) Observe(e compat.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Kind {
	case compat.EventAttempt:
		if e.Err != nil {
			f.add("setnxlock_attempts_total", 1, "outcome", outcome(e.Err))
		}
		return
	case compat.EventExtended:
		f.add("setnxlock_renewals_total", 1, "outcome", "ok")
		return
	case compat.EventAcquired:
		f.add("setnxlock_acquisitions_total", 1, "how", string(e.Lease.How))
		f.observe("setnxlock_wait_seconds", e.Took)
		f.gauge("setnxlock_held", 1)
		f.gauge("setnxlock_run_waiting_since_timestamp_seconds", 0)
	case compat.EventFailed:
		f.add("setnxlock_renewals_total", 1, "outcome", "failed")
	case compat.EventLost:
		f.add("setnxlock_lost_total", 1)
		f.holdEnded(e.Took)
	case compat.EventReleased:
		how := "ok"
		if e.Err != nil {
			how = "unknown"
		}
		if errors.Is(e.Err, compat.ErrLost) {
			how = "lost"
		}
		f.add("setnxlock_releases_total", 1, "outcome", how)
		f.holdEnded(e.Took)
	case compat.EventRepaired:
		f.add("setnxlock_repairs_total", 1)
	default:
		return
	}
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *File) holdEnded(took time.Duration) {
	f.observe("setnxlock_hold_seconds", took)
	f.gauge("setnxlock_held", 0)
}

// outcome names the reason of a vain attempt.
func outcome(err error) string {
	switch {
	case errors.Is(err, compat.ErrHeld):
		return "held"
	case protocol.OutcomeOf(err) == protocol.NotSent:
		return "not sent"
	case protocol.OutcomeOf(err) == protocol.Refused:
		return "refused"
	}
	return "unknown"
}

func (f *File) add(name string, n float64, label ...string) { f.added[f.series(name, label...)] += n }

func (f *File) gauge(name string, value float64) { f.set[f.series(name)] = value }

// observe adds to a histogram. Its buckets go from a millisecond to an hour, each four times the one before.
func (f *File) observe(name string, took time.Duration) {
	bound := 0.001
	for range 12 {
		in := 0.0
		if took.Seconds() <= bound {
			in = 1
		}
		f.add(name+"_bucket", in, "le", number(bound))
		bound *= 4
	}
	f.add(name+"_bucket", 1, "le", "+Inf")
	f.add(name+"_sum", took.Seconds())
	f.add(name+"_count", 1)
}

// series writes a metric with its labels, as it stands in the file.
func (f *File) series(name string, label ...string) string {
	s := name + `{lock="` + escaped(f.lock) + `"`
	if len(label) == 2 {
		s += `,` + label[0] + `="` + escaped(label[1]) + `"`
	}
	return s + "}"
}

func escaped(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\uFFFD"))
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func now() float64 { return math.Round(float64(time.Now().UnixMilli())) / 1000 }

// write adds the new figures to the file. One goroutine at a time calls it.
func (f *File) write() error {
	f.mu.Lock()
	added, set := f.added, maps.Clone(f.set)
	f.added = map[string]float64{}
	f.mu.Unlock()

	err := change(f.name, func(values map[string]float64) {
		for series, n := range added {
			values[series] += n
		}
		maps.Copy(values, set)
	})
	if err != nil { // the next writing has it
		f.mu.Lock()
		defer f.mu.Unlock()
		for series, n := range added {
			f.added[series] += n
		}
	}
	return err
}

func change(name string, do func(values map[string]float64)) error {
	unlock, err := lockFile(name+".lock", patient)
	if err != nil {
		return err
	}
	defer unlock()
	values, err := read(name)
	if err != nil {
		return err
	}
	do(values)
	return Replace(name, format(values), 0o644) // who collects is another user
}

// read returns a file's values, and none of a missing file.
func read(name string) (map[string]float64, error) {
	values := map[string]float64{}
	file, err := open(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return values, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "# HELP setnxlock_") || strings.HasPrefix(line, "# TYPE setnxlock_") {
			continue
		}
		i := strings.LastIndex(line, "} ")
		if i < 0 || family(line) < 0 {
			return nil, fmt.Errorf("%s: %w", name, ErrForeign)
		}
		if values[line[:i+1]], err = strconv.ParseFloat(line[i+2:], 64); err != nil {
			return nil, fmt.Errorf("%s: %w", name, ErrForeign)
		}
	}
	return values, nil
}

// family returns the place of a series in families, -1 for a foreign one.
func family(series string) int {
	name, _, _ := strings.Cut(series, "{")
	return slices.IndexFunc(families, func(m struct{ name, kind, help string }) bool {
		part, whole := strings.CutPrefix(name, m.name)
		return whole && (part == "" || m.kind == "histogram" && slices.Contains([]string{"_bucket", "_sum", "_count"}, part))
	})
}

// format returns the file: each family with its help and its type, then its series.
func format(values map[string]float64) []byte {
	var b bytes.Buffer
	last := -1
	for _, series := range slices.SortedFunc(maps.Keys(values), compare) {
		if i := family(series); i != last {
			m := families[i]
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, m.kind)
			last = i
		}
		fmt.Fprintf(&b, "%s %s\n", series, number(values[series]))
	}
	return b.Bytes()
}

// compare orders series by family, then by name and labels, buckets by their bounds.
func compare(a, b string) int {
	nameA, boundA := bucket(a)
	nameB, boundB := bucket(b)
	return cmp.Or(family(a)-family(b), strings.Compare(nameA, nameB), cmp.Compare(boundA, boundB))
}

// bucket splits a series into its name with labels and its upper bound, 0 without one.
func bucket(series string) (name string, bound float64) {
	name, le, _ := strings.Cut(series, `,le="`)
	bound, _ = strconv.ParseFloat(strings.TrimSuffix(le, `"}`), 64) //nolint:errcheck // "" is no bound
	return name, bound
}

// Replace puts text in the place of a file, whole: its name leads to the old one or to the new.
func Replace(name string, text []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // no collector reads it: it does not end in .prom
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		os.Remove(tmp.Name()) //nolint:errcheck // what went wrong before is what matters
	}
	return err
}
