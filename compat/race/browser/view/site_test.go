package view_test

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/chromium"
	"github.com/setnxlock/setnxlock/compat/race/internal/tracetest"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

func testSite(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "site")
	all := tracetest.Read(t, renders)
	survives := all["double-takeover"]
	survives.Scenario, survives.Title, survives.Verdict, survives.Algorithm = "", "GETSET tells the second client", race.Verdict{}, "rw:read/published+rw:read/published+rw:write/published" // wider than a telephone
	survives.Events = survives.Events[:5]
	found := all["paused-holder"]
	found.Scenario = ""
	bounds := "2 clients × 2 attempts, one lost reply: 12,336 states"
	err := view.Site(dir, "", []view.Page{
		{Trace: all["paused-holder"]},
		{Trace: all["lost-reply"], Starred: true, Order: 12, Exercise: "Find a schedule of four words that breaks progress."},
		{Trace: all["double-takeover"], Starred: true, Order: 2, Survives: &survives},
		{Trace: all["release-after-expiry"], Starred: true, Order: 9},
	}, view.SiteTable{
		Title: "Redis 2.4", Note: "Two clients.", Columns: []string{"no fault", "a lost reply", "a pause"},
		Rows: []view.SiteRow{
			{Name: "getset:naive-del", Cells: []view.SiteCell{{Text: "breaks exclusion", Class: "breaks", Race: "getset/double-takeover"}, {Text: "unknown", Class: "unknown", Bounds: "memory was used up after 10,000,000 states"}, {Text: "–"}}},
			{Name: "tx:classic", Cells: []view.SiteCell{{Text: "holds", Class: "holds", Bounds: bounds}, {Text: "breaks progress", Class: "breaks", Race: "any/lost-reply"}, {Text: "breaks fencing", Class: "breaks", Trace: &found}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSite(t *testing.T) {
	dir := testSite(t)
	var got []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	want := []string{
		"any-lost-reply.html", "any-lost-reply.json", "any-paused-holder.html", "any-paused-holder.json",
		"any-release-after-expiry.html", "any-release-after-expiry.json",
		"counterexample-1-tx-classic-a-pause.html", "counterexample-1-tx-classic-a-pause.json",
		"getset-double-takeover.html", "getset-double-takeover.json", "getset-double-takeover.survives.html", "getset-double-takeover.survives.json",
		"guarantees.html", "index.html",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	f, err := os.Open(filepath.Join(dir, "any-lost-reply.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if tr, err := race.ReadTrace(f); err != nil || tr.Scenario != "any/lost-reply" {
		t.Errorf("%q, %v", tr.Scenario, err)
	}
}

// A reader goes through the course from the index, and from each cell of the
// table to what it says; every link leads to a page.
func TestSiteInBrowser(t *testing.T) {
	dir := testSite(t)
	p := openPage(t, chromium.Start(t), (&url.URL{Scheme: "file", Path: filepath.Join(dir, "index.html")}).String())
	p.shot("site-index")
	titles := eval[[]string](p, `[...document.querySelectorAll(".races h3")].map(e => e.textContent)`)
	all := tracetest.Read(t, renders)
	if want := []string{view.Titled(all["double-takeover"].Title), view.Titled(all["release-after-expiry"].Title), view.Titled(all["lost-reply"].Title), view.Titled(all["paused-holder"].Title)}; !slices.Equal(titles, want) {
		t.Errorf("teaching order: got %q, want %q", titles, want)
	}
	for i, title := range titles {
		link := "nav a[rel=next]"
		if i == 0 {
			link = ".races a"
		}
		p.run(chromedp.Navigate(eval[string](p, "document.querySelector("+quoteJS(link)+").href")))
		p.expect("title", p.text("h1"), title)
	}
	p.run(chromedp.Navigate((&url.URL{Scheme: "file", Path: filepath.Join(dir, "guarantees.html")}).String()))
	p.shot("site-guarantees")
	p.run(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll("details").forEach(d => { d.open = true })`)) // each lock is folded away
	if got := p.text("table"); !strings.Contains(got, "12,336 states") {
		t.Errorf("no bounds in %q", got)
	}
	p.run(chromedp.EmulateViewport(360, 800))
	files, _ := filepath.Glob(filepath.Join(dir, "*.html"))
	for _, name := range files {
		p.run(chromedp.Navigate((&url.URL{Scheme: "file", Path: name}).String()))
		p.shot("site-360-" + filepath.Base(name))
		if over := eval[int](p, "document.documentElement.scrollWidth"); over > 360 {
			t.Errorf("%s: %d pixels wide in 360", filepath.Base(name), over)
		}
		for _, href := range eval[[]string](p, `[...document.querySelectorAll("a[href]")].map(e => e.getAttribute("href"))`) {
			if strings.Contains(href, "://") || strings.HasPrefix(href, "#") {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, href)); err != nil {
				t.Errorf("%s: %v", filepath.Base(name), err)
			}
		}
	}
}
