// Package workload measures locks: ours and anybody's, by the same code, in
// turns within one run.
//
// What a machine that others use too tells in microseconds means little an hour
// later; ratios of what was measured in turns, within one run, mean a lot. So
// a [Workload] is given all the locks at once, lets them have the server in
// turns, and measures two PINGs over the same connections beside each.
//
//	results, err := workload.Workload{Goroutines: 64, Section: time.Millisecond, Keys: 1, Duration: 3 * time.Second}.
//		Run(ctx, []workload.Subject{ours, theirs}, nil)
//
// It counts, beneath the client library, what is sent ([Meter]); it watches
// that no two critical sections of a key overlap; and it tells how evenly the
// goroutines were served.
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

	// Open makes the client that one process has, with all its connections
	// dialled by m. An error is told in the Result: the others are measured all the same.
	Open func(m *Meter) (*Client, error)
}

// A Client is one process's. It is used by several goroutines at once.
type Client struct {
	// Lock takes key and waits for it as long as ctx lasts.
	Lock func(ctx context.Context, key string) (Held, error)

	// Ping is one PING on a connection of the client. nil: PINGs are not measured.
	Ping func(ctx context.Context) error

	// Renewals is how many extensions of held locks the client has made. nil: it
	// does not renew, or can't tell. Only [Keep] asks.
	Renewals func() int64

	// Remove deletes keys, in the end, that a lock may have left behind: of what is
	// cancelled not every library gives back what it took. nil: they have their TTL.
	Remove func(ctx context.Context, keys ...string) error

	// Close gives up the connections. nil: there is nothing to give up.
	Close func() error
}

// A Held lock is one that can be given back. A *compat.Lock is one.
type Held interface {
	Release(ctx context.Context) error
}

// A Workload is what each lock is asked to do.
type Workload struct {
	// Processes is how many clients there are, each with connections of its own, as
	// if in a process of its own. Default: 1.
	Processes int

	// Goroutines is how many each process has. Each takes a key, stays in the
	// section, gives the key back, and begins anew at once. Default: 1.
	Goroutines int

	// Keys is how many keys there are; goroutine n of all takes key n modulo Keys.
	// Default: one for each goroutine, so that nobody waits.
	Keys int

	// Section is how long a key is held. It is slept, so that holders don't take
	// the processor from each other; how long it really was is measured. Default: not at all.
	Section time.Duration

	// Duration is how long each lock is measured, all turns together. Default: 1 s.
	Duration time.Duration

	// Count ends the measuring of a lock before its Duration is over, after that
	// many sections. Default: none.
	Count int

	// Turns is how many parts the Duration is cut into, between which the other
	// locks have theirs. Default: 1.
	Turns int

	// WarmUp is how long the lock works before each turn without being counted.
	// Default: a tenth of the turn.
	WarmUp time.Duration

	// Dial makes the connections that a Subject's Meter counts. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Server, if it is not nil, tells how much processor time the server has used so
	// far, for Result.ServerCPU.
	Server func() time.Duration

	// Prefix begins the name of each key, and should be nobody else's: all that were
	// used are deleted in the end, if a Client can do that. Default: "setnxlock:bench:"
	// and something random.
	Prefix string
}

// errWorkload is a workload that asks for nothing that could be done.
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

// scratch is a prefix that nobody else uses.
func scratch(prefix string) string {
	if prefix == "" {
		prefix = "setnxlock:bench:" + compat.NewToken()[:8] + ":"
	}
	return prefix
}

func (w Workload) all() int { return w.Processes * w.Goroutines }

// contended says that somebody has to wait, so that waits must be cut short at
// the end of a turn. Where nobody waits the context can't be cancelled: some
// clients have more to do for one that can.
func (w Workload) contended() bool { return w.Keys < w.all() }

// Run measures all subjects in turns and returns a Result for each, in their
// order. progress, if it is not nil, is told what share of the work is done and
// whose turn it is. The error is ctx's, or says that there is no such workload.
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
		runtime.GC() // between the turns: what one lock leaves behind must not be swept in another's
	}
	results := make([]Result, len(all))
	for i, t := range all {
		results[i] = t.result()
	}
	return results, nil
}
