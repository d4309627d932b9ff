//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/history"
)

// A wait is one call of Lock, successful or not.
type wait struct {
	client   int
	from, to int64
}

// waits sums up the calls of Lock for one key.
type waits struct {
	worst time.Duration
	fair  time.Duration // the wait of every call if all clients were served in turn
	stays float64       // the share of turns that stayed in the process of the turn before
	over  int           // the most turns of others during one call, while its client could compete
	own   int           // the turns among over in the caller's own process
}

func (w waits) String() string {
	return fmt.Sprintf("%v (%v; %d, %d; %.0f%%)", w.worst.Round(time.Millisecond), w.fair.Round(time.Millisecond), w.over, w.own, 100*w.stays)
}

// starved finds calls that were passed over too often. The time of a wait tells little, because servers
// stop and the leases of killed clients must expire; the number of turns of others tells more. A turn
// counts only while the caller's process could compete.
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
		for i, h := range all { // in the order of Got
			if h.Got <= c.from || h.Got >= c.to || clients[c.client].awayAt(h.Got) {
				continue
			}
			if h.Shared && i > 0 && all[i-1].Shared { // readers in a row have one turn together
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

// patience is the number of turns that each other contender may have while one client waits. Between
// processes, chance decides, and prefers the newest waiters. Half of all calls are passed over once at
// most, one in a hundred 150 times, one in two thousand 270 times. Every further 50 turns are e times
// less likely, so 960 turns do not happen by chance.
const patience = 40

func (p *process) awayAt(at int64) bool {
	for _, s := range p.aways {
		if s.has(at) {
			return true
		}
	}
	return false
}
