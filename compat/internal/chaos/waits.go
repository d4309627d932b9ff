//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/history"
)

// A wait is one call of Lock, whatever came of it.
type wait struct {
	client   int
	from, to int64
}

// waits are what the calls for one key waited.
type waits struct {
	worst time.Duration
	fair  time.Duration // what each would have waited, had all clients been served in turn
	stays float64       // the part of turns that went to the process that had had the one before
	over  int           // how many turns others had, at most, while one call waited that could have been served
	own   int           // of those, in the same process
}

func (w waits) String() string {
	return fmt.Sprintf("%v (%v; %d, %d; %.0f%%)", w.worst.Round(time.Millisecond), w.fair.Round(time.Millisecond), w.over, w.own, 100*w.stays)
}

// starved looks for a call that was passed over: how long it waited tells little, as servers stand
// still and leases of the dead run out; how many others were served meanwhile tells who starves. What
// others had while the caller's process stood still, or was cut off, does not count.
func (v *verdict) starved(r run, key string, calls []wait, all []*history.Hold, clients []*process) waits {
	contenders := r.Clients * r.Goroutines
	most := patience * contenders
	w := waits{fair: time.Duration(float64(r.For) / float64(max(len(all), 1)) * float64(contenders))}
	for i, h := range all[min(1, len(all)):] {
		if h.By == all[i].By {
			w.stays += 1 / float64(len(all)-1)
		}
	}
	for _, c := range calls {
		w.worst = max(w.worst, time.Duration(c.to-c.from))
		over, own := 0, 0
		for i, h := range all { // in the order in which they got it
			if h.Got <= c.from || h.Got >= c.to || clients[c.client].awayAt(h.Got) {
				continue
			}
			if h.Shared && i > 0 && all[i-1].Shared { // readers that come in together have one turn
				continue
			}
			over++
			if h.By == fmt.Sprint(c.client) {
				own++
			}
		}
		if over > w.over {
			w.over, w.own = over, own
		}
		if over > most {
			v.broken("%s: client %d starves: %d others were served while it waited for %v, and it could have been; %d of them in its own process", key, c.client, over, time.Duration(c.to-c.from), own)
		}
	}
	return w
}

// patience is how many times each other contender may be served while one waits. Processes do not
// queue for each other, chance decides, and it prefers those who have just come: half of all calls
// are passed over once at most, one in a hundred 150 times, one in two thousand 270 times. Beyond that
// the numbers fall by a factor of e every 50 turns: 960 are not to be had by chance.
const patience = 40

func (p *process) awayAt(at int64) bool {
	for _, s := range p.aways {
		if s.has(at) {
			return true
		}
	}
	return false
}
