package bars

import (
	_ "embed"

	"github.com/setnxlock/setnxlock/compat/internal/markup"
)

//go:embed page.css
var style string

// A Page is a measurement: a table, and charts below it.
type Page struct {
	Title  string
	Head   []string
	Rows   [][]string
	Says   []string // what the figures are, a paragraph each
	Wrong  []string // what went wrong
	Charts []Chart  // those without bars are left out
	Foot   string   // what measured
}

// HTML is the page, which needs nothing else.
func (p Page) HTML() []byte {
	var w markup.Writer
	w.Put("<h1>%s</h1>\n<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"%s\"><table>\n<thead><tr>", p.Title, p.Title)
	w.Each(`<th scope="col">%s</th>`, p.Head)
	w.Put("</tr></thead>\n<tbody>")
	for _, row := range p.Rows {
		w.Put("\n<tr>")
		w.Each("<td>%s</td>", row)
		w.Put("</tr>")
	}
	w.Put("\n</tbody>\n</table></div>\n")
	w.Each("<p>%s</p>\n", p.Says)
	w.Each("<p class=\"note\">%s</p>\n", p.Wrong)
	w.Put("<div class=\"plots\">\n")
	for _, c := range p.Charts {
		if len(c.Bars) > 0 {
			w.Put("<figure>%s</figure>\n", markup.HTML(c.SVG()))
		}
	}
	w.Put("</div>\n<p>%s</p>\n", p.Foot)
	return markup.Page{Title: p.Title, Style: style, Body: w.HTML()}.Document()
}
