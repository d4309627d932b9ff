//go:build !js

package pages

import (
	_ "embed"
	"encoding/json"
	"io"
	"reflect"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/markup"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// The files of the pages.
var (
	//go:embed page/page.html
	pageHTML string
	//go:embed page/page.js
	pageJS string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/site.css
	siteCSS string
	//go:embed page/guarantees.html
	guaranteesHTML string
	//go:embed page/guarantees.js
	guaranteesJS string
)

// Lanes is the script for a trace as lanes: its global Lanes.
//
//go:embed page/lanes.js
var Lanes string

// HTML writes the trace as one page without other files: to be opened from a disk, stepped with the
// keyboard and printed. Without JavaScript the page shows the timeline.
//
// A trace with an Objective is a puzzle: the page shows only the steps that the reader has reached
// or asked for, and hides the argument.
//
// The page's policy forbids it to load anything, or to run any script but its own, because a
// stranger may have written the trace.
func HTML(w io.Writer, t race.Trace) error {
	return writePage(w, t, pageContext{})
}

// A pageContext is what a page has when it stands in a site.
type pageContext struct {
	Nav      *pageNav
	Survives string // file of the same race on a lock that survives it
	Exercise string
	Level    bool   // the workbench has it as a level
	Where    string // with which lock and on which servers the race was shown
	JSON     string // file of the trace

	Workbench string // file that goes on from a schedule
}

type pageNav struct{ Prev, Next *pageLink }

type pageLink struct{ File, Name string }

func writePage(w io.Writer, t race.Trace, c pageContext) error {
	t.Format = race.TraceFormat
	// Marshal writes <, > and & as \u003c and so on: no </script> can end the data.
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	title := upperFirst(t.Title)
	if t.Scenario != "" {
		title = t.Scenario + ": " + title
	}
	body := markup.Fill(pageHTML, map[string]markup.HTML{
		"nav":      navigation(c.Nav),
		"header":   header(t),
		"picture":  markup.HTML(Picture(t)), // which escapes what comes from the trace
		"other":    other(t, c.Workbench),
		"timeline": unscripted(t),
		"article":  article(t, c),
		"data":     markup.HTML(data),
	})
	page := markup.Page{Title: title}
	if c.JSON != "" { // in a site
		body += "<script src=\"" + raceScript + "\"></script>\n"
		page.Allow, page.Sheets = []string{FileScripts, "frame-src 'self' file:"}, []string{Sheet}
	} else {
		script := Lanes + pageJS
		body += "<script>" + markup.HTML(script) + "</script>\n"
		page.Allow, page.Style = []string{"script-src " + markup.Script(script)}, pageCSS
	}
	page.Body = body
	_, err = w.Write(page.Document())
	return err
}

// navigation leads to the pages before and after this one.
func navigation(nav *pageNav) markup.HTML {
	if nav == nil {
		return ""
	}
	var w markup.Writer
	w.Put(`<nav class="site">`)
	if l := nav.Prev; l != nil {
		w.Put(`<a rel="prev" href="%s">← %s</a>`, markup.Address(l.File), l.Name)
	} else {
		w.Put(`<span></span>`)
	}
	w.Put(`<a href="index.html">all races</a>`)
	if l := nav.Next; l != nil {
		w.Put(`<a rel="next" href="%s">%s →</a>`, markup.Address(l.File), l.Name)
	} else {
		w.Put(`<span></span>`)
	}
	w.Put("</nav>\n")
	return w.HTML()
}

// header writes the head of a page: name, objective, setting.
func header(t race.Trace) markup.HTML {
	var w markup.Writer
	w.With("<p class=\"name\">%s</p>\n", t.Scenario)
	w.Put("<h1>%s</h1>\n", upperFirst(t.Title))
	w.With("<p class=\"objective\"><b>Objective</b> %s</p>\n", t.Objective)
	for text := range strings.SplitSeq(t.Text, "\n\n") {
		w.With("<p class=\"intro\">%s</p>\n", strings.TrimSpace(text))
	}
	w.Put("<p class=\"setting\">%s</p>\n", view.Setting(t))
	for _, c := range t.Clients {
		w.With("<p class=\"setting\">%s</p>\n", view.Peculiar(c))
	}
	return w.HTML()
}

// unscripted writes the trace for a browser without JavaScript.
func unscripted(t race.Trace) markup.HTML {
	var w markup.Writer
	text := view.Timeline(t, view.TimelineOptions{})
	if t.Objective != "" {
		w.Put("<details><summary>The solution</summary><pre>%s</pre></details>", text)
	} else {
		w.Put("<pre>%s</pre>", text)
	}
	return w.HTML()
}

// other leads to a game with another next step.
func other(t race.Trace, workbench string) markup.HTML {
	if t.Schedule == "" {
		return ""
	}
	head, _, _ := strings.Cut(t.Schedule, " :")
	game := Fragment(head + " :")
	embed := "#embed="
	if t.Verdict.Violated != "" { // others may begin alike: the name says which of them it is
		game, embed = t.Scenario+"="+game, "#embed,"
	}
	var w markup.Writer
	w.Put("<p id=\"other\">Play it yourself: ")
	if workbench != "" {
		w.Put("<a href=\"%s\">in the workbench</a>", workbench+"#"+game)
		w.Put(" <button id=\"play\" data-src=\"%s\">play it here</button>", workbench+embed+game)
	} else {
		play := "--algorithm " + t.Algorithm + " --server " + t.Server
		if t.Scenario != "" {
			play = t.Scenario
		}
		w.Put("<code>setnxlock race play %s</code>", markup.HTML(Words(play)))
	}
	w.Put("</p>\n")
	return w.HTML()
}

// article writes the text below the steps: why, and the remedies.
func article(t race.Trace, c pageContext) markup.HTML {
	var w markup.Writer
	if t.Objective != "" {
		w.Put("<details id=\"solution\"><summary>Why it breaks, and what helps</summary>\n")
	}
	if a := t.Argument; !reflect.ValueOf(a).IsZero() {
		w.Put("<h2>The argument</h2>\n<dl id=\"argument\">\n")
		for _, part := range []struct {
			name  string
			texts []string
		}{{"Let", a.Let}, {"Then", a.Then}, {"So", one(a.So)}, {"Fix", one(a.Fix)}} {
			if len(part.texts) > 0 {
				w.Put("<dt>%s</dt><dd>", part.name)
				w.Each("<p>%s</p>", part.texts)
				w.Put("</dd>\n")
			}
		}
		w.Put("</dl>\n")
	}
	w.With("<h2>What our library does instead</h2>\n<p>%s</p>\n", t.Instead)
	w.With("<p><a href=\"%s\">The same race with it</a></p>\n", c.Survives)
	if t.Schedule != "" {
		w.Put("<h2>Replay</h2>\n<p class=\"replay\"><code id=\"replay\">%s</code> <button id=\"copy\" hidden>copy</button></p>\n", markup.HTML(Words(t.ReplayLine())))
	}
	if t.Objective != "" {
		w.Put("</details>\n")
	}
	if c.Exercise != "" {
		w.Put("<section id=\"exercise\"><h2>Exercise</h2>\n<p>%s</p>\n", c.Exercise)
		if head, _, _ := strings.Cut(t.Schedule, " :"); c.Workbench != "" && c.Level {
			w.Put("<p><button id=\"solve\" data-src=\"%s\">solve it here, checked</button></p>\n", c.Workbench+"#embed,exercise="+Fragment(head+" :"))
		}
		w.Put("</section>\n")
	}
	if c.Where == "" && len(t.Servers) > 0 {
		c.Where = "Shown with " + t.Algorithm + " on " + strings.Join(t.Servers, ", ") + "."
	}
	w.With("<h2>Where</h2>\n<p>%s</p>\n", c.Where)
	if len(t.Sources) > 0 {
		w.Put("<h2>Sources</h2>\n<ul>")
		for _, s := range t.Sources {
			if s.URL != "" {
				w.Put("\n<li><a rel=\"noreferrer\" href=\"%s\">%s</a></li>", markup.Address(s.URL), s.Name)
			} else {
				w.Put("\n<li>%s</li>", s.Name)
			}
		}
		w.Put("\n</ul>\n")
	}
	if c.Workbench != "" && t.Schedule != "" {
		w.Put("<p><a href=\"%s\">Go on from here in the workbench</a></p>\n", c.Workbench+"#"+Fragment(t.Schedule))
	}
	w.With("<p><a href=\"%s\">This trace as JSON</a></p>\n", c.JSON)
	return w.HTML()
}

// one puts a text into a list, if there is one.
func one(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// upperFirst begins a sentence, unless with the name of a lock.
func upperFirst(s string) string {
	if word, _, _ := strings.Cut(s, " "); s == "" || strings.Contains(word, ":") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
