package main

import (
	"encoding/json"
	"fmt"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/setnxlock/setnxlock/compat/oldredis/realredis"
)

// written is the site, once, with the races' pages that it links to made of nothing: what writes
// them has its own tests.
var written = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "handbook")
	if err != nil {
		return "", err
	}
	races, err := filepath.Glob(filepath.Join(repository, "docs", "races", "*.md"))
	if err != nil {
		return dir, err
	}
	if err := os.Mkdir(filepath.Join(dir, "races"), 0o777); err != nil {
		return dir, err
	}
	for _, name := range append(races, "index.md", "workbench.md") {
		file := strings.TrimSuffix(filepath.Base(name), ".md") + ".html"
		page := "<html>\n<style>\n</style>\n<body>\n<p>" + file + "</p>\n</body>\n</html>\n"
		if err := os.WriteFile(filepath.Join(dir, "races", file), []byte(page), 0o666); err != nil {
			return dir, err
		}
	}
	_, err = Write(repository, dir)
	return dir, err
})

func TestMain(m *testing.M) {
	status := m.Run()
	if dir, _ := written(); dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// writtenSite is the folder of the site, and its pages by their names.
func writtenSite(t *testing.T) (dir string, pages map[string]string) {
	t.Helper()
	dir, err := written()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.html"))
	if err != nil || len(files) < 25 {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	pages = map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		pages[filepath.Base(f)] = string(b)
	}
	return dir, pages
}

// Every link of every page leads to a page that is there, and every fragment to something on it.
// Nothing is loaded from elsewhere.
func TestLinks(t *testing.T) {
	dir, pages := writtenSite(t)
	links := 0
	for name, text := range pages {
		shown := regexp.MustCompile(`(?s)<script>.*?</script>`).ReplaceAllString(text, "")
		for _, m := range regexp.MustCompile(`(href|src)="([^"]*)"`).FindAllStringSubmatch(shown, -1) {
			links++
			to, fragment, _ := strings.Cut(m[2], "#")
			switch {
			case strings.HasPrefix(to, "data:"):
				continue
			case strings.Contains(to, "://"):
				if m[1] == "src" {
					t.Errorf("%s loads %s", name, to)
				}
				continue
			case to == "":
				to = name
			}
			if _, err := os.Stat(filepath.Join(dir, to)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[2], err)
			} else if fragment != "" && !strings.Contains(pages[to], `id="`+fragment+`"`) {
				t.Errorf("%s links to %s: there is no such place", name, m[2])
			}
		}
		if bare := regexp.MustCompile(`<pre>|<th[^>]*></th>`).FindString(text); bare != "" {
			t.Errorf("%s has a %s, which some readers can't reach", name, bare)
		}
		if file := regexp.MustCompile(`<a href="[^"]*">[\w/-]+\.md</a>`).FindString(shown); file != "" {
			t.Errorf("%s: %s names a file that the site does not have", name, file)
		}
		if n := strings.Count(text, "<h1"); n != 1 {
			t.Errorf("%s has %d titles", name, n)
		}
		if !strings.Contains(text, `<nav id="menu"`) || !strings.Contains(text, `id="q"`) {
			t.Errorf("%s has no menu, or no search", name)
		}
		if twice := regexp.MustCompile(`[^.]\.\.(\s|</p>|</li>|</td>)`).FindString(shown); twice != "" {
			t.Errorf("%s has a sentence with two full stops: %q", name, twice)
		}
	}
	if links < 500 {
		t.Errorf("%d links", links)
	}
	race, err := os.ReadFile(filepath.Join(dir, "races", "any-lost-reply.html"))
	if err != nil || strings.Count(string(race), `<nav id="menu"`) != 1 || !strings.Contains(string(race), `href="../index.html"`) || !strings.Contains(string(race), "#menu {") {
		t.Errorf("a race's page has no menu: %v\n%s", err, race)
	}
}

// A site that is written anew looks the same: no second menu.
func TestAgain(t *testing.T) {
	dir, _ := writtenSite(t)
	before, err := os.ReadFile(filepath.Join(dir, "races", "any-lost-reply.html"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(repository, dir); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(filepath.Join(dir, "races", "any-lost-reply.html"))
	if err != nil || string(before) != string(after) {
		t.Errorf("%v: was\n%s\nis\n%s", err, before, after)
	}
}

// dom is what a page has become when its scripts have run.
func dom(t *testing.T, url string, flags ...string) string {
	t.Helper()
	args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + t.TempDir(), "--virtual-time-budget=20000", "--dump-dom"}, flags...)
	out, err := exec.Command(realredis.Need(t, "chromium", "chromium"), append(args, "file://"+url)...).Output()
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return string(out)
}

// In a browser, from the disk: the search finds sections and races, and the guarantees answer.
func TestInBrowser(t *testing.T) {
	dir, _ := writtenSite(t)
	for query, want := range map[string][]string{
		"stuck%20lock":    {`href="operating.html#a-stuck-lock"`},
		"ErrUnknown":      {`href="faq.html#what-is-errunknown-and-what-do-i-do"`, "<mark>ErrUnknown</mark>"},
		"double-takeover": {`href="races/getset-double-takeover.html"`},
		"zzzz":            {"0 sections"},
	} {
		page := dom(t, dir+"/index.html#q="+query)
		for _, w := range want {
			if _, found, _ := strings.Cut(page, `<div id="found"`); !strings.Contains(strings.SplitN(found, "<main>", 2)[0], w) {
				t.Errorf("%s: no %s", query, w)
			}
		}
	}
	for question, want := range map[string][2]string{
		"server=2.4&faults=lost+reply":     {`>tx:renamed</a></td><td class="holds"`, "set:lua"},
		"server=1.2&faults=none":           {`>getset:classic</a></td><td class="breaks"><b>breaks</b><br>`, "getset:listed"},
		"server=7.0&faults=failover;crash": {"exclusion: failover", "set:script"},
	} {
		page := dom(t, dir+"/guarantees.html#"+question)
		_, mine, _ := strings.Cut(page, `<section id="mine">`)
		mine, _, _ = strings.Cut(mine, "</section>")
		_, answer, _ := strings.Cut(mine, `id="answer"`)
		if !strings.Contains(mine, want[0]) || !strings.Contains(answer, want[1]) {
			t.Errorf("%s: %s", question, answer)
		}
	}
}

// Two menus, and an answer: with a name in the second, one row is left, and the steps are a link away. What the page says of
// a pair is what the table of docs/mixing.md has for it.
func TestFleetsInBrowser(t *testing.T) {
	dir, pages := writtenSite(t)
	if n := strings.Count(pages["fleets.html"], "<tr data-name="); n < 600 {
		t.Errorf("%d rows for readers without JavaScript", n)
	}
	for question, want := range map[string][]string{
		"": {"No. Two hold it late, with one client of each. If a client of redis-py-2.9 dies holding it, tx:guarded never gets it again."},
		"#one=ours/tx:guarded&other=theirs/redis-py-3": {"Yes. No two clients hold it at once", "setnxlock race mixing --a ours/tx:guarded --b theirs/redis-py-3", "workbench.html#fleets%3Dours%2Ftx%3Aguarded%2Btheirs%2Fredis-py-3"},
		"#one=theirs/node-resque&other=":               {"node-resque may share a key with 0 of these 25 fleets."},
		"#node-resque":                                 {"node-resque may share a key with 0 of these 25 fleets."},
	} {
		page := dom(t, dir+"/fleets.html"+question)
		_, form, _ := strings.Cut(page, `<form id="pair">`)
		form, rest, _ := strings.Cut(form, "</form>")
		for _, w := range want {
			if !strings.Contains(form, w) {
				t.Errorf("%s: no %q in %s", question, w, form[strings.Index(form, `id="answer"`):])
			}
		}
		if n := len(regexp.MustCompile(`<details class="fleet"[^>]* open=""`).FindAllString(rest, -1)); n != 1 {
			t.Errorf("%s: %d fleets are shown", question, n)
		}
	}
}

// Who wants no motion sees the demo as it ends, at once.
func TestDemoWithoutMotion(t *testing.T) {
	dir, _ := writtenSite(t)
	shot := filepath.Join(t.TempDir(), "shot.png")
	if out, err := exec.Command(realredis.Need(t, "chromium", "chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
		"--force-prefers-reduced-motion", "--screenshot="+shot, "--window-size=900,6000", "file://"+dir+"/index.html").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(shot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	rows, b := 0, img.Bounds() // of pixels that are green, as only what the demo says is
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if r, g, _, _ := img.At(x, y).RGBA(); g > 0xb000 && g-min(r, g) > 0x4000 {
				rows++
				break
			}
		}
	}
	if rows < 60 {
		t.Errorf("%d rows of pixels have the colour of a lock that works", rows)
	}
}

// No page is wider than a telephone.
func TestWidth(t *testing.T) {
	dir, pages := writtenSite(t)
	var names []string
	for name := range pages {
		names = append(names, name)
	}
	list, err := json.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	frames := fmt.Sprintf(`<!doctype html><body><pre id="out"></pre><script>
for (const name of %s) {
  const f = document.createElement('iframe')
  f.style.cssText = 'width:390px;height:800px;border:0'
  f.onload = () => { document.getElementById('out').textContent += '\n' + name + ' ' + f.contentDocument.documentElement.scrollWidth + ' ' +
    [...f.contentDocument.querySelectorAll('.answers .table')].filter(e => e.scrollWidth > e.clientWidth && !e.querySelector('td:nth-child(4)')).length + '\n' }
  f.src = name
  document.body.append(f)
}</script>`, list)
	if err := os.WriteFile(filepath.Join(dir, "frames.htm"), []byte(frames), 0o666); err != nil {
		t.Fatal(err)
	}
	page := dom(t, dir+"/frames.htm", "--allow-file-access-from-files")
	found := regexp.MustCompile(`(?m)^(\S+\.html) (\d+) (\d+)$`).FindAllStringSubmatch(page, -1)
	if len(found) != len(names) {
		t.Fatalf("%d of %d pages", len(found), len(names))
	}
	for _, m := range found {
		if n, err := strconv.Atoi(m[2]); err != nil || n > 390 {
			t.Errorf("%s is %s pixels wide in 390", m[1], m[2])
		}
		if m[3] != "0" {
			t.Errorf("%s: %s tables of three columns are cut in 390 pixels", m[1], m[3])
		}
	}
}

// A table about names of code says in each cell what it is of, for a telephone; one of numbers stays a table.
func TestStacked(t *testing.T) {
	table := func(first string) string {
		return "<table>\n<thead>\n<tr>\n<th>lock</th>\n<th>since</th>\n<th></th>\n</tr>\n</thead>\n<tbody>\n<tr>\n<td>" + first + "</td>\n<td>2.4</td>\n<td>best</td>\n</tr>\n</tbody>\n</table>"
	}
	if got := stacked(table("<code>tx</code>")); !strings.Contains(got, `<table class="stacked">`) || !strings.Contains(got, `<td><code>tx</code></td>`+"\n"+`<td data-of="since">2.4</td>`+"\n"+`<td>best</td>`) {
		t.Error(got)
	}
	if got := stacked(table("64 goroutines")); got != table("64 goroutines") {
		t.Error(got)
	}
}
