package main

import (
	"github.com/setnxlock/setnxlock/compat/workload"
	"github.com/setnxlock/setnxlock/compat/workload/bars"
)

// page is all of it as a page that needs nothing else.
func (b *benchmark) page() []byte {
	p := bars.Page{Title: b.title(), Says: []string{b.what() + "."}, Wrong: b.notes(), Charts: b.charts(), Foot: "setnxlock bench, version " + version()}
	for _, c := range b.columns() {
		p.Head = append(p.Head, c.head)
	}
	for _, r := range b.Results {
		if r.Err != "" {
			continue
		}
		var row []string
		for _, c := range b.columns() {
			row = append(row, c.cell(r))
		}
		p.Rows = append(p.Rows, row)
	}
	if b.Embedded {
		p.Says = append(p.Says, "The server was an embedded one, in the same process: what was sent is real, how long it took is not a server's.")
	}
	return p.HTML()
}

// charts are the pictures that say something about the workload.
func (b *benchmark) charts() []bars.Chart {
	chart := func(title, axis string, mark float64, value func(workload.Result) float64) bars.Chart {
		c := bars.Chart{Title: title, X: axis, Mark: mark}
		for _, r := range b.Results {
			if r.Err == "" {
				c.Bars = append(c.Bars, bars.Bar{Name: r.Name, Value: value(r), Main: true})
			}
		}
		return c
	}
	var list []bars.Chart
	if b.contended() {
		list = append(list, chart("Locks a second", "locks/s", 0, func(r workload.Result) float64 { return r.Rate }))
		if b.Workload.Section > 0 {
			list = append(list, chart("Rate, as a share of the ideal", "% of the ideal", 100, func(r workload.Result) float64 { return 100 * r.Ideal }))
		}
		list = append(list,
			chart("Hand-off, p99", "µs", 0, func(r workload.Result) float64 { return float64(r.HandOff.P99) / 1e3 }),
			chart("Least served / most served", "1 is even", 1, workload.Result.Fairness))
	} else {
		list = append(list,
			chart("Acquire and release, p50", "as a multiple of two PINGs over the same connections", 1, workload.Result.OverPings),
			chart("Acquire and release, p99", "µs", 0, func(r workload.Result) float64 { return float64(r.Pair.P99) / 1e3 }),
			chart("Locks a second", "locks/s", 0, func(r workload.Result) float64 { return r.Rate }))
	}
	return append(list, chart("Commands for each lock", "commands", 0, func(r workload.Result) float64 { return r.Commands }))
}
