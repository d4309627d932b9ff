//go:build !js

package pages

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/markup"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// A Page is a race in a site.
type Page struct {
	Trace    race.Trace
	Survives *race.Trace // the same schedule on a lock that survives it; nil: none
	Lecture  int         // of the course, from 1; 0: it is of the archive
	Order    int         // in the course, and in the archive; equal ones by name
	Exercise string
	Where    string // with which lock and on which servers it was shown
}

// A Question is a page of a site that answers questions by its script.
type Question struct {
	File   string // "fleets.html"; its script is beside it
	Title  string
	Says   string // of the link in the index
	Body   markup.HTML
	Script string
}

// The files that all pages of a site share, and what a Content-Security-Policy says of scripts that are files.
const (
	Sheet       = "races.css"
	raceScript  = "races.js"
	FileScripts = "script-src 'self' file:"
)

// Site writes a static site into a folder: an index of the races in teaching order, a page and a JSON
// file for each, and the guarantees, a text of Guarantees. Nothing is loaded from elsewhere. Files of the
// folder that the site has no use for are left as they are. workbench is a file beside them that can go
// on from any schedule, which it takes after a #; "": there is none.
func Site(dir, workbench, guarantees string, races []Page, questions ...Question) error {
	promises, err := guaranteesPage(guarantees, workbench)
	if err != nil {
		return err
	}
	questions = append([]Question{promises}, questions...)
	s := &site{dir: dir, workbench: workbench, questions: questions}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	races = slices.Clone(races)
	slices.SortStableFunc(races, func(a, b Page) int {
		archived := func(p Page) int {
			if p.Lecture == 0 {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(archived(a), archived(b)), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Trace.Scenario, b.Trace.Scenario))
	})
	for _, p := range races {
		if err := s.add(p); err != nil {
			return err
		}
	}
	for i, p := range races {
		if err := s.race(p, i); err != nil {
			return err
		}
	}
	for _, q := range s.questions {
		if err := s.question(q); err != nil {
			return err
		}
	}
	return errors.Join(s.write(Sheet, []byte(pageCSS+siteCSS)), s.write(raceScript, []byte(Lanes+pageJS)), s.index())
}

// A site is one being written.
type site struct {
	dir       string
	workbench string
	questions []Question
	list      []siteEntry
}

// A siteEntry is a race in the index.
type siteEntry struct {
	Page
	No       string
	File     string
	Survives string
	On       string
}

func (s *site) add(p Page) error {
	name := p.Trace.Scenario
	file := slug(name) + ".html"
	if i := slices.IndexFunc(s.list, func(e siteEntry) bool { return e.File == file }); i >= 0 {
		return fmt.Errorf("race: %q and %q would both be %s", s.list[i].Trace.Scenario, name, file)
	}
	taken := slices.ContainsFunc(s.questions, func(q Question) bool { return q.File == file })
	if slug(name) == "" || file == "index.html" || file == s.workbench || taken {
		return fmt.Errorf("race: a page can't be named %q", name)
	}
	e := siteEntry{Page: p, File: file, On: strings.Join(p.Trace.Servers, ", ")}
	if e.On == "" {
		e.On = p.Trace.Server
	}
	e.On = "shown on " + view.ServerName(e.On)
	if p.Lecture > 0 {
		e.No = fmt.Sprint(len(s.list) + 1)
	}
	if p.Survives != nil {
		e.Survives = slug(name) + ".survives.html"
	}
	s.list = append(s.list, e)
	return nil
}

func (s *site) race(p Page, i int) error {
	e, nav := s.list[i], &pageNav{}
	if i > 0 {
		nav.Prev = &pageLink{s.list[i-1].File, s.list[i-1].Trace.Scenario}
	}
	if i+1 < len(s.list) {
		nav.Next = &pageLink{s.list[i+1].File, s.list[i+1].Trace.Scenario}
	}
	if p.Survives != nil {
		back := &pageNav{Prev: &pageLink{e.File, p.Trace.Scenario}}
		if err := s.trace(e.Survives, *p.Survives, pageContext{Nav: back}); err != nil {
			return err
		}
	}
	return s.trace(e.File, p.Trace, pageContext{Nav: nav, Survives: e.Survives, Exercise: p.Exercise, Level: p.Lecture > 0, Where: p.Where})
}

// trace writes a trace twice: to be seen, and to be read by a program.
func (s *site) trace(file string, t race.Trace, c pageContext) error {
	c.JSON, c.Workbench = strings.TrimSuffix(file, ".html")+".json", s.workbench
	var page, data bytes.Buffer
	if err := errors.Join(writePage(&page, t, c), t.WriteJSON(&data)); err != nil {
		return err
	}
	return errors.Join(s.write(file, page.Bytes()), s.write(c.JSON, data.Bytes()))
}

// Fragment returns a schedule as the part of the workbench's address after the #. A colon, which
// could be taken for the end of a scheme, and the shell's quote are escaped.
func Fragment(schedule string) string {
	return strings.NewReplacer(":", "%3A", "'", "%27").Replace(url.PathEscape(schedule))
}

// link leads to a file; "": there is none.
func link(file, text string) markup.HTML {
	var w markup.Writer
	if file == "" {
		w.Put("%s", text)
	} else {
		w.Put(`<a href="%s">%s</a>`, markup.Address(file), text)
	}
	return w.HTML()
}

// question writes a page of questions, and its script.
func (s *site) question(q Question) error {
	script := strings.TrimSuffix(q.File, ".html") + ".js"
	var w markup.Writer
	w.Put(`<nav class="site"><a href="index.html">all races</a></nav>
<header>
<h1>%s</h1>
</header>
<main>
%s</main>
<script src="%s"></script>
`, q.Title, q.Body, script)
	page := markup.Page{Title: q.Title, Allow: []string{FileScripts}, Sheets: []string{Sheet}, Body: w.HTML()}
	return errors.Join(s.write(script, []byte(q.Script)), s.write(q.File, page.Document()))
}

// index writes the list of the races.
func (s *site) index() error {
	const title = "How Locks Break"
	var w markup.Writer
	w.Put(`<header>
<h1>%s</h1>
<p class="objective">Races of Redis locks, each found by running the shipping code through every interleaving of its
commands. Try to reach the objective before you look at the steps.</p>
`, title)
	w.With("<p><a href=\"%s\">The workbench: break any lock by hand, or have the explorer do it</a></p>\n", s.workbench)
	for _, q := range s.questions {
		w.Put("<p><a href=\"%s\">%s</a></p>\n", q.File, q.Says)
	}
	w.Put("</header>\n<main>\n")
	s.races(&w, "The lock that everybody writes", 1)
	s.races(&w, "The locks of 2009, and ten years of repairs", 2)
	w.Put("<details><summary>The archive: more races</summary>\n")
	s.races(&w, "", 0)
	w.Put("</details>\n")
	w.Put("</main>\n")
	return s.write("index.html", markup.Page{Title: title, Sheets: []string{Sheet}, Body: w.HTML()}.Document())
}

// races lists the races of a lecture; 0: of the archive.
func (s *site) races(w *markup.Writer, title string, lecture int) {
	w.With("<h2>%s</h2>\n", title)
	w.Put("<ol class=\"races\">\n")
	for _, e := range s.list {
		if e.Lecture != lecture {
			continue
		}
		w.Put(`<li><span class="no">%s</span><div><h3>%s</h3>`, e.No, link(e.File, upperFirst(e.Trace.Title)))
		w.With(`<p class="name">%s</p>`, e.Trace.Scenario)
		w.With(`<p><i>%s</i></p>`, e.Trace.Objective)
		w.Put(`</div><p class="verdict">`)
		if v := e.Trace.Verdict; v.Violated != "" {
			w.Put("<b>✗ breaks %s</b> at step %d of %d", v.Violated, v.Step, len(e.Trace.Events))
		} else {
			w.Put("✓ holds")
		}
		w.Put("<br>%s", e.On)
		w.With(`<br><a href="%s">✓ survived by another lock</a>`, e.Survives)
		w.Put("</p></li>\n")
	}
	w.Put("</ol>\n")
}

func (s *site) write(name string, b []byte) error {
	return os.WriteFile(filepath.Join(s.dir, name), b, 0o666)
}

// slug turns a name into a file's: each other character becomes a hyphen.
func slug(name string) string {
	words := strings.FieldsFunc(strings.ToLower(path.Clean("/"+name)), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-")
}
