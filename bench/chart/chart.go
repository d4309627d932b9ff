// Package chart draws the measurements of package workload as lines in SVG (package bars: as bars), for use in a page or by itself:
// light or dark by the reader's theme, with selectable text. gonum/plot does the drawing.
package chart

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Lines is a line chart: values over a range, one line per Series.
type Lines struct {
	Title  string
	X, Y   string // the labels of the axes
	LogX   bool   // each X has a mark; values of 0 and below cannot be shown
	LogY   bool
	FromY0 bool // the Y axis begins at 0; not with LogY
	Series []Series
}

// A Series is one line.
type Series struct {
	Name string
	X, Y []float64
	Main bool // drawn thicker, without gaps
}

// Sizes, in points.
const (
	width  = 620
	height = 330
	legend = 180
)

// Readers who do not see red or green can distinguish these colours (Okabe and Ito); all are
// visible on white and on black.
var colours = []color.RGBA{
	{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255}, {0xcc, 0x79, 0xa7, 255},
	{0x56, 0xb4, 0xe9, 255}, {0xe6, 0x9f, 0x00, 255}, {0x8a, 0x8a, 0x8a, 255}, {0xb0, 0x60, 0x30, 255},
	{0x7a, 0x5c, 0xc8, 255}, {0x4a, 0x90, 0x60, 255}, {0xa0, 0x50, 0x70, 255},
}

// Two placeholder colours that follow the reader's theme: gonum draws text and rules with them, and
// the SVG replaces them.
var (
	ink  = color.RGBA{1, 2, 3, 255}
	rule = color.RGBA{4, 5, 6, 255}
)

var shapes = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{}}

// SVG draws the lines, with a legend beside them.
func (l Lines) SVG() ([]byte, error) {
	p := blank(l.Title)
	p.X.Label.Text, p.Y.Label.Text = l.X, l.Y
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = rule, nil
	p.Add(grid)
	side := plot.NewLegend()
	side.Top, side.Left = true, true
	side.TextStyle = text(10)
	side.ThumbnailWidth = vg.Points(24)
	side.Padding = vg.Points(3)
	side.YOffs = vg.Points(-24)
	for i, s := range l.Series {
		points := make(plotter.XYs, 0, len(s.X))
		for n := range s.X {
			if l.LogX && s.X[n] <= 0 || l.LogY && s.Y[n] <= 0 || math.IsNaN(s.Y[n]) {
				continue
			}
			points = append(points, plotter.XY{X: scaled(l.LogX, s.X[n]), Y: scaled(l.LogY, s.Y[n])})
		}
		if len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		line.Color, dots.Color = colours[i%len(colours)], colours[i%len(colours)]
		dots.Shape, dots.Radius = shapes[i%len(shapes)], vg.Points(2.6)
		line.Width = vg.Points(2)
		if !s.Main {
			line.Width = vg.Points(1.1)
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(2)}
		}
		p.Add(line, dots)
		side.Add(s.Name, line, dots)
	}
	if l.LogX {
		p.X.Tick.Marker = l.marks()
	}
	switch {
	case l.LogY:
		p.Y.Tick.Marker = decades{}
		p.Y.Min, p.Y.Max = math.Floor(p.Y.Min), math.Ceil(p.Y.Max)
	case l.FromY0:
		p.Y.Min, p.Y.Max = 0, p.Y.Max*1.05
		p.Y.Tick.Marker = plain{}
	}
	return render(width, height, l.Title, func(c draw.Canvas) {
		p.Draw(draw.Crop(c, 0, -vg.Points(legend), 0, 0))
		side.Draw(draw.Crop(c, vg.Points(width-legend+4), 0, 0, 0))
	})
}

// scaled returns the position of x on its axis. (plot.LogScale places the axis label, and so the
// margin, as for a linear axis.)
func scaled(log bool, x float64) float64 {
	if log {
		return math.Log10(x)
	}
	return x
}

// marks returns the values of X that occur.
func (l Lines) marks() plot.ConstantTicks {
	var ticks plot.ConstantTicks
	for _, s := range l.Series {
		for _, x := range s.X {
			if x > 0 && !slices.ContainsFunc(ticks, func(t plot.Tick) bool { return t.Label == short(x) }) {
				ticks = append(ticks, plot.Tick{Value: math.Log10(x), Label: short(x)})
			}
		}
	}
	return ticks
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

// decades places the marks 0.1, 1, 10, ... at their logarithms.
type decades struct{}

func (decades) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	for n := math.Floor(low); n <= math.Ceil(high); n++ {
		ticks = append(ticks, plot.Tick{Value: n, Label: short(math.Pow(10, n))})
		for k := 2.0; k < 10; k++ {
			ticks = append(ticks, plot.Tick{Value: n + math.Log10(k)})
		}
	}
	return ticks
}

// plain places the usual marks, with short numbers.
type plain struct{}

func (plain) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

func text(size float64) draw.TextStyle {
	return draw.TextStyle{Color: ink, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, vg.Points(size)), Handler: plot.DefaultTextHandler}
}

// blank returns an empty plot in our style.
func blank(title string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	p.Title.Text = title
	p.Title.TextStyle = text(13)
	p.Title.TextStyle.XAlign = draw.XCenter
	p.Title.TextStyle.YAlign = draw.YTop
	p.Title.Padding = vg.Points(8)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		align := a.Label.TextStyle
		a.Label.TextStyle = text(10.5)
		a.Label.TextStyle.XAlign, a.Label.TextStyle.YAlign, a.Label.TextStyle.Rotation = align.XAlign, align.YAlign, align.Rotation
		align = a.Tick.Label
		a.Tick.Label = text(10)
		a.Tick.Label.XAlign, a.Tick.Label.YAlign, a.Tick.Label.Rotation = align.XAlign, align.YAlign, align.Rotation
		a.Color, a.Tick.Color = ink, ink
	}
	return p
}

var (
	opening = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	inkAs   = regexp.MustCompile(`#010203`)
	ruleAs  = regexp.MustCompile(`#040506`)
	family  = regexp.MustCompile(`font-family:[^;"]*;font-variant:normal;font-weight:normal;font-style:normal`)
)

// render draws onto a canvas and makes the SVG follow the theme, scale to the available width, and
// carry a label.
func render(w, h float64, title string, paint func(draw.Canvas)) ([]byte, error) {
	canvas := vgsvg.New(vg.Points(w), vg.Points(h))
	paint(draw.Crop(draw.New(canvas), vg.Points(6), -vg.Points(8), vg.Points(4), -vg.Points(6)))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	svg := opening.ReplaceAllLiteralString(b.String(), fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img" aria-label=%q style="max-width:100%%;height:auto">
<style>:root{--chart-ink:#222;--chart-rule:#ddd}@media(prefers-color-scheme:dark){:root{--chart-ink:#ddd;--chart-rule:#444}}</style>`, w, h, w, h, escape(title)))
	svg = inkAs.ReplaceAllLiteralString(svg, "var(--chart-ink)")
	svg = ruleAs.ReplaceAllLiteralString(svg, "var(--chart-rule)")
	svg = family.ReplaceAllLiteralString(svg, "font-family:'Liberation Sans',Arial,sans-serif")
	return []byte(svg), nil
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", `"`, "&quot;").Replace(s)
}
