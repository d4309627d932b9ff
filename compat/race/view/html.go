//go:build !js

package view

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"io"
	"reflect"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
)

//go:embed page
var pageFiles embed.FS

// HTML writes the trace as one page that needs nothing else: it is opened from
// a disk, stepped with the keyboard and printed. A trace with a Fork can be
// left at any step for another way on. Without JavaScript the page shows the
// timeline.
//
// A trace with an Objective is to be solved: of its steps only those are shown that
// the reader has come to or asked for, and its argument is folded away.
//
// The page's policy forbids it to load anything, or to run any script but its
// own: what stands in a trace was perhaps written by a stranger.
func HTML(w io.Writer, t race.Trace) error {
	return writePage(w, t, pageContext{})
}

// A pageContext is what a page has when it stands in a site.
type pageContext struct {
	Nav      *pageNav
	Survives string // file of the same race on a lock that survives it
	Exercise string
	JSON     string // file of the trace

	Workbench string // file and fragment that go on from the trace
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
	script := asset("page.js")
	hash := sha256.Sum256([]byte(script))
	var title writer
	title.with("%s: ", t.Scenario)
	title.put("%s", Titled(t.Title))
	_, err = w.Write(fill("page.html", map[string]markup{
		"hash":     markup("sha256-" + base64.StdEncoding.EncodeToString(hash[:])),
		"title":    title.markup(),
		"style":    markup(Style()),
		"nav":      navigation(c.Nav),
		"header":   header(t),
		"picture":  markup(Picture(t)), // which escapes what comes from the trace
		"timeline": unscripted(t),
		"article":  article(t, c),
		"data":     markup(data),
		"script":   markup(script),
	}))
	return err
}

// navigation leads to the pages before and after this one.
func navigation(nav *pageNav) markup {
	if nav == nil {
		return ""
	}
	var w writer
	w.put(`<nav class="site">`)
	if l := nav.Prev; l != nil {
		w.put(`<a rel="prev" href="%s">← %s</a>`, address(l.File), l.Name)
	} else {
		w.put(`<span></span>`)
	}
	w.put(`<a href="index.html">all races</a>`)
	if l := nav.Next; l != nil {
		w.put(`<a rel="next" href="%s">%s →</a>`, address(l.File), l.Name)
	} else {
		w.put(`<span></span>`)
	}
	w.put("</nav>\n")
	return w.markup()
}

// header is what a page begins with: what it is about.
func header(t race.Trace) markup {
	var w writer
	w.with("<p class=\"name\">%s</p>\n", t.Scenario)
	w.put("<h1>%s</h1>\n", Titled(t.Title))
	w.with("<p class=\"objective\"><b>Objective</b> %s</p>\n", t.Objective)
	for text := range strings.SplitSeq(t.Text, "\n\n") {
		w.with("<p class=\"intro\">%s</p>\n", strings.TrimSpace(text))
	}
	w.put("<p class=\"setting\">%s</p>\n", setting(t))
	for _, c := range t.Clients {
		w.with("<p class=\"setting\">%s</p>\n", peculiar(c))
	}
	return w.markup()
}

// unscripted is the trace for a browser without JavaScript.
func unscripted(t race.Trace) markup {
	var w writer
	text := Timeline(t, TimelineOptions{})
	if t.Objective != "" {
		w.put("<details><summary>The solution</summary><pre>%s</pre></details>", text)
	} else {
		w.put("<pre>%s</pre>", text)
	}
	return w.markup()
}

// article is what is said below the steps: why, and what to do about it.
func article(t race.Trace, c pageContext) markup {
	var w writer
	if t.Objective != "" {
		w.put("<details id=\"solution\"><summary>Why it breaks, and what helps</summary>\n")
	}
	if a := t.Argument; !reflect.ValueOf(a).IsZero() {
		w.put("<h2>The argument</h2>\n<dl id=\"argument\">\n")
		for _, part := range []struct {
			name  string
			texts []string
		}{{"Let", a.Let}, {"Then", a.Then}, {"So", one(a.So)}, {"Fix", one(a.Fix)}} {
			if len(part.texts) > 0 {
				w.put("<dt>%s</dt><dd>", part.name)
				w.each("<p>%s</p>", part.texts)
				w.put("</dd>\n")
			}
		}
		w.put("</dl>\n")
	}
	w.with("<h2>What our library does instead</h2>\n<p>%s</p>\n", t.Instead)
	w.with("<p><a href=\"%s\">The same race with it</a></p>\n", c.Survives)
	if t.Schedule != "" {
		w.put("<h2>Replay</h2>\n<p class=\"replay\"><code id=\"replay\">%s</code> <button id=\"copy\" hidden>copy</button></p>\n", t.ReplayLine())
	}
	if t.Objective != "" {
		w.put("</details>\n")
	}
	w.with("<h2>Exercise</h2>\n<p>%s</p>\n", c.Exercise)
	w.with("<h2>On which servers</h2>\n<p>%s</p>\n", strings.Join(t.Servers, ", "))
	if len(t.Sources) > 0 {
		w.put("<h2>Sources</h2>\n<ul>")
		for _, s := range t.Sources {
			if s.URL != "" {
				w.put("\n<li><a rel=\"noreferrer\" href=\"%s\">%s</a></li>", address(s.URL), s.Name)
			} else {
				w.put("\n<li>%s</li>", s.Name)
			}
		}
		w.put("\n</ul>\n")
	}
	w.with("<p><a href=\"%s\">Go on from here in the workbench</a></p>\n", c.Workbench)
	w.with("<p><a href=\"%s\">This trace as JSON</a></p>\n", c.JSON)
	return w.markup()
}

// one is a text in a list, if there is one.
func one(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// Style is what the pages look like, for others that are to look like them: CSS.
func Style() string { return asset("page.css") }

func asset(name string) string {
	b, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}
