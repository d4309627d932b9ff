package view

import (
	"html"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/internal/tracetest"
)

func TestSiteRefuses(t *testing.T) {
	one := Page{Trace: tracetest.Read(t, renders)["lost-reply"]}
	table := func(c SiteCell) SiteTable {
		return SiteTable{Title: "T", Columns: []string{"c"}, Rows: []SiteRow{{"r", []SiteCell{c}}}}
	}
	index := one
	index.Trace.Scenario = "../index"
	for want, f := range map[string]func(dir string) error{
		"would both be":             func(dir string) error { return Site(dir, "", []Page{one, one}) },
		"can't be named":            func(dir string) error { return Site(dir, "", []Page{index}) },
		"which is no page":          func(dir string) error { return Site(dir, "", nil, table(SiteCell{Class: "breaks", Race: "no/where"})) },
		"neither a race nor bounds": func(dir string) error { return Site(dir, "", nil, table(SiteCell{Text: "holds", Class: "holds"})) },
		"cells for": func(dir string) error {
			return Site(dir, "", nil, SiteTable{Rows: []SiteRow{{"r", make([]SiteCell, 1)}}})
		},
	} {
		if err := f(t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// A page leads to its state in the workbench: no address passes that could be taken for
// a scheme of its own.
func TestLinkToTheWorkbench(t *testing.T) {
	dir := t.TempDir()
	for name, tr := range tracetest.Read(t, renders) {
		if tr.Schedule == "" {
			continue
		}
		if err := Site(dir, "workbench.html", []Page{{Trace: tr}}); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, slug(tr.Scenario)+".html"))
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(b), `<a href="workbench.html#`)
		link, _, _ := strings.Cut(after, `"`)
		if got, err := url.PathUnescape(html.UnescapeString(link)); err != nil || got != tr.Schedule {
			t.Errorf("%s: the link leads to %q (%v), want %q", name, got, err, tr.Schedule)
		}
	}
}
