// Package pages_test opens every page of the whole site, as `make site` writes it.
package pages_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/chromium"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/npm"
	"github.com/setnxlock/setnxlock/compat/race/workbench"
)

var (
	site = flag.String("site", "", "a folder in which make site has written the site; else it is written anew")
	only = flag.String("pages", "", "of these pages alone: a pattern, as races/getset-*.html")
)

// look is JavaScript: what is wrong with a page as it is laid out now. Text is beyond the window's
// edge; text is cut off by its box, or scrolls in it although there is room beside it; a word is torn
// in two although it would have room on a line of its own.
const look = `(() => {
	const found = [], name = e => e.tagName.toLowerCase() + (e.id ? "#" + e.id : "") + (e.className && e.className.baseVal === undefined ? "." + e.className : "")
	const shown = e => e.checkVisibility({visibilityProperty: true, opacityProperty: true})
	const wide = document.documentElement.scrollWidth
	if (wide > innerWidth) {
		found.push("the page is " + wide + " wide")
		for (const e of document.body.querySelectorAll("*")) if (shown(e) && e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("svg") && ![...e.children].some(c => c.getBoundingClientRect().right > innerWidth + 1)) { found.push("beyond the edge: " + name(e) + " " + e.textContent.slice(0, 60)); break }
	}
	for (const e of document.body.querySelectorAll("*")) {
		if (!shown(e) || e.closest("svg")) continue
		const s = getComputedStyle(e)
		if ((s.overflowX === "hidden" || s.overflowX === "clip") && e.scrollWidth > e.clientWidth + 1 && s.clipPath === "none") found.push("cut off: " + name(e) + " " + e.textContent.slice(0, 60))
		if (e.tagName === "IMG" && !e.naturalWidth) found.push("no picture: " + e.src)
	}
	for (const e of document.querySelectorAll("main pre, main .table")) { // the workbench's and the races' have no room
		if (!shown(e) || e.scrollWidth <= e.clientWidth + 1 || e.closest("#code")) continue
		if (innerWidth >= 1280 && e.getBoundingClientRect().right < innerWidth - 100) found.push("cut off beside free room: " + name(e) + " " + e.textContent.trim().slice(0, 60))
		if (innerWidth < 640 && e.matches(".table") && !e.querySelector("td:nth-child(3)")) found.push("two columns are cut off: " + e.textContent.trim().slice(0, 60))
	}
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = document.createRange()
	for (let n; n = walker.nextNode();) {
		const parent = n.parentElement, code = parent.closest("code")
		if (parent.closest("pre, svg, noscript, script, style, textarea, select") || !n.data.trim() || !shown(parent)) continue
		const rects = (from, to) => { range.setStart(n, from); range.setEnd(n, to); return [...range.getClientRects()].filter(r => r.width) }
		if (rects(0, n.data.length).length < 2) continue
		for (const word of n.data.matchAll(/\S+/g)) {
			const end = word.index + word[0].length, lines = rects(word.index, end)
			if (new Set(lines.map(r => Math.round(r.top))).size < 2) continue
			let box = parent
			while (getComputedStyle(box).display.startsWith("inline")) box = box.parentElement
			box = box.closest(".table") || box
			const style = getComputedStyle(box), room = box.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight)
			if (lines.reduce((sum, r) => sum + r.width, 0) > room - 30) continue
			let torn = code && word[0].length <= 36 // longer ones are broken anywhere: view.Words
			for (let i = word.index + 1; i < end && !torn; i++) // words of the language may be divided behind a hyphen
				torn = /[\p{L}\d]{2}/u.test(n.data.slice(i - 1, i + 1)) && rects(i - 1, i)[0]?.top < rects(i, i + 1)[0]?.top - 4
			if (torn) found.push("torn: " + word[0].slice(0, 60))
		}
	}
	return found
})()`

// written is the folder with the site. It takes minutes to write: the tests share it.
var written = sync.OnceValues(func() (string, error) {
	if *site != "" {
		return *site, nil
	}
	dir, err := os.MkdirTemp("", "site")
	if err != nil {
		return "", err
	}
	made = dir
	if out, err := exec.Command("make", "-C", "../../../..", "site", "SITE="+dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

var made string // the folder that is removed in the end

func TestMain(m *testing.M) {
	code := m.Run()
	if made != "" {
		os.RemoveAll(made)
	}
	os.Exit(code)
}

// pages are the pages of the site, in the folder in which it was written: 57 races, each with the run of the lock
// that survives, the docs, the workbench, and what leads to them.
func pages(t *testing.T) (dir string, names []string) {
	t.Helper()
	dir, err := written()
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path) //nolint:errcheck // it is in dir
		ok, _ := filepath.Match(*only, name)
		if strings.HasSuffix(name, ".html") && (*only == "" || ok) {
			names = append(names, name)
		}
		return err
	})
	if err != nil || len(names) == 0 || len(names) < 140 && *only == "" {
		t.Fatalf("%d pages, %v", len(names), err)
	}
	return dir, names
}

// opened is a page in a tab; the workbench when its engine is there.
func opened(t *testing.T, browser context.Context, dir, name string) context.Context {
	t.Helper()
	tab := chromium.Open(t, browser, (&url.URL{Scheme: "file", Path: filepath.Join(dir, name)}).String())
	if filepath.Base(name) == workbench.Page {
		chromium.Do(t, tab, chromedp.Poll[chromedp.Void](`!document.querySelector("#app").hidden && others !== null && !document.querySelector("#steps").textContent.includes("…")`, chromedp.WithPollingTimeout(0)))
	}
	return tab
}

func scheme(name string) chromium.Action {
	return chromium.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// unfold opens all that is folded away.
const unfold = `document.querySelectorAll("details").forEach(d => { d.removeAttribute("name"); d.open = true })`

// On no page, at neither width, is anything cut off or torn; with -shots each is kept as a picture at
// both widths, light and dark.
func TestLongPages(t *testing.T) {
	realredis.Long(t)
	dir, names := pages(t)
	browser := chromium.StartFor(t, time.Hour)
	shots := 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			tab := opened(t, browser, dir, name)
			for _, width := range []int64{1280, 390} {
				chromium.Do(t, tab, chromedp.EmulateViewport(width, 844))
				for _, s := range []string{"light", "dark"} {
					if chromium.Shots() {
						chromium.Do(t, tab, scheme(s))
						chromium.Shot(t, tab, fmt.Sprintf("%s-%d-%s", strings.ReplaceAll(strings.TrimSuffix(name, ".html"), "/", "-"), width, s))
						shots++
					}
				}
			}
			chromium.Do(t, tab, chromedp.Evaluate[chromedp.Void](unfold))
			for _, width := range []int64{390, 1280} {
				chromium.Do(t, tab, chromedp.EmulateViewport(width, 844))
				for _, f := range chromium.Eval[[]string](t, tab, look) {
					t.Errorf("%d px: %s", width, f)
				}
			}
		})
	}
	t.Logf("%d pages, %d pictures", len(names), shots)
}

// No page is out of reach for some of its readers, as far as axe-core can tell, with all that is folded away opened.
func TestLongAxe(t *testing.T) {
	realredis.Long(t)
	script, err := os.ReadFile(npm.Axe(t))
	if err != nil {
		t.Fatal(err)
	}
	dir, names := pages(t)
	browser := chromium.StartFor(t, time.Hour)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			tab := opened(t, browser, dir, name)
			chromium.Do(t, tab, chromedp.Evaluate[chromedp.Void](unfold), chromedp.Evaluate[chromedp.Void](string(script)+";0"))
			for _, look := range []struct {
				width  int64
				scheme string
			}{{1280, "light"}, {390, "dark"}} { // colours don't depend on the width
				chromium.Do(t, tab, chromedp.EmulateViewport(look.width, 844), scheme(look.scheme))
				found, err := chromedp.Run(tab, chromedp.Evaluate[[]string](npm.AxeFindings, chromedp.EvalAwaitPromise))
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					t.Errorf("%d px, %s: %s", look.width, look.scheme, f)
				}
			}
		})
	}
	t.Logf("%d pages", len(names))
}
