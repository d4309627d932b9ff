// Package chromium opens pages for tests, and judges what they say and ask for.
package chromium

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
)

// An Action is something to be done in a page.
type Action = chromedp.Action[chromedp.Void]

// Call is a command of the browser's protocol as an action.
func Call[P, R any](c cdp.Command[P, R], params P) Action {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

// path is where Chromium lies. Where there is none the test fails: a page that nobody has opened is
// not tested.
func path(t testing.TB) string {
	if !realredis.Embedded() {
		for _, name := range []string{os.Getenv("CHROMIUM"), "chromium-browser", "google-chrome"} {
			if path, err := exec.LookPath(name); err == nil {
				return path
			}
		}
	}
	return realredis.Need(t, "chromium", "chromium")
}

// Start starts a fresh Chromium, for five minutes at most; it ends with the test.
func Start(t testing.TB) context.Context {
	t.Helper()
	return StartFor(t, 5*time.Minute)
}

// StartFor is Start with another time at most: for tests of many pages.
func StartFor(t testing.TB, most time.Duration) context.Context {
	t.Helper()
	path := path(t)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, chromedp.DisableGPU)
	for _, f := range []string{"disable-quic", "disable-component-update", "hide-scrollbars"} { // the other usual ones are chromedp's defaults
		options = append(options, chromedp.Flag(f, true))
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, most)
	t.Cleanup(cancel)
	ctx, _ = chromedp.NewContext(ctx)
	t.Cleanup(func() { chromedp.Cancel(ctx) }) //nolint:errcheck // it waits for the process, which else writes into a folder being removed
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("%s does not start: %v", path, err)
	}
	return ctx
}

// Open opens an address in a new tab of a browser that was started, 1280 × 900. It is closed and
// judged when t ends: the console must have said nothing, and the page have asked for files alone.
func Open(t testing.TB, browser context.Context, address string, before ...Action) context.Context {
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
			t.Error(s)
		}
	})
	err := chromedp.Listen(ctx, func(ev any) {
		said := ""
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			said = "console: " + exception(ev.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			said = "console: " + string(ev.Type)
			for _, a := range ev.Args {
				said += fmt.Sprintf(" %s%s", a.Value, a.Description)
			}
		case *cdplog.EventEntryAdded:
			said = "console: " + ev.Entry.Text
		case *network.EventRequestWillBeSent:
			if scheme, _, _ := strings.Cut(ev.Request.URL, ":"); scheme != "file" && scheme != "data" && scheme != "blob" {
				said = "the page asked for " + ev.Request.URL
			}
		}
		if said != "" {
			mu.Lock()
			defer mu.Unlock()
			trouble = append(trouble, said)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	Do(t, ctx, Call(network.Enable, network.EnableParams{}), Call(cdplog.Enable, cdp.Empty{}), chromedp.EmulateViewport(1280, 900))
	Do(t, ctx, before...)
	Do(t, ctx, chromedp.Navigate(address))
	return ctx
}

func exception(d *runtime.ExceptionDetails) string {
	if d.Exception != nil && d.Exception.Description != "" {
		return d.Exception.Description
	}
	return d.Text
}

// Do does the actions in a tab.
func Do(t testing.TB, tab context.Context, actions ...Action) {
	t.Helper()
	if err := chromedp.Do(tab, actions...); err != nil {
		t.Fatal(err)
	}
}

// Eval is the value of an expression of JavaScript in a tab, as T.
func Eval[T any](t testing.TB, tab context.Context, js string) T {
	t.Helper()
	v, err := chromedp.Run(tab, chromedp.Evaluate[T](js))
	if err != nil {
		t.Fatalf("%s: %v", js, err)
	}
	return v
}

var shots = flag.String("shots", "", "write screenshots of the pages into this folder, to be looked at")

// Shots reports whether somebody wants to look at the pages.
func Shots() bool { return *shots != "" }

// Shot keeps a picture of the whole page if somebody wants to look at it.
func Shot(t testing.TB, tab context.Context, name string) {
	t.Helper()
	if !Shots() {
		return
	}
	png, err := chromedp.Run(tab, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	Keep(t, name+".png", png)
}

// Keep writes a file beside the pictures.
func Keep(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(*shots, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name), b, 0o666); err != nil {
		t.Fatal(err)
	}
}
