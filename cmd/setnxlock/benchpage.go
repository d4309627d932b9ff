package main

import (
	"bytes"
	_ "embed"
	"html/template"
	"sync"

	"github.com/setnxlock/setnxlock/compat/workload"
	"github.com/setnxlock/setnxlock/compat/workload/bars"
)

//go:embed bench.html
var benchTemplate string

var benchPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("bench").Parse(benchTemplate)) })

// page is all of it as a page that needs nothing else.
func (b *benchmark) page() ([]byte, error) {
	var heads []string
	for _, c := range b.columns() {
		heads = append(heads, c.head)
	}
	var rows [][]string
	for _, r := range b.Results {
		if r.Err != "" {
			continue
		}
		var row []string
		for _, c := range b.columns() {
			row = append(row, c.cell(r))
		}
		rows = append(rows, row)
	}
	var page bytes.Buffer
	err := benchPage().Execute(&page, map[string]any{
		"Title": b.title(), "What": b.what(), "Heads": heads, "Rows": rows, "Notes": b.notes(), "Plots": b.plots(),
		"Embedded": b.Embedded, "Version": version(),
	})
	return page.Bytes(), err
}

// plots are the pictures that say something about the workload.
func (b *benchmark) plots() []template.HTML {
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
	list = append(list, chart("Commands for each lock", "commands", 0, func(r workload.Result) float64 { return r.Commands }))
	var plots []template.HTML
	for _, c := range list {
		if len(c.Bars) == 0 {
			continue
		}
		plots = append(plots, template.HTML(c.SVG()))
	}
	return plots
}
