package main

import (
	_ "embed"
	"fmt"
	"html"
	"strings"

	"github.com/setnxlock/setnxlock/compat/workload"
	"github.com/setnxlock/setnxlock/compat/workload/bars"
)

//go:embed bench.html
var benchPage string

// page is all of it as a page that needs nothing else.
func (b *benchmark) page() []byte {
	list := func(format string, texts []string) string {
		var all strings.Builder
		for _, text := range texts {
			fmt.Fprintf(&all, format, html.EscapeString(text))
		}
		return all.String()
	}
	var heads []string
	for _, c := range b.columns() {
		heads = append(heads, c.head)
	}
	var rows, plots strings.Builder
	for _, r := range b.Results {
		if r.Err != "" {
			continue
		}
		var row []string
		for _, c := range b.columns() {
			row = append(row, c.cell(r))
		}
		fmt.Fprintf(&rows, "\n<tr>%s</tr>", list("<td>%s</td>", row))
	}
	for _, svg := range b.plots() {
		fmt.Fprintf(&plots, "<figure>%s</figure>\n", svg)
	}
	embedded := ""
	if b.Embedded {
		embedded = "<p>The server was an embedded one, in the same process: what was sent is real, how long it took is not a server's.</p>\n"
	}
	return []byte(strings.NewReplacer(
		"{{title}}", html.EscapeString(b.title()),
		"{{heads}}", list(`<th scope="col">%s</th>`, heads),
		"{{rows}}", rows.String(),
		"{{what}}", html.EscapeString(b.what()),
		"{{embedded}}", embedded,
		"{{notes}}", list("<p class=\"note\">%s</p>\n", b.notes()),
		"{{plots}}", plots.String(),
		"{{version}}", html.EscapeString(version()),
	).Replace(benchPage))
}

// plots are the pictures, in SVG, that say something about the workload.
func (b *benchmark) plots() [][]byte {
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
	var plots [][]byte
	for _, c := range list {
		if len(c.Bars) == 0 {
			continue
		}
		plots = append(plots, c.SVG())
	}
	return plots
}
