package workbench_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/chromium"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/setnxlock/setnxlock/compat/race/workbench"
)

// engineSize is how large the engine may be as a web server sends it, gzipped, in bytes.
const engineSize = 2_000_000

// built is where the workbench was written.
var built string

// site is the workbench with one level, compiled once for all tests.
var site = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "workbench-test-")
	if err != nil {
		return "", err
	}
	built = dir
	s, _ := catalogue.Find("getset/double-takeover")
	t, err := s.Trace()
	if err != nil {
		return dir, err
	}
	if t, err = race.WithFork(t, race.ForkStates, catalogue.Locks()); err != nil {
		return dir, err
	}
	survives, err := s.Survivor()
	if err != nil {
		return dir, err
	}
	return dir, workbench.Site(context.Background(), dir, []*workbench.Level{workbench.LevelOf(view.Page{Trace: t, Survives: &survives})})
})

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// A tab is the workbench, open in a Chromium of its own.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// open opens the workbench from the disk at a schedule, and waits until the engine is there.
func open(t *testing.T, schedule string, before ...chromium.Action) *tab {
	t.Helper()
	browser := chromium.Start(t)
	dir, err := site()
	if err != nil {
		t.Fatal(err)
	}
	address := "file://" + filepath.Join(dir, workbench.Page)
	if schedule != "" {
		address += "#" + url.PathEscape(schedule)
	}
	p := &tab{t, chromium.Open(t, browser, address, before...)}
	p.until(`!document.querySelector("#app").hidden`)
	return p
}

func (p *tab) run(actions ...chromium.Action) {
	p.t.Helper()
	chromium.Do(p.t, p.ctx, actions...)
}

func eval[T any](p *tab, js string) T {
	p.t.Helper()
	return chromium.Eval[T](p.t, p.ctx, js)
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// until waits for the page, a minute at most.
func (p *tab) until(js string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Poll[chromedp.Void](js, chromedp.WithPollingTimeout(0))); err != nil {
		p.t.Fatalf("never: %s: %v\n%s", js, err, p.text("body"))
	}
}

// press presses a key and waits until so many steps are shown.
func (p *tab) press(key string, steps int) {
	p.t.Helper()
	p.run(chromedp.KeyEvent(key))
	p.until(fmt.Sprintf(`document.querySelector("#count").textContent === "step %d"`, steps))
}

func (p *tab) shoot(name string) {
	p.t.Helper()
	chromium.Shot(p.t, p.ctx, name)
}

const level = `other/naive-del 2.4 2x1 given="SET {key} t=-2s" check=exclusion :`

// A level is solved by the keyboard alone, with a hint and an undo on the way.
func TestLevelByKeyboard(t *testing.T) {
	p := open(t, level)
	if got := p.text("#objective"); got != "Make two clients hold lock.report." {
		t.Errorf("objective %q", got)
	}
	p.run(chromedp.KeyEvent("h"))
	if got := p.text("#hinttext"); got != "exclusion is 8 steps away." {
		t.Errorf("hint %q", got)
	}
	for n, key := range strings.Fields("1 1 1 1") { // C1 alone: it has the lock, and C2 won't get it
		p.press(key, n+1)
	}
	p.press("2", 5)
	p.press("u", 4)
	p.press("y", 5)
	p.run(chromedp.KeyEvent("h"))
	if got := p.text("#hinttext"); !strings.HasPrefix(got, "exclusion is not reachable from here: undo ") {
		t.Errorf("hint %q", got)
	}
	p.press("0", 0)
	for n, key := range strings.Fields("1 2 1 2 1 1 2 2") {
		if p.text("#violation") != "" {
			t.Fatalf("broken before step %d", n+1)
		}
		p.press(key, n+1)
	}
	if got := p.text("#violation"); !strings.Contains(got, "Broken: exclusion at step 8: C1 and C2 both hold the lock.") {
		t.Errorf("violation %q", got)
	}
	if got := p.text("#after"); !strings.Contains(got, "Solved, in 8 steps. There is no shorter way") {
		t.Errorf("after %q", got)
	}
	if got := eval[string](p, `localStorage.getItem("setnxlock-levels")`); got != `{"getset/double-takeover":8}` {
		t.Errorf("progress %q", got)
	}
	p.shoot("solved")
	p.run(chromium.Call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}))
	p.shoot("solved-dark")
	p.run(chromedp.EmulateViewport(390, 844))
	if wide := eval[int](p, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("on 390 px the page is %d wide", wide)
	}
	p.shoot("solved-narrow-dark")
	eval[bool](p, `document.querySelector("#after button").click() || true`)
	p.until(`document.querySelector("#said").textContent.includes("They part at step")`)
}

// The published GETSET lock is broken by the explorer, in its Worker; a search is stopped.
func TestFindAndStop(t *testing.T) {
	p := open(t, "")
	eval[bool](p, `(document.querySelector("#ticks").value = 6, true)`)
	p.run(chromedp.KeyEvent("f"))
	p.until(`document.querySelector("#violation").textContent.includes("Broken")`)
	if got := p.text("#progress"); !strings.Contains(got, "getset:classic on Redis 2.4 breaks ") || !strings.Contains(got, " states, ") {
		t.Errorf("progress %q", got)
	}
	schedule := eval[string](p, `decodeURIComponent(location.hash.slice(1))`)
	if tr, err := race.ReplaySchedule(schedule, nil); err != nil || tr.Verdict.Violated == "" {
		t.Errorf("the address %q: %v, %v", schedule, tr.Verdict, err)
	}
	if got := p.text("#replay"); !strings.Contains(got, "setnxlock race replay '"+schedule) {
		t.Errorf("replay %q of %q", got, schedule)
	}
	p.shoot("found")
	p.run(chromedp.EmulateViewport(390, 844))
	p.shoot("found-narrow")

	eval[bool](p, `(document.querySelector("#paste").value = "setnxlock race replay 'tx:guarded 2.4 3x2 :'", document.querySelector("#go").click(), true)`)
	p.until(`document.querySelector("#setting").textContent.startsWith("tx:guarded")`)
	eval[bool](p, `(document.querySelector("#ticks").value = 15, document.querySelector("#safe").click(), true)`)
	p.until(`/^[\d,]+ states/.test(document.querySelector("#progress").textContent)`)
	p.run(chromedp.KeyEvent("\x1b"))
	p.until(`document.querySelector("#progress").textContent === "Stopped: this proves nothing."`)
	eval[bool](p, `(document.querySelector("#clients").value = 2, document.querySelector("#ticks").value = 1, true)`)
	eval[bool](p, `(document.querySelector("#paste").value = "tx:guarded 2.4 2x1 :", document.querySelector("#go").click(), true)`)
	p.until(`location.hash.includes("2x1")`)
	p.run(chromedp.KeyEvent("s"))
	p.until(`document.querySelector("#progress").textContent.includes("Nothing breaks within these bounds: tx:guarded on Redis 2.4, 2 clients × 1 attempts, 1 jump of time")`)
}

// An address leads to its state, with the choices there; one that leads nowhere says so.
func TestAddress(t *testing.T) {
	p := open(t, level+" C1 C2 C1 C2 C1 C1 C2 C2")
	if got := p.text("#count"); got != "step 8" {
		t.Errorf("count %q", got)
	}
	p.press("u", 7)
	p.until(`document.querySelectorAll("#others button").length > 3`)
	p.run(chromedp.NavigateBack())
	p.until(`document.querySelector("#count").textContent === "step 8"`)
}

func TestAddressOfNothing(t *testing.T) {
	p := open(t, "no/lock 2.4 2x1 :")
	if got := p.text("#said"); !strings.Contains(got, `The address leads nowhere. Not possible: no algorithm "no/lock"`) {
		t.Errorf("said %q", got)
	}
}

// What a reader has to load stays small enough to wait for.
func TestSize(t *testing.T) {
	dir, err := site()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, workbench.Engine))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", packed.Len())
	if packed.Len() > engineSize {
		t.Errorf("the engine has %d bytes packed, want %d at most", packed.Len(), engineSize)
	}
}
