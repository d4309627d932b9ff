package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/workload"
)

// A verdict is a target beside what was measured.
type verdict struct {
	target   string
	version  string
	measured string
	met      bool
	group    int // the targets' order in the document
}

// The locks that the targets are about.
const (
	renamedPinned = "tx:renamed" + pinned
	guardedPinned = "tx:guarded" + pinned
	getsetPinned  = "getset:guarded" + pinned
	setLua        = "set:lua"
	twoPings      = "two PINGs"
	redsyncName   = "redsync"
)

// verdicts are all targets that the results say something about. What was not
// measured is not among them: missing says what that is.
func verdicts(r *Report) []verdict {
	var all []verdict
	for _, m := range r.Servers {
		j := &judge{m: m}
		for i, judge := range []func(){j.trips, j.times, j.allocs, func() { j.many(r) }, j.memory, j.oneKey, j.lone, j.waiters, j.command} {
			j.group = i
			judge()
		}
		all = append(all, j.list...)
	}
	slices.SortStableFunc(all, func(a, b verdict) int { return a.group - b.group })
	return all
}

// A judge judges one server.
type judge struct {
	m     *Measured
	list  []verdict
	group int
}

func (j *judge) says(met bool, target, measured string, args ...any) {
	j.list = append(j.list, verdict{target, j.m.Version, fmt.Sprintf(measured, args...), met, j.group})
}

func (j *judge) atLeast(since string) bool {
	return atLeast(j.m.Version, since)
}

// result is the one of that name, if it was measured.
func result(list []workload.Result, name string) (workload.Result, bool) {
	for _, r := range list {
		if r.Name == name && r.Err == "" && r.Sections > 0 {
			return r, true
		}
	}
	return workload.Result{}, false
}

// targeted are the locks that have to be as fast as can be on this server.
func (j *judge) targeted() []string {
	if j.atLeast("2.4") {
		return []string{renamedPinned, getsetPinned, setLua}
	}
	return []string{guardedPinned, getsetPinned}
}

// trips judges round trips: on 2.2 a token lock needs two to be taken.
func (j *judge) trips() {
	for _, name := range j.targeted() {
		target, most := "acquire in one round trip, release in one", 2.0
		if name == guardedPinned {
			target, most = "acquire in two round trips, release in one (txlock on 2.2)", 3
		}
		if r, ok := result(j.m.Latency, name); ok {
			j.says(r.Trips < most+0.1, target, "%s: %.2f", name, r.Trips)
		}
	}
}

// times judges medians: the server has its own core for them.
func (j *judge) times() {
	j.medians(j.m.Latency, "")
	j.medians(j.m.Distant, fmt.Sprintf(", %v away", distance))
}

func (j *judge) medians(list []workload.Result, where string) {
	most := 1.10
	if !j.atLeast("2.4") {
		most, where = 1.60, where+" (2.2)"
	}
	modern, hasModern := result(list, byHand)
	for _, name := range j.targeted() {
		r, ok := result(list, name)
		if !ok {
			continue
		}
		j.says(r.OverPings() <= most, fmt.Sprintf("acquire + release, p50: at most %.2f × two PINGs%s", most, where), "%s: %s ×", name, ratio(r.OverPings(), most))
		if hasModern {
			over := r.Pair.P50.Seconds() / modern.Pair.P50.Seconds()
			j.says(over <= overHand[name], fmt.Sprintf("acquire + release, p50, %s: at most %.2f × %s%s", name, overHand[name], byHand, where), "%s ×", ratio(over, overHand[name]))
		}
	}
}

// ratio is one that may be most, with as many digits as tell whether it is more.
func ratio(x, most float64) string {
	digits := 2
	for ; x > most && digits < 6 && fmt.Sprintf("%.*f", digits, x) == fmt.Sprintf("%.*f", digits, most); digits++ {
	}
	return fmt.Sprintf("%.*f", digits, x)
}

// overHand is what each may take, as a multiple of the two commands by hand.
var overHand = map[string]float64{setLua: 1.03, renamedPinned: 1.08, getsetPinned: 1.05, guardedPinned: 1.05}

func (j *judge) allocs() {
	for _, a := range j.m.Allocs {
		if slices.Contains(j.targeted(), a.Name) && a.Err == "" {
			most := 16.0
			if a.Name == setLua {
				most = 10
			}
			j.says(math.Round(a.Allocs) <= most, fmt.Sprintf("acquire + release, %s: at most %.0f allocations", a.Name, most), "%.0f", a.Allocs)
		}
	}
}

// best is the fastest of ours.
func best(list []workload.Result) (fastest workload.Result) {
	for _, r := range list {
		if ours(r.Name) && r.Rate > fastest.Rate {
			fastest = r
		}
	}
	return fastest
}

// ours says whose a lock is.
func ours(name string) bool {
	for _, family := range []string{"getset:", "tx:", "set:", "ours"} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return false
}

// many judges goroutines with one key each.
func (j *judge) many(r *Report) {
	j.apart(j.m.Throughput, 64, 2)
	j.apart(j.m.Crowd, crowdSize, 2.5)
	if _, ok := bestPeer(j.m.Throughput, rateOf); !ok {
		j.elsewhere(r)
	}
}

func rateOf(r workload.Result) float64 { return r.Rate }

// apart judges that many goroutines beside the best peer.
func (j *judge) apart(list []workload.Result, goroutines int, least float64) {
	where, fastest := fmt.Sprintf("%d goroutines with one key each", goroutines), best(list)
	peer, ok := bestPeer(list, rateOf)
	if !ok || fastest.Rate == 0 {
		return
	}
	j.says(fastest.Rate >= least*peer.Rate, fmt.Sprintf("%s: at least %g × the best peer's rate", where, least), "%s: %.2f × %s", fastest.Name, fastest.Rate/peer.Rate, peer.Name)
	if quickest, ok := bestPeer(list, func(r workload.Result) float64 { return -r.Pair.P99.Seconds() }); ok {
		j.says(fastest.Pair.P99 <= quickest.Pair.P99, where+": p99 no worse than the best peer's", "%.0f µs; %s %.0f µs", micros(fastest.Pair.P99), quickest.Name, micros(quickest.Pair.P99))
	}
	if goroutines == crowdSize {
		j.says(fastest.Connections <= 4, where+": at most 4 connections", "%s: %d", fastest.Name, fastest.Connections)
	}
}

// elsewhere judges a server on which no peer runs by one on which redsync does, each by what it does
// in PINGs. Redis 2.6 is taken, if it was measured.
func (j *judge) elsewhere(r *Report) {
	least := 1.5
	if !j.atLeast("2.4") {
		least = 1
	}
	fastest := best(j.m.Throughput)
	ourPings, ok := result(j.m.Throughput, twoPings)
	var share float64
	var on string
	for _, m := range r.Servers {
		theirs, ok := result(m.Throughput, redsyncName)
		theirPings, ok2 := result(m.Throughput, twoPings)
		if ok && ok2 && (on == "" || strings.HasPrefix(m.Version, "2.6.")) {
			share, on = theirs.Rate/theirPings.Rate, m.Version
		}
	}
	if fastest.Rate == 0 || !ok || on == "" {
		return
	}
	over := fastest.Rate / ourPings.Rate / share
	j.says(over >= least, fmt.Sprintf("64 goroutines with one key each, where no peer runs: at least %g × redsync elsewhere, each as a share of two PINGs' rate there", least),
		"%s: %.2f × that on %s", fastest.Name, over, on)
}

// memory judges many held locks.
func (j *judge) memory() {
	var some, many workload.Footprint
	for _, f := range j.m.Held {
		if f.Err != "" {
			continue
		}
		if f.Locks >= 1000 && some.Locks == 0 {
			some = f
		}
		if f.Locks > some.Locks {
			many = f
		}
	}
	if some.Locks == 0 || many.Locks <= some.Locks {
		return
	}
	j.says(many.PerLock() <= 1.1*some.PerLock(), fmt.Sprintf("memory of a held lock: no more with %s than with %s", count(many.Locks), count(some.Locks)),
		"%.0f bytes after %.0f", many.PerLock(), some.PerLock())
	j.says(many.Goroutines < 100, fmt.Sprintf("%s held locks: no goroutine for each", count(many.Locks)), "%d goroutines", many.Goroutines)
	j.says(float64(many.CPU) <= 1.1*float64(some.CPU), fmt.Sprintf("cost of a renewal: no more with %s than with %s", count(many.Locks), count(some.Locks)),
		"%.1f µs of processor time after %.1f", micros(many.CPU), micros(some.CPU))
	j.says(many.Writes < 0.5, "renewals of many locks on one server are sent together", "%.3f writes for each", many.Writes)
}

// bestPeer is the peer with the highest value; by is what is compared.
func bestPeer(list []workload.Result, by func(workload.Result) float64) (best workload.Result, ok bool) {
	for _, r := range list {
		if r.Err != "" || r.Sections == 0 || ours(r.Name) || r.Name == twoPings || r.Name == byHand {
			continue
		}
		if !ok || by(r) > by(best) {
			best, ok = r, true
		}
	}
	return best, ok
}

// oneKey judges 64 goroutines at one key.
func (j *judge) oneKey() {
	for _, c := range j.m.OneKey {
		where, commands, ideal := "one process, 64 goroutines, one key", 1.0, 0.97
		if c.Processes > 1 {
			where, commands, ideal = fmt.Sprintf("%d processes, %d goroutines each, one key", c.Processes, c.Goroutines), 1.5, 0.95
		}
		r, ok := result(c.Results, handSignal)
		if !ok {
			continue
		}
		j.says(r.Ideal >= ideal, fmt.Sprintf("%s: at least %.0f %% of the ideal rate", where, 100*ideal), "%.1f %%", 100*r.Ideal)
		j.says(r.Commands <= commands, fmt.Sprintf("%s: at most %g commands a section", where, commands), "%.2f", r.Commands)
		j.says(r.Fairness() >= 0.9, where+": least served / most served at least 0.9", "%.2f (%d and %d)", r.Fairness(), r.Least, r.Most)
		fair := float64(c.Processes*c.Goroutines) / r.Rate
		j.says(r.Acquire.Max.Seconds() <= 2*fair, where+": worst wait at most 2 × the fair share", "%.2f ×", r.Acquire.Max.Seconds()/fair)
		if peer, ok := bestPeer(c.Results, func(r workload.Result) float64 { return -r.HandOff.P99.Seconds() }); ok {
			j.says(r.HandOff.P99 <= peer.HandOff.P99, where+": hand-off, p99: no worse than the best peer", "%.0f µs; %s %.0f µs", micros(r.HandOff.P99), peer.Name, micros(peer.HandOff.P99))
		}
		off, ok := result(c.Results, soloSignal)
		if !ok {
			continue
		}
		if peer, ok := bestPeer(c.Results, func(r workload.Result) float64 { return r.Ideal }); ok {
			j.says(off.Ideal >= peer.Ideal, where+", hand-off off: rate at least the best peer's", "%.1f %% of the ideal; %s %.1f %%", 100*off.Ideal, peer.Name, 100*peer.Ideal)
		}
		j.says(off.Commands <= 3.5, where+", hand-off off: at most 3.5 commands a section", "%.2f", off.Commands)
	}
}

// lone judges how soon one waiter in another process has the key.
func (j *judge) lone() {
	if r, ok := result(j.m.Waiter, handSignal); ok {
		if peer, ok := bestPeer(j.m.Waiter, func(r workload.Result) float64 { return -r.HandOff.P99.Seconds() }); ok {
			j.says(r.HandOff.P99 <= peer.HandOff.P99, "one waiter in another process: hand-off, p99: no worse than the best peer", "%.0f µs; %s %.0f µs", micros(r.HandOff.P99), peer.Name, micros(peer.HandOff.P99))
		}
	}
}

// waiters judges a thousand waiters.
func (j *judge) waiters() {
	for _, c := range j.m.Sweep {
		if c.Goroutines != 1000 {
			continue
		}
		for _, name := range []string{handSignal, soloPoll} {
			if r, ok := result(c.Results, name); ok {
				j.says(r.Connections <= 2, "1000 waiters in one process: at most 2 connections", "%s: %d", name, r.Connections)
			}
		}
	}
}

// command judges the command beside redis-cli, as whole processes.
func (j *judge) command() {
	c := j.m.Command
	if c == nil || c.Err != "" {
		return
	}
	for _, most := range []struct {
		name string
		over float64
	}{{runVersion, 1.3}, {runNamed, 2}, {runAuto, 2.3}} {
		if over, ok := c.over(most.name); ok {
			j.says(over <= most.over, fmt.Sprintf("the command, %s: at most %.1f × %s, from start to end, p50", most.name, most.over, redisCLI), "%.2f ×", over)
		}
	}
	if c.Resident > 0 {
		j.says(c.Resident <= 16<<10, "the command: at most 16 MB resident while it waits for a lock", "%.1f MB", float64(c.Resident)/(1<<10))
	}
	j.says(c.Size <= 15e6, "the command: a file of at most 15 MB", "%.1f MB", float64(c.Size)/1e6)
}
