//go:build !js

package view

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"io"
	"reflect"
	"strings"
	"sync"

	"github.com/setnxlock/setnxlock/compat/race"
)

//go:embed page
var pageFiles embed.FS

// pages are the templates of the folder page. html/template escapes what comes
// from a trace by where it stands.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{"titled": Titled}).ParseFS(pageFiles, "page/*.html"))
})

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
	page := struct {
		pageContext
		Trace      race.Trace
		Title      string
		Setting    string
		About      []string
		Intro      []string // paragraphs
		Picture    template.HTML
		Text       string
		Replay     string
		Argument   bool
		Data       template.JS
		Style      template.CSS
		Script     template.JS
		ScriptHash string
	}{
		pageContext: c,
		Trace:       t,
		Title:       Titled(t.Title),
		Setting:     setting(t),
		Picture:     template.HTML(Picture(t)), // which escapes what comes from the trace
		Text:        Timeline(t, TimelineOptions{}),
		Argument:    !reflect.ValueOf(t.Argument).IsZero(),
		Data:        template.JS(data),
		Style:       template.CSS(asset("page.css")),
		Script:      template.JS(script),
		ScriptHash:  "sha256-" + base64.StdEncoding.EncodeToString(hash[:]),
	}
	for _, text := range strings.Split(t.Text, "\n\n") {
		if text = strings.TrimSpace(text); text != "" {
			page.Intro = append(page.Intro, text)
		}
	}
	for _, c := range t.Clients {
		if s := peculiar(c); s != "" {
			page.About = append(page.About, s)
		}
	}
	if t.Schedule != "" {
		page.Replay = t.ReplayLine()
	}
	return pages().ExecuteTemplate(w, "page.html", page)
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
