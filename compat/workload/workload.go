// Package workload measures locks, ours and those of other libraries, with the same code, in turns
// within one run.
//
// On a shared machine, absolute times mean little an hour later. Ratios of measurements that
// alternate within one run mean a lot. So a [Workload] takes all the locks at once, lets them use
// the server in turns, and measures two PINGs over the same connections with each.
//
//	results, err := workload.Workload{Goroutines: 64, Section: time.Millisecond, Keys: 1, Duration: 3 * time.Second}.
//		Run(ctx, []workload.Subject{ours, theirs}, nil)
//
// It counts what is sent, beneath the client library ([Meter]); checks that no two critical
// sections of a key overlap; and reports how evenly the goroutines were served.
package workload

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// A Subject is a lock that is measured.
type Subject struct {
	Name string

	// Open makes the client of one process, with all its connections dialled by m. An error goes
	// into the Result; the other subjects are still measured.
	Open func(m *Meter) (*Client, error)
}

// A Client belongs to one simulated process. Several goroutines use it at once.
type Client struct {
	// Lock acquires key, and waits for it until ctx ends.
	Lock func(ctx context.Context, key string) (Held, error)

	// Ping sends one PING on a connection of the client. nil: PINGs are not measured.
	Ping func(ctx context.Context) error

	// Renewals returns how many extensions of held locks the client has made. nil: it does not
	// renew, or does not know. Only [Keep] uses it.
	Renewals func() int64

	// Remove deletes keys, at the end, that a lock may have left behind: not every library releases
	// a lock whose acquisition was cancelled. nil: the keys expire by their TTL.
	Remove func(ctx context.Context, keys ...string) error

	// Close closes the connections. nil: there is nothing to close.
	Close func() error
}

// A Held lock can be released. A *compat.Lock is one.
type Held interface {
	Release(ctx context.Context) error
}

// A Workload describes what each lock must do.
type Workload struct {
	// Processes is the number of clients, each with separate connections, as if in separate
	// processes. Default: 1.
	Processes int

	// Goroutines is the number of goroutines per process. Each acquires a key, stays in the
	// section, releases the key, and starts again at once. Default: 1.
	Goroutines int

	// Keys is the number of keys; goroutine n of all uses key n modulo Keys. Default: one per
	// goroutine, so that none waits.
	Keys int

	// Section is how long a key is held. The holder sleeps, so that holders do not compete for the
	// processor; the real duration is measured. Default: 0.
	Section time.Duration

	// Duration is how long each lock is measured, over all turns. Default: 1 s.
	Duration time.Duration

	// Count ends the measurement of a lock after that many sections, before its Duration is over.
	// Default: no limit.
	Count int

	// Turns is the number of parts into which Duration is split; the parts of the locks alternate.
	// Default: 1.
	Turns int

	// WarmUp is how long the lock runs before each turn without being counted. Default: a tenth of
	// the turn.
	WarmUp time.Duration

	// Dial makes the connections that a Subject's Meter counts. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Server, if not nil, returns the processor time that the server has used so far, for
	// Result.ServerCPU.
	Server func() time.Duration

	// Prefix begins the name of each key. No other program should use it: all keys used are deleted
	// at the end, if a Client can do that. Default: "setnxlock:bench:" and random characters.
	Prefix string
}

// errWorkload is returned for an impossible workload.
var errWorkload = errors.New("setnxlock: not a workload")

func (w Workload) valid() (Workload, error) {
	if w.Processes < 0 || w.Goroutines < 0 || w.Keys < 0 || w.Section < 0 || w.Duration < 0 || w.Count < 0 || w.Turns < 0 || w.WarmUp < 0 {
		return w, fmt.Errorf("%w: a number below 0", errWorkload)
	}
	w.Processes, w.Goroutines, w.Turns = max(w.Processes, 1), max(w.Goroutines, 1), max(w.Turns, 1)
	if w.Keys == 0 {
		w.Keys = w.all()
	}
	if w.Duration == 0 {
		w.Duration = time.Second
	}
	if w.WarmUp == 0 {
		w.WarmUp = w.Duration / time.Duration(10*w.Turns)
	}
	w.Prefix = scratch(w.Prefix)
	return w, nil
}

// scratch returns prefix, or a unique one if it is empty.
func scratch(prefix string) string {
	if prefix == "" {
		prefix = "setnxlock:bench:" + compat.NewToken()[:8] + ":"
	}
	return prefix
}

func (w Workload) all() int { return w.Processes * w.Goroutines }

// contended reports whether goroutines must wait, so that waits must be cut short at the end of a
// turn. If none waits, the context cannot be cancelled: some clients do more work for one that can.
func (w Workload) contended() bool { return w.Keys < w.all() }

// Run measures all subjects in turns and returns a Result for each, in their order. progress, if it
// is not nil, is called with the share of the work that is done and the name of the lock whose turn
// it is. The error is ctx's, or says that the workload is invalid.
func (w Workload) Run(ctx context.Context, subjects []Subject, progress func(share float64, name string)) ([]Result, error) {
	w, err := w.valid()
	if err != nil {
		return nil, err
	}
	all := make([]*trial, len(subjects))
	for i, s := range subjects {
		all[i] = w.open(ctx, s, i)
		defer all[i].close()
	}
	for n := range w.Turns {
		for i, t := range all {
			if progress != nil {
				progress(float64(n*len(all)+i)/float64(w.Turns*len(all)), t.name)
			}
			if t.err != nil || w.Count > 0 && t.sections.Load() >= int64(w.Count) {
				continue
			}
			if n == 0 || !w.contended() {
				t.pingTurn(ctx)
			}
			t.turn(ctx)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
		}
		runtime.GC() // between turns, so that one lock's garbage is not collected during another's turn
	}
	results := make([]Result, len(all))
	for i, t := range all {
		results[i] = t.result()
	}
	return results, nil
}
