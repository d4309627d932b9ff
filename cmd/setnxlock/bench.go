package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/server"
	"github.com/setnxlock/setnxlock/compat/workload"
	"github.com/spf13/cobra"
)

const benchHelp = `Measures locks on a server: how many a second, how long each takes, how many round
trips and commands; all beside two PINGs over the same connections, because a ratio
says more than microseconds. With --keys 1 all goroutines want the same key: then
also how soon it passes to the next, how much of the ideal rate is reached, and how
evenly the goroutines are served. Several algorithms, with commas between, take
turns.

It loads the server as much as it can, on keys with a random prefix, and deletes
them. It refuses a server that other clients are using, unless --anyway is given.
If no server is named, by a flag or by $SETNXLOCK_REDIS, it runs on an embedded one,
in this process, that behaves as --embedded says: the commands there are real, but
their times are not a server's.`

const benchStatus = `  0      All algorithms were measured.
  1      One was not, or two clients were in one section; the output says which.
` + statusHelp + `
  75     Others are at work on the server, and --anyway was not given.
  130    It was interrupted. The keys were deleted.`

const benchExamples = `  setnxlock bench --redis 127.0.0.1:6379 --algorithm tx:renamed,set:lua --pinned 100
  setnxlock bench --redis 127.0.0.1:6379 --goroutines 64 --html bench.html
  setnxlock bench --redis 127.0.0.1:6379 --keys 1 --processes 8 --goroutines 8 --section 1ms --signal
  setnxlock bench --embedded 2.4 --algorithm tx,getset --json | jq '.results[].commands'`

// benchFlags are bench's own.
type benchFlags struct {
	workload.Workload
	ttl      time.Duration
	pinned   int
	handOffs int
	signal   bool
	embedded string
	anyway   bool
	asJSON   bool
	html     string
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:               "bench",
		Short:             "Measure how fast locks are on a server",
		Long:              benchHelp,
		Example:           benchExamples,
		Annotations:       map[string]string{"status": benchStatus},
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              usageErrors(cobra.NoArgs),
		RunE:              func(*cobra.Command, []string) error { return a.bench(f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.Goroutines, "goroutines", 1, "how many goroutines take locks at the same time, in each process")
	flags.IntVar(&f.Processes, "processes", 1, "how many clients, each with its own connections, as if it were a process")
	flags.IntVar(&f.Keys, "keys", 0, "how many keys: 1 is contended by all; 0 is one for each goroutine")
	flags.DurationVar(&f.Section, "section", 0, "how long each lock is held")
	flags.DurationVar(&f.Duration, "duration", 3*time.Second, "how long each algorithm is measured")
	flags.DurationVar(&f.ttl, "ttl", 30*time.Second, "how long a lock lasts if nobody releases it")
	flags.IntVar(&f.pinned, "pinned", 0, "how many held locks of a process may pin their connection, so that a release is one round trip")
	flags.IntVar(&f.handOffs, "hand-offs", 14, "how many hand-offs in a row to the next goroutine of the same process; 0: none")
	flags.BoolVar(&f.signal, "signal", false, "wake waiters by a signal on release; needs Redis 2.0 and no proxy")
	flags.StringVar(&f.embedded, "embedded", "", "use an embedded server in this process, that behaves as Redis `VERSION` ("+strings.Join(oldredis.Versions(), ", ")+"); 2.6 if neither this nor a server is given")
	flags.BoolVar(&f.anyway, "anyway", false, "go on although others are at work on the server")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON; times are in nanoseconds")
	flags.StringVar(&f.html, "html", "", "write a page with plots to `FILE`, too")
	complete(cmd, "embedded", oldredis.Versions())
	cmd.MarkFlagFilename("html", "html") //nolint:errcheck // the flag exists
	return cmd
}

// A benchmark is what bench has found, as --json prints it.
type benchmark struct {
	Server   string            `json:"server"`
	Version  string            `json:"version,omitempty"`  // redis_version of its servers
	Products []string          `json:"products,omitempty"` // what they are, as INFO says: "Redis 7.0.15"
	Embedded bool              `json:"embedded"`
	Workload benchWorkload     `json:"workload"`
	Results  []workload.Result `json:"results"`
}

// A benchWorkload is what was asked of each.
type benchWorkload struct {
	Processes  int           `json:"processes"`
	Goroutines int           `json:"goroutines"`
	Keys       int           `json:"keys"`
	Section    time.Duration `json:"section_ns"`
	Duration   time.Duration `json:"duration_ns"`
	Pinned     int           `json:"pinned"`
	HandOffs   int           `json:"hand_offs"`
	Signal     bool          `json:"signal"`
}

func (a *app) bench(f benchFlags) error {
	if err := f.valid(a); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &benchmark{Workload: benchWorkload{f.Processes, f.Goroutines, f.Keys, f.Section, f.Duration, f.pinned, f.handOffs, f.signal}}
	if f.embedded != "" {
		b.Embedded = true
		end, err := a.embed(f.embedded)
		if err != nil {
			return err
		}
		defer end()
	}
	p, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer p.Close()
	var servers []string
	for _, n := range p.nodes {
		servers = append(servers, n.name)
	}
	b.Server = strings.Join(servers, ", ")
	if b.Embedded {
		b.Server = "an embedded server"
	}
	if err := a.undisturbed(ctx, p, b, f.anyway); err != nil {
		return interrupted(ctx, err)
	}
	f.Prefix = a.prefix + "setnxlock:bench:" + compat.NewToken()[:8] + ":"
	subjects, err := a.subjects(ctx, p, f)
	if err != nil {
		return err
	}
	a.announce(b, f, len(subjects))

	s := newStage(a.errs)
	var percent atomic.Int32
	wipe := s.Progress("measuring", func() int { return int(percent.Load()) }, 100)
	b.Results, err = f.Run(ctx, subjects, func(share float64, _ string) { percent.Store(int32(100 * share)) })
	wipe()
	if err != nil {
		return interrupted(ctx, err)
	}
	return b.tell(a, f)
}

// interrupted is err, without words if the user interrupted.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exit(statusSignal + int(syscall.SIGINT))
	}
	return err
}

// valid completes the flags and says what is wrong with them.
func (f *benchFlags) valid(a *app) error {
	named := a.redis.given || a.sentinel != "" || os.Getenv("SETNXLOCK_REDIS") != ""
	for _, name := range strings.Split(a.algorithm, ",") {
		if l, _ := locks.Get(name); l.Shared {
			return &failure{statusUsage, fmt.Errorf("%s keeps no other reader out: there is nothing to wait for", name), ""}
		}
	}
	switch {
	case f.Goroutines < 1 || f.Processes < 1:
		return &failure{statusUsage, errors.New("--goroutines and --processes must be 1 or more"), ""}
	case f.Keys < 0 || f.Section < 0 || f.pinned < 0 || f.handOffs < 0:
		return &failure{statusUsage, errors.New("--keys, --section, --pinned and --hand-offs must not be below 0"), ""}
	case f.Duration < 10*time.Millisecond:
		return &failure{statusUsage, errors.New("--duration must be 10ms or more"), ""}
	case f.ttl < time.Second || f.ttl < 2*f.Section:
		return &failure{statusUsage, errors.New("--ttl must be a second or more, and twice --section"), ""}
	case f.embedded != "" && named:
		return &failure{statusUsage, errors.New("--embedded excludes a server that is named"), "unset SETNXLOCK_REDIS, or leave out --redis"}
	case !named && f.embedded == "":
		f.embedded = "2.6"
	}
	if f.Keys == 0 {
		f.Keys = f.Processes * f.Goroutines
	}
	// Turns are short where no goroutine waits, so that other load on the machine meets all
	// algorithms alike, and long where they wait, because it takes a while until all do.
	turn := 50 * time.Millisecond
	if f.Keys < f.Processes*f.Goroutines {
		turn = time.Second
	}
	f.Turns = int(max(f.Duration/turn, 1))
	return nil
}

// embed starts an embedded server, and makes it the one that is named.
func (a *app) embed(version string) (end func(), err error) {
	s, err := oldredis.New(version, oldredis.Options{Clock: clock.New()})
	if err != nil {
		return nil, &failure{statusUsage, err, "it is one of " + strings.Join(oldredis.Versions(), ", ")}
	}
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		s.Close()
		return nil, err
	}
	a.redis = addresses{list: []string{addr.String()}, given: true}
	return func() { s.Close() }, nil
}

// How long bench looks for other clients, and how many commands of theirs it tolerates:
// those of a monitoring system.
const (
	lookingFor  = 300 * time.Millisecond
	othersAllow = 5
)

// undisturbed asks each server what it is, and refuses if other clients are using it.
func (a *app) undisturbed(ctx context.Context, p *deployment, b *benchmark, anyway bool) error {
	for _, n := range p.nodes {
		first, ok := a.info(ctx, n)
		v := first["redis_version"]
		if !strings.Contains(b.Version, v) {
			b.Version = strings.TrimPrefix(b.Version+", "+v, ", ")
		}
		if kind, own, _ := server.Product(first); kind != "" && !slices.Contains(b.Products, product(kind, own, v)) {
			b.Products = append(b.Products, product(kind, own, v))
		}
		if b.Embedded {
			continue
		}
		if !ok {
			a.say("%s does not say whether others are at work on it", n.name)
			continue
		}
		select {
		case <-time.After(lookingFor):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		second, _ := a.info(ctx, n)
		others := number(second["total_commands_processed"]) - number(first["total_commands_processed"]) - 1 // our own INFO
		if others > othersAllow && !anyway {
			return &failure{statusBusy, fmt.Errorf("others are at work on %s: %d commands in %v", n.name, others, lookingFor),
				"a benchmark would disturb them, and they would disturb it; --anyway goes on nevertheless"}
		}
		if role := first["role"]; role == "slave" {
			return &failure{statusUnavailable, fmt.Errorf("%s is a replica", n.name), "name its master"}
		}
		if replicas := number(first["connected_slaves"]); replicas > 0 {
			a.say("%s has %d replicas, which get every write", n.name, replicas)
		}
		if first["aof_enabled"] == "1" {
			a.say("%s writes every write to its append-only file", n.name)
		}
	}
	return nil
}

// info is what INFO says; false if it is refused.
func (a *app) info(ctx context.Context, n node) (map[string]string, bool) {
	c, err := n.source.Get(ctx, "")
	if err != nil {
		return nil, false
	}
	defer c.Close()
	text, err := redis.String(c.Do("INFO"))
	if err != nil {
		return nil, false
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, fields["total_commands_processed"] != ""
}

func number(s string) (n int) {
	fmt.Sscan(s, &n) //nolint:errcheck // then it is 0
	return n
}

// subjects are the locks that --algorithm names.
func (a *app) subjects(ctx context.Context, p *deployment, f benchFlags) ([]workload.Subject, error) {
	o := compat.Options{Timeout: a.timeout, MaxPinned: f.pinned, MaxHandoffs: f.handOffs, Signal: f.signal}
	if f.handOffs == 0 {
		o.MaxHandoffs = -1
	}
	var list []workload.Subject
	for name := range strings.SplitSeq(a.algorithm, ",") {
		one := *a
		one.algorithm = strings.TrimSpace(name)
		label := one.algorithm
		if label != "redlock" {
			c, err := one.pick(ctx, p.one(), f.Prefix+"try", false)
			switch {
			case err == nil:
				label, one.algorithm = c.name, c.name
			case !errors.Is(err, compat.ErrUnsafeServer):
				return nil, err
			}
		}
		list = append(list, workload.Subject{Name: label, Open: func(m *workload.Meter) (*workload.Client, error) {
			return one.benchClient(ctx, m, f, o)
		}})
	}
	return list, nil
}

// benchClient is one process's client of the lock that a names.
func (a app) benchClient(ctx context.Context, m *workload.Meter, f benchFlags, o compat.Options) (*workload.Client, error) {
	a.meter = m
	p, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	backend, err := a.lock(ctx, p, []string{f.Prefix + "try"}, false)
	if err != nil {
		p.Close()
		return nil, err
	}
	c := workload.Locks(compat.NewLocker(backend, o), p.one().source, f.ttl)
	c.Close = func() error { p.Close(); return nil }
	c.Remove = func(ctx context.Context, keys ...string) error {
		var errs []error
		for _, n := range p.nodes {
			errs = append(errs, workload.Remove(n.source)(ctx, keys...))
		}
		return errors.Join(errs...)
	}
	return c, nil
}

// announce says what is going to happen to the server.
func (a *app) announce(b *benchmark, f benchFlags, algorithms int) {
	if b.Embedded {
		a.say("on an embedded server that behaves as Redis %s: the commands are real, their times are not a server's", f.embedded)
		return
	}
	a.say("taking and releasing locks on %s as fast as it answers, for %v, on keys that begin with %s and are deleted at the end",
		b.Server, time.Duration(algorithms)*f.Duration, f.Prefix)
}

// tell prints what was found, and says by the status whether all is well.
func (b *benchmark) tell(a *app, f benchFlags) error {
	if f.html != "" {
		if err := os.WriteFile(f.html, b.page(), 0o644); err != nil {
			return err
		}
	}
	var err error
	if f.asJSON {
		err = a.printJSON(b)
	} else {
		err = b.print(newStage(a.out))
	}
	for _, r := range b.Results {
		if err == nil && (r.Err != "" || r.Overlaps > 0) {
			err = exit(1)
		}
	}
	return err
}

// contended says that goroutines wait for each other.
func (b *benchmark) contended() bool {
	return b.Workload.Keys < b.Workload.Processes*b.Workload.Goroutines
}

// A figure is one of the table's, and how a result looks in it.
type figure struct {
	head string
	cell func(r workload.Result) string
}

// columns are those that say something about the workload.
func (b *benchmark) columns() []figure {
	list := []figure{
		{"algorithm", func(r workload.Result) string { return r.Name }},
		{"locks/s", func(r workload.Result) string { return fmt.Sprintf("%.0f", r.Rate) }},
	}
	if b.contended() {
		if b.Workload.Section > 0 {
			list = append(list, figure{"of ideal", func(r workload.Result) string { return fmt.Sprintf("%.1f %%", 100*r.Ideal) }})
		}
		list = append(list,
			figure{"hand-off p50", func(r workload.Result) string { return brief(r.HandOff.P50) }},
			figure{"p90", func(r workload.Result) string { return brief(r.HandOff.P90) }},
			figure{"p99", func(r workload.Result) string { return brief(r.HandOff.P99) }},
			figure{"max", func(r workload.Result) string { return brief(r.HandOff.Max) }},
			figure{"least, most served", func(r workload.Result) string { return fmt.Sprintf("%d, %d", r.Least, r.Most) }},
			figure{"to itself", func(r workload.Result) string { return fmt.Sprintf("%.0f %%", 100*r.Self) }})
	} else {
		list = append(list,
			figure{"p50", func(r workload.Result) string { return brief(r.Pair.P50) }},
			figure{"p90", func(r workload.Result) string { return brief(r.Pair.P90) }},
			figure{"p99", func(r workload.Result) string { return brief(r.Pair.P99) }},
			figure{"max", func(r workload.Result) string { return brief(r.Pair.Max) }},
			figure{"two PINGs", func(r workload.Result) string { return brief(r.Pings.P50) }},
			figure{"p50 ×", func(r workload.Result) string { return fmt.Sprintf("%.2f", r.OverPings()) }})
	}
	return append(list,
		figure{"round trips", func(r workload.Result) string { return fmt.Sprintf("%.2f", r.Trips) }},
		figure{"commands", func(r workload.Result) string { return fmt.Sprintf("%.2f", r.Commands) }},
		figure{"connections", func(r workload.Result) string { return fmt.Sprint(r.Connections) }})
}

// brief is a duration in few digits.
func brief(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// title says what was measured, where.
func (b *benchmark) title() string {
	w := b.Workload
	text := fmt.Sprintf("%d goroutines", w.Processes*w.Goroutines)
	if w.Processes*w.Goroutines == 1 {
		text = "1 goroutine"
	}
	if w.Processes > 1 {
		text += fmt.Sprintf(" in %d processes", w.Processes)
	}
	if w.Keys == 1 {
		text += ", one key"
	} else {
		text += fmt.Sprintf(", %d keys", w.Keys)
	}
	if w.Section > 0 {
		text += fmt.Sprintf(", held for %v", w.Section)
	}
	text += fmt.Sprintf(", %v each, on %s", w.Duration, b.Server)
	for _, p := range b.Products {
		text += ", " + p
	}
	return text
}

// what says what the times in the table are of.
func (b *benchmark) what() string {
	if b.contended() {
		return "hand-off: from the start of a release until the next one has the lock; round trips and commands: all that were needed for one lock"
	}
	return "p50 to max: acquiring and releasing, without the section; two PINGs: the same over the same connections, p50"
}

func (b *benchmark) print(s stage) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n\n", b.title())
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	columns := b.columns()
	longest := len(columns[0].head)
	for _, r := range b.Results {
		longest = max(longest, len(r.Name))
	}
	row := func(cell func(c figure) string) {
		fmt.Fprintf(w, "%-*s\t", longest, cell(columns[0]))
		for _, c := range columns[1:] {
			fmt.Fprintf(w, "%s\t", cell(c))
		}
		fmt.Fprintln(w)
	}
	row(func(c figure) string { return c.head })
	for _, r := range b.Results {
		if r.Err == "" {
			row(func(c figure) string { return c.cell(r) })
		}
	}
	w.Flush()
	for line := range strings.Lines(table.String()) {
		text.WriteString(line[2:]) // right-aligned, all cells are padded on their left
	}
	fmt.Fprintf(&text, "\n%s\n", b.what())
	for _, note := range b.notes() {
		fmt.Fprintf(&text, "%s\n", s.bad(note))
	}
	_, err := s.W.Write(text.Bytes())
	return err
}

// notes are what went wrong.
func (b *benchmark) notes() (list []string) {
	for _, r := range b.Results {
		if r.Err != "" {
			list = append(list, fmt.Sprintf("%s was not measured: %s", r.Name, strings.TrimPrefix(r.Err, "setnxlock: ")))
		}
		if r.Failed > 0 && r.Err == "" {
			list = append(list, fmt.Sprintf("%s: %d failures, the first one: %s", r.Name, r.Failed, r.Failure))
		}
		if r.Overlaps > 0 {
			list = append(list, fmt.Sprintf("%s: %d times two clients had the lock at once", r.Name, r.Overlaps))
		}
	}
	return list
}
