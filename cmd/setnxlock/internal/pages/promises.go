//go:build !js

package pages

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/markup"
)

// guaranteesPage asks for the reader's server and faults; below the answer stands each lock's table.
func guaranteesPage(guarantees, workbench string) (Question, error) {
	g, err := readTables(guarantees)
	if err != nil {
		return Question{}, err
	}
	data, err := json.Marshal(g) // which writes <, > and & as \u003c and so on: no </script> can end it
	if err != nil {
		return Question{}, err
	}
	var w markup.Writer
	w.Put("%s", markup.Fill(guaranteesHTML, map[string]markup.HTML{"data": markup.HTML(data)}))
	w.Put("<details class=\"lock\"><summary>The faults, and the bounds within which each was tried</summary>\n")
	w.Put("<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"The faults\"><table>\n")
	w.Put("<thead><tr><th>fault</th><th>what goes wrong</th><th>bounds: two clients, and more</th></tr></thead>\n")
	w.Put("<tbody>\n")
	for _, f := range g.Faults {
		w.Put("<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td></tr>\n", f.Name, f.Says, f.Bounds)
	}
	w.Put("</tbody>\n</table></div>\n</details>\n")
	for _, l := range g.Locks {
		l.put(&w, g.Faults, workbench)
	}
	return Question{
		File: "guarantees.html", Title: "What Each Lock Promises",
		Says: "My server, my faults: which lock holds there, within which bounds",
		Body: w.HTML(), Script: guaranteesJS,
	}, nil
}

// put writes a lock's table, folded, and the ways to break it.
func (l lockTable) put(w *markup.Writer, faults []faultRow, workbench string) {
	id := slug(l.Name)
	w.Put("<details class=\"lock\" id=\"%s\"><summary>%s</summary>\n<p>%s.</p>\n", id, l.Name, l.About)
	w.Put("<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"%s\"><table>\n<thead><tr><td></td>", l.Name)
	for _, c := range l.Columns {
		w.Put(`<th scope="col">%s</th>`, strings.Join(c.Servers, ", "))
	}
	w.Put("</tr></thead>\n<tbody>\n")
	for _, f := range faults {
		if l.Columns[0].Verdicts[f.Name] == "" {
			continue // it was not asked
		}
		w.Put(`<tr><th scope="row">%s</th>`, f.Name)
		for _, c := range l.Columns {
			switch v := c.Verdicts[f.Name]; {
			case v == "holds":
				w.Put(`<td class="holds"><b>holds</b><small>%s states</small></td>`, c.states[f.Name])
			case v == "refused", v == "":
				w.Put("<td>%s</td>", v)
			case v == noRoom:
				w.Put(`<td class="unknown"><b>%s</b></td>`, v)
			default:
				var breaks []string
				for invariant := range strings.SplitSeq(v, ", ") {
					breaks = append(breaks, string(link(l.anchor(invariant, f.Name), invariant)))
				}
				w.Put(`<td class="breaks"><b>breaks</b> %s</td>`, markup.HTML(strings.Join(breaks, ", ")))
			}
		}
		w.Put("</tr>\n")
	}
	w.Put("</tbody>\n</table></div>\n")
	if len(l.ways) > 0 {
		w.Put("<ol class=\"ways\">\n")
	}
	for i, way := range l.ways {
		w.Put("<li id=\"%s-%d\"><i>%s</i> (%s): ", id, i+1, way.invariant, strings.Join(way.faults, ", "))
		w.Put("%s, in %d steps: ", way.text, way.steps)
		if workbench != "" {
			to := workbench + "#" + Fragment(way.schedule)
			w.Put("<a href=\"%s\"><code>%s</code></a>", to, markup.HTML(Words(way.schedule)))
		} else {
			w.Put("<code>setnxlock race replay &#39;%s&#39;</code>", markup.HTML(Words(way.schedule)))
		}
		if way.race != "" {
			w.Put(" (%s)", link(slug(way.race)+".html", way.race))
		}
		w.Put("</li>\n")
	}
	if len(l.ways) > 0 {
		w.Put("</ol>\n")
	}
	w.Put("</details>\n")
}

// anchor names the page's place for a way to break an invariant under a fault; "": there is none.
func (l lockTable) anchor(invariant, fault string) string {
	i := l.way(invariant, fault)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("#%s-%d", slug(l.Name), i+1)
}
