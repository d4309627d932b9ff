package catalogue

import (
	"strings"
	"testing"
	"text/template"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/setnxlock/setnxlock/internal/broken"
	"github.com/setnxlock/setnxlock/internal/must"
)

// bare is the timeline of a trace without what stands above it in its file or on its page.
func bare(t race.Trace) string {
	t.Scenario, t.Title, t.Objective, t.Sources, t.Instead = "", "", "", nil, ""
	return view.Timeline(t, view.TimelineOptions{Width: 100})
}

// pages are the templates of docs/races.
var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"file": file, "mermaid": view.Mermaid, "trim": trim,
	"upper": func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
	"table": func(t race.Trace) string { t.Argument = race.Argument{}; return bare(t) },
	"join":  func(parts []string) string { return trim(strings.ReplaceAll(strings.Join(parts, "; "), ",; ", ", ")) },
	"split": func(algorithm string) []string { return strings.Split(algorithm, "+") },
	"describe": func(name string) string {
		says := race.Describe(name, Locks())
		if strings.HasPrefix(says, "the same") { // as the one above it in a list of them
			return ""
		}
		return says
	},
}).ParseFiles("testdata/pages.tmpl"))

func trim(s string) string    { return strings.TrimSuffix(s, ".") }
func file(name string) string { return strings.ReplaceAll(name, "/", "-") + ".md" }

// page is the scenario as a page of Markdown.
func page(t *testing.T, s Scenario) string {
	t.Helper()
	seen := must.Get(s.Trace())(t)
	survived := must.Get(s.Survivor())(t)
	return fill(t, "page", struct {
		Scenario
		Next           Scenario // if the race is of the course
		Seen, Survived race.Trace
	}{s, All()[s.Star], seen, survived})
}

// index is the page that links to all others.
func index(t *testing.T) string {
	t.Helper()
	var locks [][2]string
	for _, o := range others {
		if strings.HasPrefix(o.name, "other/") {
			locks = append(locks, [2]string{o.name, o.says})
		}
	}
	for _, l := range broken.Locks() {
		locks = append(locks, [2]string{l.Name, l.Says})
	}
	return fill(t, "index", struct {
		Races []Scenario
		Locks [][2]string
	}{All(), locks})
}

func fill(t *testing.T, name string, data any) string {
	t.Helper()
	var b strings.Builder
	must.Do(t, pages.ExecuteTemplate(&b, name, data))
	return b.String()
}
