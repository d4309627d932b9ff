package view_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/chromium"
	"github.com/setnxlock/setnxlock/compat/race/browser/internal/npm"
	"github.com/setnxlock/setnxlock/compat/race/internal/tracetest"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// Mermaid's own parser and renderer take every diagram, and one whose texts
// are made of Mermaid's own words.
func TestMermaidIsValid(t *testing.T) {
	all := tracetest.Read(t, renders)
	nasty := all["lost-reply"]
	const words = `end; # %% %%{init}%% <b>&amp; $$x$$ "q" \n {a} -->> : rect`
	nasty.Key, nasty.Server = words, words
	nasty.Clients = []race.Client{{Name: "C1"}, {Name: "end"}}
	nasty.Events = append([]race.Event(nil), nasty.Events...)
	for i := range nasty.Events {
		e := &nasty.Events[i]
		e.Why = words
		e.Belief = map[string]race.Belief{"C1": {State: race.Holds}, "end": {State: race.Idle}}
		if e.Who == "C2" {
			e.Who = "end"
		}
		if e.Cmd != "" {
			e.Cmd, e.Reply = words, words
		} else {
			e.Note = words
		}
		if e.Violation != nil {
			e.Violation = &race.Violation{Invariant: "end", Text: words}
		}
	}
	all["nasty"] = nasty
	cut := all["double-takeover"]
	cut.Events = append([]race.Event(nil), cut.Events...)
	cut.Events[5].Lost, cut.Events[5].Note = "cut", "the pool has a new connection for it"
	cut.Events[6].Lost, cut.Events[6].Reply = "reply", ""
	all["cut"] = cut

	page := filepath.Join(t.TempDir(), "mermaid.html")
	html := `<!doctype html><meta charset="utf-8"><body><script src="` + (&url.URL{Scheme: "file", Path: mermaidJS(t)}).String() + `"></script>`
	if err := os.WriteFile(page, []byte(html), 0o666); err != nil {
		t.Fatal(err)
	}
	p := openPage(t, chromium.Start(t), (&url.URL{Scheme: "file", Path: page}).String())
	p.run(chromedp.Evaluate[chromedp.Void](`mermaid.initialize({startOnLoad: false})`))
	for name, tr := range all {
		text, err := json.Marshal(view.Mermaid(tr))
		if err != nil {
			t.Fatal(err)
		}
		drawn, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](fmt.Sprintf(`(async text => {
			await mermaid.parse(text);
			const e = document.createElement("div");
			e.innerHTML = (await mermaid.render("d%x", text)).svg;
			for (const s of e.querySelectorAll("style")) s.remove();
			document.body.replaceChildren(e);
			return e.textContent;
		})(%s)`, name, text), chromedp.EvalAwaitPromise))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, view.Mermaid(tr))
			continue
		}
		p.shot(name + "-mermaid")
		got := strings.Join(strings.Fields(drawn), "")
		for _, e := range tr.Events {
			for _, want := range []string{e.Cmd, e.Note} {
				if want = strings.Join(strings.Fields(want), ""); !strings.Contains(got, want) {
					t.Errorf("%s: %q is not drawn in\n%s", name, want, got)
				}
			}
		}
	}
}

// The version of Mermaid that the diagrams are checked with, and its package's
// checksum. $MERMAID_JS names another mermaid.min.js.
const (
	mermaidVersion = "11.17.2"
	mermaidSum     = "V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg=="
)

// mermaidJS is where Mermaid lies. npm fetches it once.
func mermaidJS(t *testing.T) string {
	t.Helper()
	if name := os.Getenv("MERMAID_JS"); name != "" {
		return name
	}
	return npm.File(t, "mermaid", mermaidVersion, mermaidSum, "package/dist/mermaid.min.js")
}
