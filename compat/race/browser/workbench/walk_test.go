package workbench_test

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/chromium"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/npm"
	"github.com/setnxlock/setnxlock/compat/race/workbench"
)

// loaded waits until all that can happen next is offered.
const loaded = `others !== null && !document.querySelector("#steps").textContent.includes("…")`

// Somebody who has never seen it breaks the published GETSET lock, sees why, and which lock survives:
// the steps of docs/testing.md, "The workbench, as a new user".
func TestNewUser(t *testing.T) {
	p := open(t, "")
	if got := p.text("#guide h2"); got != "Two holders of one lock, in five minutes" {
		t.Errorf("guide %q", got)
	}
	if got := p.text("#setting"); !strings.HasPrefix(got, "getset:classic · Redis 2.4") {
		t.Errorf("begins with %q", got)
	}
	// By hand, with the keys that the page names.
	for n, key := range strings.Fields("1 1 t t 2 2 2 1 1") {
		if got := p.text("#violation"); got != "" {
			t.Fatalf("broken before step %d: %s", n+1, got)
		}
		p.until(loaded)
		p.press(key, n+1)
	}
	if got := p.text("#violation"); !strings.Contains(got, "Broken: exclusion at step 9: C1 and C2 both hold the lock.") || !strings.Contains(got, "C1's DEL removed t=") {
		t.Errorf("violation %q", got)
	}
	// Before the DEL that did it: the line that C1 is at is the engine's, past the one that looks, where C2 is.
	p.press("u", 8)
	p.press("u", 7)
	if got := eval[[]string](p, `[...document.querySelectorAll("#code .lit")].map(e => e.dataset.who + " " + e.textContent)`); len(got) != 3 ||
		!strings.Contains(got[0], ") Release(") || !strings.HasPrefix(got[1], "C2 ") || !strings.Contains(got[1], `"GET"`) || !strings.HasPrefix(got[2], "C1 ") {
		t.Errorf("C1 is at %q, and about to DEL", got)
	}
	p.press("y", 8)
	p.press("y", 9)
	// Found: there is no shorter way.
	p.press("0", 0)
	p.run(chromedp.KeyEvent("f"))
	p.until(`document.querySelector("#violation").textContent.includes("Broken")`)
	if got := p.text("#progress"); !strings.Contains(got, "getset:classic on Redis 2.4 breaks exclusion in 9 steps at the least") {
		t.Errorf("progress %q", got)
	}
	// The lock that survives, and where they part.
	p.run(chromedp.KeyEvent("w"))
	p.until(`document.querySelector("#parts")`)
	if got := p.text("#compare h2"); !strings.HasPrefix(got, "getset:guarded, ") || !strings.HasSuffix(got, " survive this schedule") {
		t.Errorf("survivors %q", got)
	}
	if got := p.text("#parts"); !strings.HasPrefix(got, "They part at step 2. getset:guarded: C1 WATCH") {
		t.Errorf("parts %q", got)
	}
	p.until(loaded)
	p.shoot("new-user")
	p.run(chromium.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}))
	p.run(chromedp.EmulateViewport(390, 844))
	if wide := eval[int](p, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("on 390 px the page is %d wide", wide)
	}
	p.shoot("new-user-narrow-dark")
	eval[bool](p, `[...document.querySelectorAll("#compare button")].at(-1).click() || true`)
	p.until(`document.querySelector("#setting").textContent.startsWith("getset:guarded")`)
	if got := p.text("#violation"); got != "" {
		t.Errorf("the survivor: %s", got)
	}
}

// A message is delayed, arrives, and another is lost, all by the keyboard.
func TestMessageByKeyboard(t *testing.T) {
	p := open(t, "getset:classic 2.4 2x2 :")
	fate := func(word string, steps int) {
		t.Helper()
		p.until(loaded)
		p.until(fmt.Sprintf(`document.querySelector('[data-word="%s"]')`, word))
		eval[bool](p, fmt.Sprintf(`document.querySelector('[data-word="%s"]').focus() || true`, word))
		p.press("\r", steps)
	}
	fate("C1.delay", 1)
	if got := p.text("#said"); !strings.Contains(got, "it is still on its way") {
		t.Errorf("said %q", got)
	}
	if !eval[bool](p, `[...document.querySelectorAll("#picture .name")].some(e => e.textContent === "network")`) {
		t.Error("the picture has no lane of the network")
	}
	fate("C2", 2)
	fate("C2-", 3)
	fate("C1.arrive", 4)
	if got := eval[string](p, `decodeURIComponent(location.hash.slice(1))`); got != "getset:classic 2.4 2x2 : C1.delay C2 C2- C1.arrive" {
		t.Errorf("address %q", got)
	}
}

// Two fleets are asked about, and the answer is shown.
func TestTwoFleets(t *testing.T) {
	p := open(t, "")
	eval[bool](p, `(document.querySelector("#fleets").open = true, document.querySelector("#fleet1").value = "theirs/redis-py-2.9", document.querySelector("#fleet2").value = "ours/tx:guarded", document.querySelector("#two button").click(), true)`)
	p.until(`document.querySelector("#answer").textContent.startsWith("No.")`)
	if got := p.text("#answer"); !strings.Contains(got, "Two clients hold the lock late, with one client of each") {
		t.Errorf("answer %q", got)
	}
	p.shoot("fleets")
	eval[bool](p, `document.querySelector("#answer p button").click() || true`)
	p.until(`document.querySelector("#violation").textContent.includes("Broken: exclusion")`)
}

// The handbook's page of two fleets leads to an address that asks about them.
func TestTwoFleetsByAddress(t *testing.T) {
	p := open(t, "fleets=theirs/node-resque+theirs/node-resque")
	p.until(`document.querySelector("#answer").textContent.startsWith("No.")`)
	if got := p.text("#answer"); !strings.Contains(got, "Two clients hold the lock at once, with two clients, in ") {
		t.Errorf("answer %q", got)
	}
	if got := p.text("#setting"); !strings.HasPrefix(got, "getset:classic · Redis 2.4") {
		t.Errorf("begins with %q", got)
	}
}

// The picture is saved as a file that stands alone: well-formed, with each lane, the leases as bars, its own colours, and
// nothing from elsewhere; each part bears what it looks like, for programs that draw without CSS.
func TestSavedPicture(t *testing.T) {
	p := open(t, level+" C1 C2 C1 C2 C1 C1 C2 C2")
	saved := await[string](p, `(async () => {
		const url = URL.createObjectURL
		URL.createObjectURL = blob => { self.saved = blob; return url.call(URL, blob) }
		HTMLAnchorElement.prototype.click = function() { self.named = this.download }
		document.querySelector("#svg").click()
		return self.named + " " + await self.saved.text()
	})()`)
	name, text, _ := strings.Cut(saved, " ")
	if name != "race.svg" {
		t.Errorf("named %q", name)
	}
	bars, lanes, root, fills := 0, map[string]bool{}, "", map[string]bool{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %.600s", err, text)
		}
		switch e := token.(type) {
		case xml.StartElement:
			element, has := e.Name.Local, map[string]string{}
			for _, a := range e.Attr {
				has[a.Name.Local] = a.Value
			}
			fills[has["fill"]] = true
			switch element {
			case "style":
				t.Error("its looks are CSS")
			case "rect", "path", "text":
				if has["fill"] == "" || element == "path" && has["stroke"] == "" || element == "text" && has["font-size"] == "" {
					t.Errorf("<%s> does not say what it looks like: %v", element, has)
				}
			}
			if e.Name.Space != "http://www.w3.org/2000/svg" {
				t.Errorf("<%s> is of %q", e.Name.Local, e.Name.Space)
			}
			if root == "" {
				root = element
			}
			for _, a := range e.Attr {
				switch {
				case a.Name.Local == "class" && e.Name.Local == "rect" && slices.Contains(strings.Fields(a.Value), "bar"):
					bars++
				case strings.Contains(a.Value, "var("), strings.Contains(a.Value, "url("), a.Name.Local == "href", a.Name.Local == "src", strings.HasPrefix(a.Name.Local, "on"):
					t.Errorf("<%s> has %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			lanes[strings.TrimSpace(string(e))] = true
		}
	}
	if root != "svg" {
		t.Errorf("the root is %q", root)
	}
	for _, lane := range []string{"C1", "C2", "Redis 2.4"} {
		if !lanes[lane] {
			t.Errorf("no lane %s", lane)
		}
	}
	if bars < 2 {
		t.Errorf("%d bars, and two clients hold it", bars)
	}
	for _, color := range []string{"rgb(31, 98, 176)", "rgb(168, 90, 0)", "none"} { // C1's and C2's, and what is but an outline
		if !fills[color] {
			t.Errorf("nothing is filled with %s: %v", color, fills)
		}
	}
	if chromium.Shots() {
		chromium.Keep(t, "saved.svg", []byte(text))
	}
}

// A trace that the command wrote is opened at its end.
func TestImport(t *testing.T) {
	tr, err := race.ReplaySchedule("tx:guarded 2.4 2x1 : C1 C2 C1-", nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "trace.json")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.WriteJSON(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(string(b))
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, "")
	eval[bool](p, fmt.Sprintf(`(() => { const d = new DataTransfer(); d.items.add(new File([%s], "trace.json")); const f = document.querySelector("#file"); f.files = d.files; f.dispatchEvent(new Event("change")); return true })()`, text))
	p.until(`document.querySelector("#count").textContent === "step 3"`)
	if got := eval[string](p, `decodeURIComponent(location.hash.slice(1))`); got != tr.Schedule {
		t.Errorf("address %q, want %q", got, tr.Schedule)
	}
}

// axe looks at the page as it is.
func axe(t *testing.T, p *tab, what string) {
	t.Helper()
	script, err := os.ReadFile(npm.Axe(t))
	if err != nil {
		t.Fatal(err)
	}
	p.run(chromedp.Evaluate[chromedp.Void](string(script) + ";0"))
	found, err := chromedp.Run(p.ctx, chromedp.Evaluate[[]string](npm.AxeFindings, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Errorf("%s: %s", what, f)
	}
}

// Nothing of the page is out of reach for some of its readers, as far as axe-core can tell.
func TestAxe(t *testing.T) {
	p := open(t, "")
	p.until(loaded)
	look := func(what string) {
		t.Helper()
		axe(t, p, what)
	}
	scheme := func(s string) {
		p.run(chromium.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s}}}))
	}
	look("at first")
	eval[bool](p, `(() => { for (const d of document.querySelectorAll("details")) { d.removeAttribute("name"); d.open = true } document.querySelector("#help").hidden = false; return true })()`)
	look("with all opened")
	p.run(chromedp.KeyEvent("f"))
	p.until(`document.querySelector("#violation").textContent.includes("Broken")`)
	p.run(chromedp.KeyEvent("w"))
	p.until(`document.querySelector("#parts")`)
	p.until(loaded)
	for _, width := range []int64{1280, 390} {
		p.run(chromedp.EmulateViewport(width, 844))
		for _, s := range []string{"light", "dark"} {
			scheme(s)
			look(fmt.Sprint("broken, ", width, ", ", s))
		}
	}
	eval[bool](p, `begin(LEVELS[0]) && true`)
	p.until(`!document.querySelector("#level").hidden`)
	look("a level")
}

// A lock of the reader's own is written down, broken by the explorer, and shared by its address.
func TestOwnLock(t *testing.T) {
	p := open(t, "")
	eval[bool](p, `(document.querySelector("#own").open = true, document.querySelector("#form button").click(), true)`)
	p.until(`document.querySelector("#setting").textContent.startsWith("a lock of your own")`)
	p.until(loaded)
	p.press("1", 1)
	if got := eval[[]string](p, `[...document.querySelectorAll("#code .lit")].map(e => e.dataset.who + " " + e.textContent.trim())`); !slices.Equal(got, []string{"C2 SETNX KEY TOKEN", "C1 EXPIRE KEY TTL"}) {
		t.Errorf("lit: %q", got)
	}
	p.shoot("own")
	p.run(chromedp.KeyEvent("f"))
	p.until(`document.querySelector("#violation").textContent.includes("Broken: exclusion")`)
	schedule := eval[string](p, `decodeURIComponent(location.hash.slice(1))`)
	question, err := json.Marshal(workbench.Question{Do: "at", Schedule: schedule})
	if err != nil {
		t.Fatal(err)
	}
	var again struct {
		Error  string
		Answer workbench.State
	}
	if err := json.Unmarshal(workbench.Answer(context.Background(), question, nil), &again); err != nil || again.Answer.Trace.Verdict.Violated != "exclusion" {
		t.Errorf("%s: %v, %s, %v", schedule, again.Answer.Trace.Verdict, again.Error, err)
	}
	p.run(chromedp.KeyEvent("w"))
	p.until(`document.querySelector("#parts")`)
}
