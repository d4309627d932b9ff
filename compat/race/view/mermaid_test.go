package view

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/internal/chromium"
)

func TestMermaid(t *testing.T) {
	for name, tr := range renderTraces(t) {
		golden(t, name+".mmd", Mermaid(tr))
	}
}

// Mermaid's own parser and renderer take every diagram, and one whose texts
// are made of Mermaid's own words.
func TestMermaidIsValid(t *testing.T) {
	all := renderTraces(t)
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
		text, err := json.Marshal(Mermaid(tr))
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
			t.Errorf("%s: %v\n%s", name, err, Mermaid(tr))
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
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	name := filepath.Join(cache, "setnxlock", "mermaid-"+mermaidVersion+".min.js")
	if _, err := os.Stat(name); err == nil {
		return name
	}
	dir := t.TempDir()
	npm := osexec.Command(realredis.Need(t, "npm", "npm"), "pack", "--silent", "mermaid@"+mermaidVersion)
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("mermaid is not there and npm does not fetch it (or set $MERMAID_JS): %v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "mermaid-"+mermaidVersion+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha512.Sum512(b); base64.StdEncoding.EncodeToString(sum[:]) != mermaidSum {
		t.Fatalf("mermaid@%s is not what it was: sha512-%s", mermaidVersion, base64.StdEncoding.EncodeToString(sum[:]))
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("no mermaid.min.js in the package: %v", err)
		}
		if h.Name != "package/dist/mermaid.min.js" {
			continue
		}
		if b, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		break
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	// Another test may be doing the same: nobody must see half a file.
	half := filepath.Join(filepath.Dir(name), filepath.Base(dir)+fmt.Sprint(os.Getpid()))
	if err := os.WriteFile(half, b, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(half, name); err != nil {
		t.Fatal(err)
	}
	return name
}
