package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/txlock"
	"github.com/spf13/cobra"
)

const demoHelp = `Shows in a few seconds what a lock is for and how these locks behave. It needs no
server: an embedded Redis behaves as old versions did, and what you see happens while
you watch.

  1. Eight workers add to one counter: without a lock, then under each lock.
  2. A holder crashes, and the next client takes its lock over.
  3. An old server on which one of the locks excludes nobody: it is refused.`

const demoStatus = `  0      As promised: updates were lost without a lock, and none with one.
  1      Something did not; it is marked.`

func (a *app) demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:         "demo",
		Short:       "See it work: no server needed",
		Long:        demoHelp,
		Example:     "  setnxlock demo",
		Annotations: map[string]string{"status": demoStatus, "alone": "yes"},
		RunE:        func(*cobra.Command, []string) error { return a.demo() },

		DisableFlagsInUseLine: true,
	}
}

// A demo is one performance.
type demo struct {
	screen.Screen
	clock  clock.Clock // the workers'
	broken bool        // something was not as promised
}

func (a *app) demo() error {
	d := &demo{Screen: screen.New(a.out), clock: clock.New()}
	for n, act := range []func() error{d.counter, d.crash, d.refusal} {
		if n > 0 {
			fmt.Fprintln(d.W)
		}
		if err := act(); err != nil {
			return exit.Because(exit.Software, err, "")
		}
	}
	if d.broken {
		return exit.Because(1, errors.New("something did not go as promised"), "")
	}
	return nil
}

// An entry is a lock and an old version that it works on.
type entry struct {
	name    string
	version string
	protocol.Algorithm
}

func entries() []entry {
	var list []entry
	for _, name := range []string{"getset:classic", "getset:listed", "getset:guarded", "tx:classic", "tx:guarded", "tx:renamed"} {
		l, _ := locks.Get(name)
		list = append(list, entry{name, l.Since, l.New(locks.Options{Fence: true})})
	}
	return list
}

const (
	workers = 8
	rounds  = 50
	total   = workers * rounds
)

// ample is the lease of holders who do not crash, and the limit of steps: a machine that stands still for a
// while, or a terminal that is stopped, must spoil nothing.
const ample = time.Hour

// counter plays the first act.
func (d *demo) counter() error {
	d.title("1. %d workers share one counter; each adds 1 to it, %d times: %d in the end", workers, rounds, total)
	for _, e := range append([]entry{{"no lock", "1.2", nil}}, entries()...) {
		if err := d.race(e); err != nil {
			return err
		}
	}
	return nil
}

// race lets the workers add to the counter under e's lock, or under none, and prints the final count.
func (d *demo) race(e entry) error {
	s := oldredis.MustNew(e.version, oldredis.Options{Clock: d.clock})
	defer s.Close()
	r := &contest{server: s}
	if e.Algorithm != nil {
		r.locks = compat.New(s.Pool(), e.Algorithm, compat.Options{Clock: d.clock, NoRenew: true, Poll: 50 * time.Millisecond, Timeout: ample})
	}
	name := fmt.Sprintf("%-14s on %s", e.name, e.version)
	stop := d.Progress(name, func() int { return int(r.done.Load()) }, total)
	began := time.Now()
	err := r.run()
	took := time.Since(began)
	stop()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}

	sum, err := r.sum()
	if err != nil {
		return err
	}
	verdict := fmt.Sprintf("%s  never two at once, %.1f s", d.Good("right"), took.Seconds())
	if sum != total || r.most.Load() > 1 {
		verdict = fmt.Sprintf("%s  %d lost, %d workers at once", d.Bad("wrong"), total-sum, r.most.Load())
	}
	if (e.Algorithm == nil) == (sum == total) {
		d.broken = true
		verdict += "  (NOT AS PROMISED)"
	}
	d.line("%s  %3d of %d  %s", name, sum, total, verdict)
	return nil
}

// A contest is workers at one counter on one server.
type contest struct {
	server *oldredis.Server
	locks  *compat.Locker // nil: without
	done   atomic.Int32
	inside atomic.Int32 // workers between their read and their write
	most   atomic.Int32
}

func (r *contest) run() error {
	var group sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		group.Go(func() {
			for range rounds {
				if errs[w] = r.once(); errs[w] != nil {
					return
				}
				r.done.Add(1)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func (r *contest) once() error {
	if r.locks == nil {
		return r.add()
	}
	return r.locks.Do(context.Background(), "counter:lock", ample, func(context.Context) error { return r.add() })
}

// add reads the counter, thinks, and writes it back one higher: every lost update is made of this.
func (r *contest) add() error {
	now := r.inside.Add(1)
	defer r.inside.Add(-1)
	for most := r.most.Load(); now > most && !r.most.CompareAndSwap(most, now); most = r.most.Load() {
	}
	c := r.server.Dial()
	defer c.Close()
	n, err := redis.Int(c.Do("GET", "counter"))
	if err != nil && err != redis.ErrNil {
		return err
	}
	time.Sleep(500 * time.Microsecond)
	_, err = c.Do("SET", "counter", n+1)
	return err
}

func (r *contest) sum() (int, error) {
	c := r.server.Dial()
	defer c.Close()
	return redis.Int(c.Do("GET", "counter"))
}

// crash plays the second act.
func (d *demo) crash() error {
	d.title("2. A holder crashes: its lease ends by itself, and the next client takes over")
	e := entries()
	renamed, _ := locks.Get("tx:renamed")
	millis := renamed.New(locks.Options{Millis: true, Fence: true})
	for _, e := range []entry{e[0], {renamed.Name, "2.6", millis}} {
		if err := d.takeover(e); err != nil {
			return err
		}
	}
	return nil
}

// takeover has bob wait for alice's lease to end. Time passes while he waits, and only then: on a machine
// that stands still for a moment, or a terminal that is stopped, the lease would be over before his first
// try.
func (d *demo) takeover(e entry) error {
	const lease = 1200 * time.Millisecond
	now := clock.NewMock()
	now.Set(time.Now())
	s := oldredis.MustNew(e.version, oldredis.Options{Clock: now})
	defer s.Close()
	ctx := context.Background()
	locks := compat.New(s.Pool(), e.Algorithm, compat.Options{Clock: now, NoRenew: true, Timeout: ample})
	began := now.Now()
	tell := func(format string, args ...any) {
		d.line("  %4.1f s  "+format, append([]any{now.Since(began).Seconds()}, args...)...)
	}

	d.line("%s on %s", e.name, e.version)
	alice, err := locks.TryLock(ctx, "job", lease)
	if err != nil {
		return err
	}
	tell("alice holds the lock for %v, fence %d, and crashes", lease, alice.Fence())
	_, err = locks.TryLock(ctx, "job", lease)
	if !errors.Is(err, compat.ErrHeld) {
		d.broken = true
		tell("bob tries: %v", err)
	} else {
		tell("bob tries: it is held; he waits")
	}
	stop := passing(now)
	bob, err := locks.Lock(ctx, "job", lease)
	stop()
	if err != nil {
		return err
	}
	how := "taken over"
	if bob.Lease().How == protocol.Free {
		how = "its TTL had freed it"
	}
	tell("bob has the lock (%s), fence %d", how, bob.Fence())
	tell("a late write of alice's can be told by its fence: %d is below %d", alice.Fence(), bob.Fence())
	if bob.Fence() <= alice.Fence() || now.Now().Before(alice.Until()) {
		d.broken = true
	}
	if err := locks.ReleaseToken(ctx, "job", alice.Token()); !errors.Is(err, compat.ErrLost) {
		return fmt.Errorf("alice released bob's lock: %w", err)
	}
	tell("alice wakes up and releases: lost, and bob's lock stays")
	if err := bob.Release(ctx); err != nil {
		return err
	}
	tell("bob releases it")
	return nil
}

// passing lets the clock run until stop, except while this process stands still.
func passing(now *clock.Mock) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		const step = 10 * time.Millisecond
		tick := time.NewTicker(step)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				now.Add(step)
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// refusal plays the third act.
func (d *demo) refusal() error {
	const version = "2.0"
	d.title("3. A server on which a token with a TTL excludes nobody: Redis %s", version)
	s := oldredis.MustNew(version, oldredis.Options{Clock: clock.New()})
	defer s.Close()
	c := s.Dial()
	defer c.Close()
	for _, cmd := range []protocol.Cmd{{"SETNX", "job", "alice"}, {"EXPIRE", "job", 30}, {"SETNX", "job", "bob"}} {
		reply, err := redis.Int(c.Do(cmd[0].(string), cmd[1:]...))
		if err != nil {
			return err
		}
		note := ""
		if cmd[2] == "bob" && reply == 1 {
			note = "  " + d.Bad("both hold it")
		}
		d.line("%-20s -> %d%s", strings.Trim(fmt.Sprint([]any(cmd)), "[]"), reply, note)
	}

	_, err := compat.New(s.Pool(), txlock.Guarded{}, compat.Options{}).TryLock(context.Background(), "job", time.Minute)
	var unsafe *compat.UnsafeServerError
	if !errors.As(err, &unsafe) {
		d.broken = true
		d.line("txlock was not refused: %v", err)
		return nil
	}
	d.line("so txlock refuses to work there: %s", d.Good("refused"))
	d.line("  %s", unsafe.Why)
	d.line("  instead: --algorithm getset:listed, which --algorithm auto chooses")
	return nil
}

func (d *demo) title(format string, args ...any) {
	fmt.Fprintf(d.W, "%s\n", d.Paint("1", fmt.Sprintf(format, args...)))
}

func (d *demo) line(format string, args ...any) { fmt.Fprintf(d.W, "   "+format+"\n", args...) }
