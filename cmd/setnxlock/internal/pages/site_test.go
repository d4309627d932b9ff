package pages

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
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/traces"
)

// A site has a page and a JSON file for each race, and each link of it leads to one of its files.
func TestSite(t *testing.T) {
	dir, all := t.TempDir(), traces.Saved(t, renders)
	survives := all["double-takeover"]
	survives.Scenario = ""
	// Of the stored guarantees one lock, whose ways lead to no race.
	before, locks, _ := strings.Cut(Stored, "\n## tx:guarded\n")
	rows, _, _ := strings.Cut(before, "\n## getset:classic\n")
	lock, _, _ := strings.Cut(locks, "\n## ")
	guarantees := rows + "\n## tx:guarded\n" + regexp.MustCompile(` \(\[.*?\]\(.*?\)\)`).ReplaceAllString(lock, "")
	must.Do(t, Site(dir, "", guarantees, []Page{
		{Trace: all["paused-holder"]},
		{Trace: all["lost-reply"], Lecture: 1, Order: 12},
		{Trace: all["double-takeover"], Lecture: 1, Order: 2, Survives: &survives},
		{Trace: all["release-after-expiry"], Lecture: 1, Order: 9},
	}, Question{File: "asked.html", Title: "Asked", Says: "Ask", Body: "<p>It.</p>\n", Script: "'use strict'"}))
	files := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t)
	var got []string
	for _, file := range files {
		got = append(got, filepath.Base(file))
	}
	want := []string{
		"any-lost-reply.html", "any-lost-reply.json", "any-paused-holder.html", "any-paused-holder.json",
		"any-release-after-expiry.html", "any-release-after-expiry.json", "asked.html", "asked.js",
		"getset-double-takeover.html", "getset-double-takeover.json",
		"getset-double-takeover.survives.html", "getset-double-takeover.survives.json",
		"guarantees.html", "guarantees.js", "index.html", "races.css", "races.js",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	links := 0
	for _, file := range files {
		b := must.Get(os.ReadFile(file))(t)
		if strings.HasSuffix(file, ".json") {
			if _, err := race.ReadTrace(bytes.NewReader(b)); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			continue
		}
		if strings.HasSuffix(file, ".html") && strings.Contains(string(b), "<style>") {
			t.Errorf("%s has a style of its own", filepath.Base(file))
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
	index := must.Get(os.ReadFile(filepath.Join(dir, "index.html")))(t)
	at := -1
	// In the order of teaching.
	for _, name := range []string{"double-takeover", "release-after-expiry", "lost-reply", "paused-holder"} {
		i := strings.Index(string(index), html.EscapeString(upperFirst(all[name].Title)))
		if i <= at {
			t.Errorf("%s is at %d of the index, want it after %d", name, i, at)
		}
		at = i
	}
}

func TestSiteRefuses(t *testing.T) {
	one := Page{Trace: traces.Saved(t, renders)["lost-reply"]}
	index, guarantees := one, one
	index.Trace.Scenario, guarantees.Trace.Scenario = "../index", "guarantees"
	for want, f := range map[string]func(dir string) error{
		"would both be":      func(dir string) error { return Site(dir, "", Stored, []Page{one, one}) },
		`named "../index"`:   func(dir string) error { return Site(dir, "", Stored, []Page{index}) },
		`named "guarantees"`: func(dir string) error { return Site(dir, "", Stored, []Page{guarantees}) },
		"no guarantees":      func(dir string) error { return Site(dir, "", "# Guarantees\n", []Page{one}) },
	} {
		if err := f(t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// A page leads to its beginning and to its end in the workbench: no address passes that could be taken for
// a scheme of its own.
func TestLinkToTheWorkbench(t *testing.T) {
	dir := t.TempDir()
	for name, tr := range traces.Saved(t, renders) {
		if tr.Schedule == "" {
			continue
		}
		must.Do(t, Site(dir, "workbench.html", Stored, []Page{{Trace: tr}}))
		b := must.Get(os.ReadFile(filepath.Join(dir, slug(tr.Scenario)+".html")))(t)
		head, _, _ := strings.Cut(tr.Schedule, " :")
		links := regexp.MustCompile(`<a href="workbench\.html#(.*?)"`).FindAllStringSubmatch(string(b), -1)
		begins := head + " :"
		if tr.Verdict.Violated != "" {
			begins = tr.Scenario + "=" + begins // which of the races that begin so
		}
		for i, want := range []string{begins, tr.Schedule} { // from the beginning, and from the end
			if len(links) != 2 {
				t.Fatalf("%s: links %q", name, links)
			}
			if got, err := url.PathUnescape(html.UnescapeString(links[i][1])); err != nil || got != want {
				t.Errorf("%s: the link leads to %q (%v), want %q", name, got, err, want)
			}
		}
	}
}
