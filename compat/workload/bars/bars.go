// Package bars draws values as bars, in SVG: light or dark by the reader's theme, with text that
// can be selected. It needs nothing but the standard library, so that a program can have a
// chart without a plotting library and its fonts. Lines are package chart's.
package bars

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Chart is one bar a value, from top to bottom.
type Chart struct {
	Title string
	X     string  // the label of the values
	Mark  float64 // a line to compare with; 0: none
	Bars  []Bar
}

// A Bar is one value, 0 or more.
type Bar struct {
	Name  string
	Value float64
	Main  bool // drawn stronger
}

// Sizes, in points.
const (
	width  = 620
	row    = 21
	top    = 30 // the title
	bottom = 44 // the axis and its label
	letter = 5.8
)

// SVG draws the chart. A value that is no number is drawn as 0.
func (c Chart) SVG() []byte {
	most, names := c.Mark, 0
	for _, b := range c.Bars {
		most = max(most, finite(b.Value))
		names = max(names, utf8.RuneCountInString(b.Name))
	}
	if most == 0 {
		most = 1
	}
	left := 12 + letter*float64(names)
	most *= 1.1 // room for the figure at the longest bar's end
	x := func(v float64) float64 { return left + v/most*(width-left-24) }
	end := float64(top + row*len(c.Bars))

	var s strings.Builder
	title := html.EscapeString(c.Title)
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %g" width="%d" height="%g" role="img" aria-label="%s" style="max-width:100%%;height:auto">
<style>:root{--chart-ink:#222;--chart-rule:#ddd}@media(prefers-color-scheme:dark){:root{--chart-ink:#ddd;--chart-rule:#444}}</style>
<g style="font:10px 'Liberation Sans',Arial,sans-serif;fill:var(--chart-ink)">
`, width, end+bottom, width, end+bottom, title)
	text := func(x, y float64, anchor, words string) {
		fmt.Fprintf(&s, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(words))
	}
	line := func(x1, y1, x2, y2 float64, style string) {
		fmt.Fprintf(&s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" style="%s"/>`+"\n", x1, y1, x2, y2, style)
	}
	fmt.Fprintf(&s, `<text x="%d" y="16" text-anchor="middle" font-size="13">%s</text>`+"\n", width/2, title)
	for v := 0.0; v <= most; v += step(most) {
		line(x(v), top, x(v), end, "stroke:var(--chart-rule)")
		text(x(v), end+14, "middle", short(v))
	}
	for i, b := range c.Bars {
		y := float64(top + row*i)
		colour := "#8a8a8a"
		if b.Main {
			colour = "#0072b2" // of Okabe and Ito: seen by those who don't see red or green
		}
		v := finite(b.Value)
		fmt.Fprintf(&s, `<rect x="%.1f" y="%.1f" width="%.1f" height="12" fill="%s"/>`+"\n", left, y+4, x(v)-left, colour)
		text(left-6, y+14, "end", b.Name)
		text(x(v)+4, y+14, "start", figure(v))
	}
	line(left, end, width-24, end, "stroke:var(--chart-ink)")
	if c.Mark > 0 {
		line(x(c.Mark), top-4, x(c.Mark), end, "stroke:var(--chart-ink);stroke-width:.8;stroke-dasharray:3 2")
	}
	text((left+width-24)/2, end+34, "middle", c.X)
	s.WriteString("</g></svg>\n")
	return []byte(s.String())
}

func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0
	}
	return v
}

// step is the distance of the marks: 1, 2 or 5 times a power of ten, about five of them.
func step(most float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(most/5)))
	for _, n := range []float64{1, 2, 5} {
		if most/(n*unit) <= 6 {
			return n * unit
		}
	}
	return 10 * unit
}

// short formats a number to fit under a mark.
func short(x float64) string {
	switch {
	case x >= 1e6:
		return strconv.FormatFloat(x/1e6, 'g', 3, 64) + " M"
	case x >= 1e4:
		return strconv.FormatFloat(x/1e3, 'g', 3, 64) + " k"
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

// figure formats a value for the end of its bar.
func figure(x float64) string {
	if x >= 100 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}
