package view_test

import (
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/chromium"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/npm"
)

// No page of a site is out of reach for some of its readers, as far as axe-core can tell.
func TestAxe(t *testing.T) {
	script, err := os.ReadFile(npm.Axe(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := testSite(t)
	browser := chromium.Start(t)
	for _, name := range []string{"index.html", "guarantees.html", "getset-double-takeover.html", "getset-double-takeover.survives.html", "any-lost-reply.html"} {
		p := openPage(t, browser, (&url.URL{Scheme: "file", Path: filepath.Join(dir, name)}).String())
		p.run(chromedp.Evaluate[chromedp.Void](string(script) + ";0"))
		for _, scheme := range []string{"light", "dark"} {
			p.run(chromium.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
			for _, width := range []int64{1280, 390} {
				p.run(chromedp.EmulateViewport(width, 844))
				found, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](npm.AxeFindings, chromedp.EvalAwaitPromise))
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					t.Errorf("%s, %s, %d px: %s", name, scheme, width, f)
				}
			}
		}
	}
}
