package view_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/chromium"
	"github.com/setnxlock/setnxlock/compat/race/internal/tracetest"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// A tab is one page, open.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func openPage(t *testing.T, browser context.Context, address string, before ...chromium.Action) *tab {
	t.Helper()
	return &tab{t, chromium.Open(t, browser, address, before...)}
}

func (p *tab) run(actions ...chromium.Action) {
	p.t.Helper()
	chromium.Do(p.t, p.ctx, actions...)
}

func (p *tab) shot(name string) {
	p.t.Helper()
	chromium.Shot(p.t, p.ctx, name)
}

func eval[T any](p *tab, js string) T {
	p.t.Helper()
	return chromium.Eval[T](p.t, p.ctx, js)
}

// press presses keys as a hand does. chromedp's KeyEvent would send the letter
// after a key that the page has already taken, and the space would scroll.
func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, k := range keys {
		var down *input.DispatchKeyEventParams
		for _, ev := range kb.Encode([]rune(k)[0]) {
			switch ev.Type {
			case kb.KeyChar:
				down.Text, down.UnmodifiedText = ev.Text, ev.UnmodifiedText
			case kb.KeyUp:
				p.run(chromium.Call(input.DispatchKeyEvent, *down), chromium.Call(input.DispatchKeyEvent, *ev))
			default:
				down = ev
				down.Type = input.DispatchKeyEventTypeKeyDown
			}
		}
	}
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	return eval[string](p, "document.querySelector("+quoteJS(selector)+").innerText")
}

func (p *tab) expect(what, got, want string) {
	p.t.Helper()
	if got != want {
		p.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// at expects the step that is shown and the address that leads there.
func (p *tab) at(count, hash string) {
	p.t.Helper()
	p.expect("count", p.text("#count"), count)
	p.expect("address", eval[string](p, "location.hash"), hash)
}

// words are what the timeline says, as race/view's own tests wrote it down.
type words struct {
	Said, Key []string
	Beliefs   [][]string
}

func timelineWords(t *testing.T, name string) (w words) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(renders, name+".words"))
	if err == nil {
		err = json.Unmarshal(b, &w)
	}
	if err != nil || len(w.Said) == 0 || len(w.Beliefs) != len(w.Said) || len(w.Key) != len(w.Said) {
		t.Fatalf("%s: %v, %d steps", name, err, len(w.Said))
	}
	return w
}

// renders has the traces that race/view's own tests draw.
const renders = "../../view/testdata/render"

// file writes a trace's page where a browser can open it.
func file(t *testing.T, tr race.Trace) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "race.html")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := view.HTML(f, tr); err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "file", Path: name}).String()
}

// Nothing of a trace is ever markup, in the page or in its data.
func TestHTMLEscapes(t *testing.T) {
	const evil = `</script></noscript><img src=x onerror=alert(1)><!--`
	tr := tracetest.Read(t, renders)["double-takeover"]
	tr.Title, tr.Objective, tr.Instead, tr.Schedule = evil, evil, evil, evil
	tr.Sources = []race.Source{{Name: evil, URL: "javascript:alert(1)"}}
	tr.Argument.Let = []string{evil}
	tr.Events[0].Note, tr.Events[0].Why, tr.Events[0].Server.Value = evil, evil, evil
	p := openPage(t, chromium.Start(t), file(t, tr))
	if n := eval[int](p, "document.images.length"); n != 0 {
		t.Errorf("%d images", n)
	}
	p.expect("title", p.text("h1"), view.Titled(evil))
	p.press("l")
	p.expect("said", p.text("#did"), evil)
}

func TestHTMLInBrowser(t *testing.T) {
	all, b := tracetest.Read(t, renders), chromium.Start(t)

	t.Run("words", func(t *testing.T) { // of every step and state are those of the timeline
		for name, tr := range all {
			p, want := openPage(t, b, file(t, tr)), timelineWords(t, name)
			got := eval[[]string](p, `[...document.querySelectorAll(".row:not(.head) .say")].map(e => e.textContent)`)
			if !slices.Equal(got[1:], want.Said) {
				t.Errorf("%s: got %q, want %q", name, got[1:], want.Said)
			}
			for i, e := range tr.Events {
				p.press("l")
				beliefs := eval[[]string](p, `[...document.querySelectorAll("#clients tbody td:nth-child(3), #clients > tr > td:nth-child(3)")].map(e => e.firstChild.data)`)
				if !slices.Equal(beliefs, want.Beliefs[i]) {
					t.Errorf("%s %d: the clients believe %q, want %q", name, e.N, beliefs, want.Beliefs[i])
				}
			}
			keys := eval[[]string](p, `[...document.querySelectorAll(".row:not(.head) .val")].map(e => [...e.children].map(c => c.textContent).join("|"))`)
			if !slices.Equal(keys[1:], want.Key) {
				t.Errorf("%s: the key is %q, want %q", name, keys[1:], want.Key)
			}
		}
	})

	t.Run("keys", func(t *testing.T) {
		p := openPage(t, b, file(t, all["double-takeover"]))
		p.at("step 0 of 9", "#0")
		for i, k := range []string{kb.ArrowRight, " ", kb.Enter, "l", "j"} {
			p.press(k)
			p.at(fmt.Sprintf("step %d of 9", i+1), fmt.Sprintf("#%d", i+1))
		}
		for i, k := range []string{kb.ArrowLeft, kb.Backspace, "h", "k"} {
			p.press(k)
			p.at(fmt.Sprintf("step %d of 9", 4-i), fmt.Sprintf("#%d", 4-i))
		}
		p.press(kb.End, "l")
		p.at("step 9 of 9", "#9")
		p.press(kb.Home, "h")
		p.at("step 0 of 9", "#0")
		if y := eval[float64](p, "scrollY"); y != 0 { // it all fits: nothing moved under the reader
			t.Errorf("scrolled to %v", y)
		}
		p.press("?")
		p.expect("help", eval[string](p, `String(document.getElementById("help").hidden)`), "false")
		p.shot("help")
		p.press("?")
		p.expect("help", eval[string](p, `String(document.getElementById("help").hidden)`), "true")
	})

	t.Run("solution", func(t *testing.T) {
		const shown = `[...document.querySelectorAll(".row:not(.head)")].filter(e => e.checkVisibility()).length`
		const drawn = `Math.max(...[...document.querySelectorAll("#picture [data-n]")].filter(e => getComputedStyle(e).display !== "none").map(e => +e.dataset.n))`
		p := openPage(t, b, file(t, all["double-takeover"]))
		said := p.text("body")
		for _, spoils := range []string{all["double-takeover"].Argument.So, all["double-takeover"].Events[6].Why, all["double-takeover"].ReplayLine()} {
			if strings.Contains(said, spoils) {
				t.Errorf("before the first step the page says %q", spoils)
			}
		}
		p.expect("why", p.text("#why"), "Objective: "+all["double-takeover"].Objective)
		if n, d := eval[int](p, shown), eval[int](p, drawn); n != 1 || d != 0 {
			t.Errorf("%d rows before the first step, and %d drawn", n, d)
		}
		p.press("l", "l", "h") // what was seen stays
		if n, d := eval[int](p, shown), eval[int](p, drawn); n != 3 || d != 2 {
			t.Errorf("%d rows after two steps and one back, and %d drawn", n, d)
		}
		p.run(chromedp.Click(chromedp.CSS("#reveal")))
		if n, d := eval[int](p, shown), eval[int](p, drawn); n != 10 || d != 9 {
			t.Errorf("%d rows when it was asked for, and %d drawn", n, d)
		}
		p.press(kb.End)
		if said := p.text("body"); !strings.Contains(said, all["double-takeover"].Argument.So) {
			t.Error("the argument is folded away at the end")
		}
	})

	t.Run("violation", func(t *testing.T) {
		p := openPage(t, b, file(t, all["lost-reply"]))
		p.press("v")
		p.at("step 5 of 8", "#5")
		want := "✗ VIOLATION progress, at step 5: nobody holds the lock and nobody can take it"
		p.expect("invariant", p.text("#invariant"), want)
		p.press(kb.End) // from there on it stays
		p.expect("invariant", p.text("#invariant"), want)
		p.press(kb.Home)
		p.expect("invariant", p.text("#invariant"), "✓ all invariants hold so far")
		if n := eval[int](p, `document.querySelectorAll(".row.broken").length`); n != 1 {
			t.Errorf("%d rows are marked as broken", n)
		}
	})

	t.Run("mouse and address", func(t *testing.T) {
		address := file(t, all["double-takeover"])
		p := openPage(t, b, address+"#7")
		p.at("step 7 of 9", "#7")
		p.expect("said", p.text("#did"), "C1: SETNX t=10s → 1")
		p.expect("why", p.text("#why"), all["double-takeover"].Events[6].Why)
		p.run(chromedp.Click(chromedp.CSS(".row:nth-child(5)"))) // the head and the start stand before
		p.at("step 3 of 9", "#3")
		p.run(chromedp.Click(chromedp.CSS("#next")))
		p.press(" ") // one step: the button has not kept the focus
		p.at("step 5 of 9", "#5")
		p.run(chromedp.Evaluate[chromedp.Void](`location.hash = "#8"`), chromedp.Poll[chromedp.Void](`document.getElementById("count").textContent === "step 8 of 9"`))
		p.run(chromedp.Evaluate[chromedp.Void](`document.getElementById("solution").open = true`))
		p.run(chromedp.Click(chromedp.CSS("#copy")), chromedp.Poll[chromedp.Void](`document.getElementById("copy").textContent === "copied"`))
		p.expect("replay", p.text("#replay"), all["double-takeover"].ReplayLine())
	})

	t.Run("state", func(t *testing.T) {
		p := openPage(t, b, file(t, all["paused-holder"])+"#11")
		for _, want := range []string{"12s", "acts, its lease ended at 10s, fence 1", "holds until 22s, fence 2"} {
			if got := p.text("#clients"); !strings.Contains(got, want) {
				t.Errorf("no %q in %q", want, got)
			}
		}
		changed := eval[[]string](p, `[...document.querySelectorAll("#server td.changed")].map(e => e.firstChild.data + " was " + e.querySelector("s").textContent)`)
		if !slices.Equal(changed, []string{"C1, fence 1 was C2, fence 2"}) {
			t.Errorf("changed: %q", changed)
		}
		p.press(kb.Home, "l") // what is pending is seen before it comes
		if got, want := p.text("#clients"), "EXPIRE 10"; !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	})

	t.Run("fork", func(t *testing.T) {
		address := file(t, all["release-after-expiry"])
		p := openPage(t, b, address)
		labels := func() []string {
			return eval[[]string](p, `[...document.querySelectorAll("#fork .choice > span")].map(e => e.textContent)`)
		}
		if got, want := labels(), []string{"C1: SET «C1» NX EX 10 → OK", "time +11s"}; !slices.Equal(got, want) {
			t.Fatalf("choices at the start: %q, want %q", got, want)
		}
		p.press("1") // the trace's own way
		p.at("step 1 of 5", "#1")
		p.run(chromedp.Click(chromedp.CSS("#fork .choice"))) // C1 releases in time
		p.at("step 2 of 2", "#1:C1")
		p.expect("said", p.text("#did"), "C1: DEL → 1")
		if n := eval[int](p, `document.querySelectorAll(".row.forked").length`); n != 1 {
			t.Errorf("%d rows are marked as forked", n)
		}
		i := slices.IndexFunc(labels(), func(s string) bool { return strings.HasPrefix(s, "C2: ") })
		p.press(fmt.Sprint(i + 1))
		p.at("step 3 of 3", "#1:C1,C2")
		p.shot("fork")
		p.press("h")
		p.at("step 2 of 3", "#1:C1,C2@2")
		p.press("l", "u")
		p.at("step 2 of 2", "#1:C1")
		p.press(fmt.Sprint(i+1), kb.Escape)
		p.at("step 1 of 5", "#1")
		p.press("v")
		p.at("step 5 of 5", "#5")

		p = openPage(t, b, address+"#1:%2B11s,C2,C1,C3-") // a fork has an address, and its own violations
		p.at("step 5 of 5", "#1:%2B11s,C2,C1,C3-")
		p.expect("said", p.text("#did"), "C3: SET «C3» NX EX 10 ⇢ reply lost")
		p.press("u", "u", "u", "u")
		p.at("step 1 of 5", "#1")
		p = openPage(t, b, address+"#1:%2B11s,C2,C1,C3")
		p.expect("invariant", p.text("#invariant"), "✗ VIOLATION exclusion, at step 5: C2 and C3 both hold the lock")
	})

	t.Run("wide and narrow, light and dark", func(t *testing.T) {
		for name, tr := range all {
			for _, scheme := range []string{"light", "dark"} {
				p := openPage(t, b, file(t, tr), chromium.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
				p.press("v")
				for _, w := range []int64{1280, 768, 400, 360, 320} {
					p.run(chromedp.EmulateViewport(w, 800))
					if over := eval[int64](p, "document.documentElement.scrollWidth"); over > w {
						t.Errorf("%s: %d pixels wide in %d", name, over, w)
					}
					dark := eval[bool](p, `getComputedStyle(document.body).backgroundColor.match(/\d+/)[0] < 80`)
					if dark != (scheme == "dark") {
						t.Errorf("%s: dark is %v in %s", name, dark, scheme)
					}
					p.shot(fmt.Sprintf("%s-%s-%d", name, scheme, w))
				}
			}
		}
	})

	t.Run("print", func(t *testing.T) {
		for name, tr := range all {
			p := openPage(t, b, file(t, tr)+"#1", chromium.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}))
			seen := `[...document.querySelectorAll(%q)].filter(e => { const s = getComputedStyle(e); return e.getClientRects().length && s.opacity === "1" }).length`
			for selector, want := range map[string]int{".row .say": len(tr.Events) + 1 + len(tr.Clients), ".row .why": len(tr.Events), "#argument p": len(tr.Argument.Let) + len(tr.Argument.Then) + 2, "#state": 0, ".bar": 0, "#replay": 1} {
				if got := eval[int](p, fmt.Sprintf(seen, selector)); got != want {
					t.Errorf("%s: %d of %s are printed, want %d", name, got, selector, want)
				}
			}
			if chromium.Shots() {
				pdf, err := chromedp.Run(p.ctx, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4)))
				if err != nil {
					t.Fatal(err)
				}
				chromium.Keep(t, name+".pdf", pdf)
			}
		}
	})

	t.Run("without JavaScript", func(t *testing.T) {
		tr := all["double-takeover"]
		p := openPage(t, b, file(t, tr), chromium.Call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
		p.expect("timeline", strings.TrimSpace(p.plain("noscript pre")), strings.TrimSpace(view.Timeline(tr, view.TimelineOptions{})))
	})
}

// plain is an element's text in a page whose scripts don't run.
func (p *tab) plain(selector string) string {
	p.t.Helper()
	s, err := chromedp.Run(p.ctx, chromedp.TextContent(chromedp.CSS(selector)))
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

func quoteJS(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
