// Package browser opens the site of races, as `make site` writes it, in Chromium.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// An action is something to be done in a page.
type action = chromedp.Action[chromedp.Void]

// dir is the folder with the site, which both tests share; "": none has asked for it.
var dir string

var written = sync.OnceValues(func() (string, error) {
	var err error
	if dir, err = os.MkdirTemp("", "site"); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "run", "./cmd/setnxlock", "race", "site", "--workbench", dir)
	cmd.Dir = "../../.."
	if said, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w\n%s", err, said)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func site(t *testing.T) string {
	t.Helper()
	return must.Get(written())(t)
}

// start starts Chromium, for half an hour at most. It ends with the test.
func start(t *testing.T) context.Context {
	t.Helper()
	path := os.Getenv("CHROMIUM")
	if path == "" {
		path = realredis.Need(t, "chromium", "chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 30*time.Minute)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() { chromedp.Cancel(ctx) }) // it waits for the process, which writes into a folder being removed
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s does not start: %v", path, err)
	}
	return ctx
}

// A tab is a page of the site, open.
type tab struct {
	*testing.T
	ctx context.Context
}

// open opens an address in a new tab. When t ends, the console must have said nothing, and the page
// have asked for nothing but files.
func open(t *testing.T, browser context.Context, address string, width int64, scheme string) tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	var (
		mu      sync.Mutex
		trouble []string
	)
	t.Cleanup(func() {
		cancel()
		mu.Lock()
		defer mu.Unlock()
		for _, s := range trouble {
			t.Errorf("%s: %s", address, s)
		}
	})
	must.Do(t, chromedp.Listen(ctx, func(event any) {
		said := ""
		switch event := event.(type) {
		case *runtime.EventExceptionThrown:
			said = "exception: " + event.ExceptionDetails.Text
			if e := event.ExceptionDetails.Exception; e != nil {
				said += " " + e.Description
			}
		case *runtime.EventConsoleAPICalled:
			said = "console: " + string(event.Type)
			for _, a := range event.Args {
				said += fmt.Sprintf(" %s%s", a.Value, a.Description)
			}
		case *log.EventEntryAdded:
			said = "log: " + event.Entry.Text
		case *network.EventRequestWillBeSent:
			scheme, _, _ := strings.Cut(event.Request.URL, ":")
			if !slices.Contains([]string{"file", "data", "blob"}, scheme) {
				said = "asked for " + event.Request.URL
			}
		}
		if said != "" {
			mu.Lock()
			defer mu.Unlock()
			trouble = append(trouble, said)
		}
	}))
	p := tab{t, ctx}
	colours := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
	p.do(call(network.Enable, network.EnableParams{}), call(log.Enable, cdp.Empty{}),
		chromedp.EmulateViewport(width, 844),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: colours}),
		chromedp.Navigate(address))
	return p
}

// call makes an action of a command of the browser's protocol.
func call[P, R any](c cdp.Command[P, R], params P) action {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

func (p tab) do(actions ...action) {
	p.Helper()
	must.Do(p, chromedp.Do(p.ctx, actions...))
}

func eval[T any](p tab, js string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("%s: %v", js, err)
	}
	return v
}

// until waits for an expression of JavaScript, two minutes at most.
func (p tab) until(js string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, 2*time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Poll[chromedp.Void](js, chromedp.WithPollingTimeout(0))); err != nil {
		p.Fatalf("never: %s: %v\n%s", js, err, eval[string](p, "document.body.innerText"))
	}
}

// says waits until an element says something.
func (p tab) says(selector, text string) {
	p.Helper()
	p.until(fmt.Sprintf("document.querySelector(%q)?.textContent.includes(%q)", selector, text))
}

func (p tab) key(key string) { p.Helper(); p.do(chromedp.KeyEvent(key)) }

// click clicks with the mouse where an element is, in the middle of the window: a bar may cover its edge.
func (p tab) click(selector string) {
	p.Helper()
	centre := fmt.Sprintf(`document.querySelector(%q).scrollIntoView({block: "center"})`, selector)
	p.do(chromedp.Evaluate[chromedp.Void](centre), chromedp.Click(chromedp.CSS(selector)))
}

// narrow fails if the page is wider than its window.
func (p tab) narrow() {
	p.Helper()
	if wide := eval[[2]int](p, "[document.documentElement.scrollWidth, innerWidth]"); wide[0] > wide[1] {
		p.Errorf("%d pixels wide in %d", wide[0], wide[1])
	}
}

// offered waits until the workbench offers all that can happen next.
func (p tab) offered() {
	p.Helper()
	p.until(`!document.querySelector("#app").hidden && others !== null &&
		!document.querySelector("#steps").textContent.includes("…")`)
}

// The workbench loads from the disk. A level is solved by the keyboard and by the mouse; the
// explorer finds a way, the locks that survive it follow it; a lock of the reader's own and a log
// of MONITOR are taken.
func TestLongWorkbench(t *testing.T) {
	realredis.Long(t)
	if engine, err := os.Stat(filepath.Join(site(t), "workbench-engine.js")); err != nil || engine.Size() > 5_500_000 {
		t.Errorf("the engine has %d bytes, want 5,500,000 at most: %v", engine.Size(), err)
	}
	if size := sizeOf(t, site(t)); size > 10_000_000 {
		t.Errorf("the site has %d bytes, want 10,000,000 at most", size)
	}
	address, browser := "file://"+filepath.Join(site(t), "workbench.html"), start(t)
	for _, width := range []int64{1280, 390} {
		for by, step := range map[string]func(tab, string){
			"keyboard": func(p tab, client string) { p.key(client) },
			"mouse":    func(p tab, client string) { p.click(`button.msg[data-word="C` + client + `"]`) },
		} {
			t.Run(fmt.Sprintf("%s at %d px", by, width), func(t *testing.T) {
				p := open(t, browser, address, width, "light")
				p.offered()
				p.click("#levels summary")
				p.click("#levellist li:nth-child(14) button")
				p.says("#leveltitle", "Level 13: ")
				p.offered()
				p.key("h")
				p.says("#hinttext", "8 steps to go.")
				for n, client := range strings.Fields("1 2 1 2 1 1 2 2") {
					p.offered()
					step(p, client)
					p.says("#count", fmt.Sprint("step ", n+1))
				}
				p.says("#violation", "Broken: exclusion at step 8: C1 and C2 both hold the lock.")
				p.says("#after", "Solved, in 8 steps. There is no shorter way")
				p.narrow()
			})
		}
	}
	t.Run("typed at once", func(t *testing.T) { typedAtOnce(t, open(t, browser, address, 1280, "light")) })
	for _, size := range [][2]int64{{1280, 800}, {390, 844}} {
		t.Run(fmt.Sprintf("one screen of %d × %d", size[0], size[1]), func(t *testing.T) {
			p := open(t, browser, address, size[0], "light")
			p.do(chromedp.EmulateViewport(size[0], size[1]))
			p.offered()
			for _, schedule := range []string{"getset:classic 2.4 2x3 check=exclusion : C1 C1 +10s +1ms C2 C2 C2 C1 C1", "tx:classic 2.4 4x3 : C1 C1 C2 C3 C4"} {
				eval[bool](p, fmt.Sprintf("go(%q)", schedule))
				for _, trouble := range eval[[]string](p, fits) {
					t.Errorf("%s: %s", schedule, trouble)
				}
			}
			p.narrow()
		})
	}
	t.Run("cards", func(t *testing.T) { cards(t, open(t, browser, address, 1280, "light")) })
	t.Run("touch", func(t *testing.T) { touched(t, open(t, browser, address, 390, "dark")) })
	t.Run("protocol", func(t *testing.T) {
		p := open(t, browser, address+"#getset%3Aclassic%202.4%202x3%20%3A%20C1%20C1%20%2B11s%20C2%20C2", 390, "light")
		p.offered()
		p.until(`document.querySelectorAll("#protocol .lit").length === 2`)
		lit := eval[[]string](p, `[...document.querySelectorAll("#protocol .lit")].map(e => e.dataset.who + ": " + e.textContent.trim())`)
		if want := []string{"C2: GETSET TIME → TIME", "C1: DEL → 1"}; !slices.Equal(lit, want) {
			t.Errorf("lit are %q, want %q", lit, want)
		}
		p.click("#gocode summary")
		p.says("#code h3", "getsetlock/")
		p.narrow()
	})
	t.Run("explorer", func(t *testing.T) {
		p := open(t, browser, address, 1280, "light")
		p.offered()
		p.key("f")
		p.says("#progress", "getset:classic breaks exclusion in 8 steps.")
		p.says("#progress details", "Looked for exclusion, in every order")
		p.says("#violation", "Broken: exclusion at step 8")
		p.key("w")
		p.says("#compare h2", "getset:guarded, ")
		p.says("#parting", "They part at step 2. getset:guarded: C1 WATCH")
	})
	t.Run("saved picture", func(t *testing.T) { // in the colours of paper, whatever the page's are
		p := open(t, browser, address+"#getset%3Aclassic%202.4%202x3%20%3A%20C1%20C1", 1280, "dark")
		p.offered()
		saved := eval[string](p, `new Promise(saved => {
			URL.createObjectURL = blob => { saved(blob.text()); return "" }
			HTMLAnchorElement.prototype.click = () => {}
			document.querySelector("#svg").click()
		})`)
		for _, want := range []string{`xmlns="http://www.w3.org/2000/svg"`, `"#fcfbf8"`, `"rgb(31, 98, 176)"`} {
			if !strings.Contains(saved, want) || strings.Contains(saved, "var(") {
				t.Errorf("no %s in %.2000s", want, saved)
			}
		}
	})
	t.Run("own lock", func(t *testing.T) {
		p := open(t, browser, address, 1280, "light")
		p.offered()
		p.click("#own summary")
		p.click("#form button")
		p.says("#setting", "a lock of your own")
		p.key("f")
		p.says("#progress", "a lock of your own breaks exclusion")
		p.says("#violation", "Broken: exclusion")
	})
	t.Run("opening", func(t *testing.T) { opens(t, open(t, browser, address, 390, "light")) })
	t.Run("templates", func(t *testing.T) { templates(t, open(t, browser, address, 1280, "light")) })
	t.Run("exercises", func(t *testing.T) { exercises(t, open(t, browser, address, 1280, "light")) })
	t.Run("in a frame", func(t *testing.T) { framed(t, browser) })
	t.Run("MONITOR", func(t *testing.T) {
		p := open(t, browser, address, 1280, "light")
		p.offered()
		p.click("#bring summary")
		p.do(chromedp.SetValue(chromedp.CSS("#lines"), monitored))
		p.click("#readlog")
		p.says("#logsays", "Broken: ownership at step 4: C1 removed the lock of C2.")
		p.click("#bring summary")
		p.click("#sample")
		p.says("#logtold", "skipped")
		p.click("#log button:not(li button)") // on into the explorer
		p.until(`queued === 0 && state.trace.verdict.violated !== ""`)
	})
}

// The opening says what is to be done, and at each step how far it is and which card is next: whoever does so breaks
// the lock.
// What a search has shown is no level solved, and its answer goes with its lock.
func opens(t *testing.T, p tab) {
	p.offered()
	p.do(chromedp.Evaluate[chromedp.Void](`localStorage.clear()`)) // other tabs share it
	p.says("#now", "Make two clients hold the lock at once: you choose whose command runs next, what gets lost, when ")
	p.key("t") // astray: nothing ends
	p.says("#hinttext", "undo 1, then 8 steps to go.")
	p.key("u")
	for n := range 8 {
		p.until(fmt.Sprintf("queued === 0 && state.trace.events.length === %d", n))
		p.says("#hinttext", fmt.Sprint(8-n, " step"))
		p.click("#hint")
		p.until(`$("hinttext").textContent.includes(" Next: ")`)
		p.do(chromedp.Evaluate[chromedp.Void](`(() => {
			const card = /Next: (?:(C.)’s card|the card of (time))/.exec($("hinttext").textContent)
			document.querySelector("[data-card=" + (card[1] || card[2]) + "] .msg").click()
		})()`))
	}
	p.says("#violation", "Broken: exclusion at step 8")
	p.click("#said")
	if cut := eval[bool](p, `$("said").scrollHeight > $("said").clientHeight + 1`); cut {
		t.Error("the sentence is not shown in full")
	}
	p.key("f")
	p.says("#progress", "getset:classic breaks exclusion in 8 steps.")
	eval[bool](p, "begin(LEVELS[2]).then(() => true)")
	if says := eval[string](p, `$("progress").textContent`); says != "" {
		t.Errorf("under another lock it says %q", says)
	}
	p.key("f")
	p.says("#violation", "Broken: exclusion")
	if solved := eval[string](p, `localStorage.getItem("setnxlock-levels")`); solved != `{"opening":8}` {
		t.Errorf("solved are %s", solved)
	}
}

// Each template of a lock of one's own begins where its form says; what is wrong with one's own lines is said.
func templates(t *testing.T, p tab) {
	p.offered()
	n := eval[int](p, `$("template").options.length`)
	if n < 7 {
		t.Errorf("%d templates", n)
	}
	for i := range n {
		p.click("#own summary")
		eval[bool](p, fmt.Sprintf(`(() => { $("template").value = %d; return $("template").dispatchEvent(new Event("change")) })()`, i))
		p.click("#form button")
		p.until(`!$("own").open && queued === 0`)
		p.says("#setting", "a lock of your own")
		if got := eval[string](p, `state.trace.server`); got != eval[string](p, `$("ownserver").value`) {
			t.Errorf("template %d is on %s", i, got)
		}
	}
	p.click("#own summary")
	p.do(chromedp.SetValue(chromedp.CSS("#program"), "SETNX key TOKEN\n1 = mine"))
	p.click("#form button")
	p.says("#formsays", "in capitals")
}

// Each level's exercise takes the right answers of its file, and says what the wrong ones lack.
func exercises(t *testing.T, p tab) {
	p.offered()
	names := eval[[]string](p, "LEVELS.filter(l => l.no).map(l => l.name)")
	if len(names) < 23 {
		t.Errorf("%d levels", len(names))
	}
	for _, name := range names {
		eval[bool](p, fmt.Sprintf(`begin(LEVELS.find(l => l.name === %q)).then(() => true)`, name))
		p.key("e")
		text := must.Get(os.ReadFile(filepath.Join("..", "catalogue", "scenarios", filepath.FromSlash(name)+".txt")))(t)
		driven := 0
		for line := range strings.SplitSeq(string(text), "\n") {
			what, words, _ := strings.Cut(line, " ")
			says := map[string]string{"answer": "✓ Right", "wrong": "Not yet: "}[what]
			if says == "" {
				continue
			}
			words, _, _ = strings.Cut(words, ": ")
			eval[bool](p, fmt.Sprintf(`go(join(head(), %q.split(" ")))`, words))
			p.says("#hinttext", says)
			driven++
		}
		if driven < 4 {
			t.Errorf("%s: %d answers", name, driven)
		}
		p.key("e")
	}
}

// A race's page has the game in it, 500 px wide, with what is to be pressed in sight; by its address it stands in any frame. As a
// slide it hides the way there, as a hand-out it has blank lanes.
func framed(t *testing.T, browser context.Context) {
	page := "file://" + filepath.Join(site(t), "set-bare-del.html")
	p := open(t, browser, page, 1280, "light")
	p.click("#play")
	p.until(`document.querySelector("#game iframe")`)
	if got := eval[float64](p, `document.querySelector("#game iframe").getBoundingClientRect().width`); got != 500 {
		t.Errorf("the frame is %v px wide", got)
	}
	p.says("#game code", "workbench.html#embed,set/bare-del=other%2Fset-del%207.0")
	p.key("s")
	if eval[bool](p, `document.querySelector("article").checkVisibility()`) {
		t.Error("a slide shows the solution")
	}
	p.key("o")
	if got := eval[int](p, `[...document.querySelectorAll("#blank .row")].filter(e => e.checkVisibility()).length`); got < 15 {
		t.Errorf("a hand-out of %d rows", got)
	}
	w := open(t, browser, eval[string](p, `document.querySelector("#game iframe").src`), 500, "light")
	w.do(chromedp.EmulateViewport(500, 700))
	w.offered()
	for n := range 2 {
		w.click("[data-card=C1] .msg")
		w.until(fmt.Sprintf("state.trace.events.length === %d", n+1))
	}
	for _, trouble := range eval[[]string](w, fits) {
		t.Error(trouble)
	}
	if hash := eval[string](w, "location.hash"); !strings.HasPrefix(hash, "#embed,set/bare-del=") {
		t.Errorf("after a step the address is %s", hash)
	}
	w.narrow()
	// Of races that begin alike the address says which it is: what is looked for, by which faults.
	p = open(t, browser, "file://"+filepath.Join(site(t), "any-server-clock-jump.html"), 1280, "light")
	game := eval[string](p, `new URL(document.querySelector("#play").dataset.src, location.href).href`)
	w = open(t, browser, game, 500, "light")
	w.do(chromedp.EmulateViewport(500, 700))
	w.offered()
	w.says("#leveltitle", "any/server-clock-jump: ")
	w.says("#now", "Make two clients hold lock.report by no fault of theirs.")
	w.key("f")
	w.says("#progress", "tx:guarded breaks exclusion in 7 steps.")
	w.says("#violation", "Broken: exclusion at step 7")
	for _, trouble := range eval[[]string](w, fits) {
		t.Error(trouble)
	}
}

// fits is what is wrong with the first screen of the workbench: what can't be seen without scrolling, what is too
// small to be read, what is too small for a finger.
const fits = `(() => {
	scrollTo(0, 0)
	const list = [], seen = e => e.checkVisibility()
	for (const e of document.querySelectorAll("#lanes, .card, #verdict, #said, #violation, #board .bar button")) {
		const r = e.getBoundingClientRect()
		if (seen(e) && (r.top < 0 || r.left < 0 || r.bottom > innerHeight || r.right > innerWidth)) list.push((e.id || e.className) + " ends at " + r.right + ", " + r.bottom)
	}
	const lanes = document.querySelector("#lanes"), rows = [...lanes.querySelectorAll(".row")].filter(seen)
	if (lanes.clientHeight < 200 || rows.at(-1).getBoundingClientRect().bottom > lanes.getBoundingClientRect().bottom + 1) list.push("the last step is out of sight")
	for (const e of document.querySelectorAll("#head *, #board *")) {
		const own = [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim()), size = parseFloat(getComputedStyle(e).fontSize)
		if (seen(e) && own && size < 14) list.push(e.textContent + " has " + size + " px")
	}
	for (const e of document.querySelectorAll("#head a, #board button, #board select, #board summary")) {
		const r = e.getBoundingClientRect()
		if (seen(e) && Math.min(r.width, r.height) < 24) list.push(e.textContent + " has " + r.width + " by " + r.height + " px")
	}
	return list
})()`

// A card is drawn down, aside and back; its menu has the rest; the lock in grey follows. The focus stays on a card.
func cards(t *testing.T, p tab) {
	const head = "tx:classic 2.4 2x3 check=exclusion"
	drag := func(card string, x, y float64) {
		t.Helper()
		at := eval[[2]float64](p, fmt.Sprintf(`(() => { const r = document.querySelector("[data-card=%s] .msg").getBoundingClientRect(); return [r.x + r.width / 2, r.y + 10] })()`, card))
		for n, kind := range []input.DispatchMouseEventType{"mousePressed", "mouseMoved", "mouseMoved", "mouseReleased"} {
			part := min(float64(n), 2) / 2
			p.do(call(input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at[0] + part*x, Y: at[1] + part*y, Button: "left", Buttons: 1, ClickCount: 1}))
		}
		p.until("queued === 0")
	}
	want := func(words string) {
		t.Helper()
		if got := eval[string](p, "state.trace.schedule"); got != head+" : "+words {
			t.Errorf("%q, want %q: %s", got, words, eval[string](p, `$("said").textContent`))
		}
	}
	p.offered()
	eval[bool](p, fmt.Sprintf("go(%q)", head+" :"))
	drag("C1", 0, 90)
	want("C1.delay")
	drag("C2", -90, 0)
	want("C1.delay C2.sever")
	p.key("0")
	p.until("queued === 0")
	drag("C1", 90, 0)
	want("C1-")
	drag("C2", 5, 5) // too little: a click
	want("C1- C2")
	p.offered()
	p.click("[data-card=C2] .more")
	p.click(`#menu button[data-fate="C2.crash"]`)
	p.until("queued === 0")
	want("C1- C2 C2.crash")
	p.click("[data-card=server] .more")
	p.until("others !== null")
	p.click(`#menu button[data-fate="redis.restart"]`)
	p.until("queued === 0")
	want("C1- C2 C2.crash redis.restart")
	p.click("[data-card=time] .more")
	p.do(chromedp.SetValue(chromedp.CSS("#menu input"), "3s"))
	p.click("#menu form button")
	p.until("queued === 0")
	want("C1- C2 C2.crash redis.restart +3s")

	eval[bool](p, `go("getset:classic 2.4 2x3 check=exclusion : C1")`)
	p.says("#grey", "getset:guarded breaks nothing. So far it does the same.")
	p.click("[data-card=C1] .msg")
	p.says("#grey", "They part at step 2: C1 WATCH")
	if marked := eval[string](p, `document.querySelector(".pair.part .grey .n").textContent`); marked != "2" {
		t.Errorf("step %s is marked", marked)
	}
	if focus := eval[string](p, "document.activeElement.parentElement.dataset.card"); focus != "C1" {
		t.Errorf("the focus has gone to %q", focus)
	}
	eval[bool](p, `(() => { $("second").value = "tx:guarded"; return $("second").dispatchEvent(new Event("change")) })()`)
	p.says("#grey", "tx:guarded breaks nothing. They part at step 1: C1 ")
}

// By touch alone, on a phone: a message is drawn down and is late; the lock of the SETNX page is broken by taps, and level 1.
func touched(t *testing.T, p tab) {
	p.do(call(emulation.SetTouchEmulationEnabled, emulation.SetTouchEmulationEnabledParams{Enabled: true}))
	touch := func(selector string, down float64) {
		t.Helper()
		at := eval[[2]float64](p, fmt.Sprintf(`(() => { const r = document.querySelector(%q).getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()`, selector))
		for n, kind := range []input.DispatchTouchEventType{"touchStart", "touchMove", "touchMove", "touchEnd"} {
			points := []*input.TouchPoint{{X: at[0], Y: at[1] + down*float64(n)/2}}
			if kind == "touchEnd" {
				points = []*input.TouchPoint{}
			} else if kind == "touchMove" && down == 0 {
				continue
			}
			p.do(call(input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: points}))
		}
		p.until("queued === 0")
	}
	card := func(name string) string { return fmt.Sprintf("[data-card=%s] .msg", name) }
	const published = "getset:classic 2.4 2x3 check=exclusion"
	p.offered()
	touch(card("C1"), 80)
	p.until(fmt.Sprintf("state.trace.schedule === %q", published+" : C1.delay"))
	eval[bool](p, fmt.Sprintf("go(%q)", published+" :"))
	for n, name := range strings.Fields("C1 C1 time C2 C2 C2 C1 C1") {
		touch(card(name), 0)
		p.says("#count", fmt.Sprint("step ", n+1))
	}
	p.says("#violation", "Broken: exclusion at step 8: C1 and C2 both hold the lock.")
	if y := eval[int](p, "scrollY"); y != 0 {
		t.Errorf("it has scrolled to %d", y)
	}
	eval[bool](p, "begin(LEVELS[1]).then(() => true)")
	touch(card("C1"), 0)
	p.offered()
	touch("[data-card=C1] .more", 0)
	p.until(`document.querySelector("#menu button[data-fate='C1.crash']")?.checkVisibility()`)
	touch(`#menu button[data-fate="C1.crash"]`, 0)
	p.says("#violation", "Broken: progress")
}

// sizeOf is how many bytes the files of a folder have.
func sizeOf(t *testing.T, dir string) (sum int64) {
	t.Helper()
	for _, file := range must.Get(os.ReadDir(dir))(t) {
		sum += must.Get(file.Info())(t).Size()
	}
	return sum
}

// Every level's solution is typed within one turn of the page's loop, so that no answer of the explorer can come
// between two keys: what has been typed is the schedule. The focus stays on the button that has it.
func typedAtOnce(t *testing.T, p tab) {
	p.offered()
	heads := eval[[]string](p, "LEVELS.filter(l => l.no).map(l => l.name)")
	if len(heads) < 23 {
		t.Fatalf("%d levels", len(heads))
	}
	for _, name := range heads {
		file := must.Get(os.ReadFile(filepath.Join(site(t), strings.ReplaceAll(name, "/", "-")+".json")))(t)
		var solved struct {
			Schedule string
			Verdict  struct{ Violated string }
		}
		must.Do(t, json.Unmarshal(file, &solved))
		head, words, _ := strings.Cut(solved.Schedule, " :")
		var keys []string
		for _, word := range strings.Fields(words) {
			keys = append(keys, keysOf(t, word)...)
		}
		eval[bool](p, fmt.Sprintf(`go(%q).then(() => {
			$("undo").focus()
			for (const key of %s) document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}))
			return true
		})`, head+" :", must.Get(json.Marshal(keys))(t)))
		p.until("queued === 0")
		if got := eval[string](p, "state.trace.schedule"); got != solved.Schedule {
			t.Errorf("%s: %q is %q, want %q: %s", name, keys, got, solved.Schedule, eval[string](p, `$("said").textContent`))
		}
		p.says("#violation", "Broken: "+solved.Verdict.Violated)
		if focus := eval[string](p, "document.activeElement.id"); focus != "undo" {
			t.Errorf("%s: the focus has gone to %q", name, focus)
		}
	}
}

// keysOf are the keys that type a word of a schedule.
func keysOf(t *testing.T, word string) []string {
	t.Helper()
	if word[0] == '+' {
		return append(strings.Split(word, ""), "Enter")
	}
	if client, lost := strings.CutSuffix(word, "-"); lost {
		return []string{"r", client[1:]}
	}
	who, what, fate := strings.Cut(word, ".")
	if strings.HasPrefix(what, "clock+") {
		return []string{"J", who[1:]}
	}
	if !fate {
		return []string{who[1:]}
	}
	key := map[string]string{"sever": "x", "delay": "l", "arrive": "a", "pause": "p", "resume": "p", "crash": "c", "look": "k", "restart": "R", "failover": "F"}[what]
	switch {
	case key == "":
		t.Fatalf("no key for %s", word)
	case who == "redis":
		return []string{key}
	}
	return []string{key, who[1:]}
}

const monitored = `1700000000.000000 [0 10.0.0.1:4711] "SETNX" "lock.report" "1700000010.0"
1700000012.000000 [0 10.0.0.2:4711] "GET" "lock.report"
1700000012.100000 [0 10.0.0.2:4711] "GETSET" "lock.report" "1700000022.1"
1700000013.000000 [0 10.0.0.1:4711] "DEL" "lock.report"
`

// axeVersion is that of axe-core, which finds what of a page is out of reach for some of its readers.
const axeVersion = "4.14.1"

// What is run in a page: unfold opens all that is folded away, findings is what axe-core finds.
const (
	unfold   = `document.querySelectorAll("details").forEach(d => { d.removeAttribute("name"); d.open = true })`
	findings = `axe.run(document, {preload: false, resultTypes: ["violations"]}).then(r => r.violations.map(v =>
		v.id + ": " + v.nodes.map(n => n.html.slice(0, 120) + " " + n.failureSummary).join("; ")))`
)

// No page of the site is out of reach for some of its readers, as far as axe-core can tell, or wider
// than its window, with all that is folded away opened.
func TestLongAxe(t *testing.T) {
	realredis.Long(t)
	modules := t.TempDir()
	npm := realredis.Need(t, "npm", "npm")
	install := exec.Command(npm, "install", "--silent", "--no-save", "--prefix", modules, "axe-core@"+axeVersion)
	if said, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	axe := must.Get(os.ReadFile(filepath.Join(modules, "node_modules/axe-core/axe.min.js")))(t)
	pages, err := filepath.Glob(filepath.Join(site(t), "*.html"))
	if err != nil || len(pages) < 110 { // 66 races, most with the lock that survives
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	browser := start(t)
	for _, page := range pages {
		for width, scheme := range map[int64]string{1280: "light", 390: "dark"} { // colours don't depend on the width
			t.Run(fmt.Sprintf("%s at %d px, %s", filepath.Base(page), width, scheme), func(t *testing.T) {
				p := open(t, browser, "file://"+page, width, scheme)
				if filepath.Base(page) == "workbench.html" {
					p.offered()
				}
				p.do(chromedp.Evaluate[chromedp.Void](unfold), chromedp.Evaluate[chromedp.Void](string(axe)+";0"))
				p.narrow()
				for _, found := range eval[[]string](p, findings) {
					t.Error(found)
				}
			})
		}
	}
}
