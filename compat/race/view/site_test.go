package view

import (
	"bytes"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/internal/tracetest"
)

// A site has a page and a JSON file for each race, and each link of it leads to one of its files.
func TestSite(t *testing.T) {
	dir, all := t.TempDir(), tracetest.Read(t, renders)
	survives, found := all["double-takeover"], all["paused-holder"]
	survives.Scenario, found.Scenario = "", ""
	err := Site(dir, "", []Page{
		{Trace: all["paused-holder"]},
		{Trace: all["lost-reply"], Starred: true, Order: 12},
		{Trace: all["double-takeover"], Starred: true, Order: 2, Survives: &survives},
		{Trace: all["release-after-expiry"], Starred: true, Order: 9},
	}, SiteTable{Title: "tx:classic", Columns: []string{"2.4"}, Rows: []SiteRow{
		{Name: "none", Cells: []SiteCell{{Text: "holds", Class: "holds", Bounds: "2 clients: 12,336 states"}}},
		{Name: "lost reply", Cells: []SiteCell{{Text: "breaks progress", Class: "breaks", Race: "any/lost-reply"}}},
		{Name: "pause", Cells: []SiteCell{{Text: "breaks fencing", Class: "breaks", Trace: &found}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range files {
		got = append(got, filepath.Base(file))
	}
	want := []string{
		"any-lost-reply.html", "any-lost-reply.json", "any-paused-holder.html", "any-paused-holder.json",
		"any-release-after-expiry.html", "any-release-after-expiry.json",
		"counterexample-1-pause-2-4.html", "counterexample-1-pause-2-4.json",
		"getset-double-takeover.html", "getset-double-takeover.json", "getset-double-takeover.survives.html", "getset-double-takeover.survives.json",
		"guarantees.html", "index.html",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	links := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, ".json") {
			if _, err := race.ReadTrace(bytes.NewReader(b)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			continue
		}
		for _, m := range regexp.MustCompile(`(?:href|src)="([^"#:]+)["#]`).FindAllStringSubmatch(string(b), -1) {
			links++
			if !slices.Contains(want, m[1]) {
				t.Errorf("%s links to %s, which is not there", filepath.Base(file), m[1])
			}
		}
	}
	if links < 15 {
		t.Errorf("%d links", links)
	}
	index, err := os.ReadFile(filepath.Join(dir, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, name := range []string{"double-takeover", "release-after-expiry", "lost-reply", "paused-holder"} { // the order of teaching
		i := strings.Index(string(index), html.EscapeString(Titled(all[name].Title)))
		if i <= at {
			t.Errorf("%s is at %d of the index, want it after %d", name, i, at)
		}
		at = i
	}
}

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
