//go:build !js

package view

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/internal/markup"
	"github.com/setnxlock/setnxlock/compat/race"
)

// A Page is a race in a site.
type Page struct {
	Trace    race.Trace
	Survives *race.Trace // the same schedule on a lock that survives it; nil: none
	Starred  bool        // belongs to the course
	Order    int         // in the course, and in the list of the others; equal ones by name
	Exercise string
}

// A SiteTable is a table of guarantees, as a site shows it.
type SiteTable struct {
	Title   string
	Note    string // below the title
	Columns []string
	Rows    []SiteRow
}

// A SiteRow is a row of a SiteTable, with a cell for each column.
type SiteRow struct {
	Name  string
	Cells []SiteCell
}

// A SiteCell says what was found. It must prove it: by a race of the site, by a
// trace that is in no page of the site and gets its own, or by its bounds.
type SiteCell struct {
	Text   string      // "holds", "breaks exclusion"
	Class  string      // "holds", "breaks", "unknown" or "" where the question makes no sense
	Race   string      // the Scenario of a page
	Trace  *race.Trace // a counterexample
	Bounds string      // "3 clients × 2 attempts, one lost reply: 1,204,337 states"
}

// Site writes a static site into a folder: an index of the races in teaching
// order, a page and a JSON file for each, and the tables of guarantees. Each
// file stands alone; nothing is loaded from elsewhere. Files of the folder that
// the site has no use for are left as they are. workbench is a file beside them that can go on
// from any schedule, which it takes after a #; "": there is none.
func Site(dir, workbench string, races []Page, tables ...SiteTable) error {
	s := &site{dir: dir, workbench: workbench, files: map[string]string{}}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	races = slices.Clone(races)
	slices.SortStableFunc(races, func(a, b Page) int {
		if a.Starred != b.Starred {
			if a.Starred {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Trace.Scenario, b.Trace.Scenario))
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
	found, err := s.tables(tables)
	if err != nil {
		return err
	}
	return s.index(found)
}

// A site is one being written.
type site struct {
	dir       string
	workbench string
	files     map[string]string // of a scenario
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
	for other, taken := range s.files {
		if taken == file {
			return fmt.Errorf("race: %q and %q would both be %s", other, name, file)
		}
	}
	if slug(name) == "" || slices.Contains([]string{"index.html", "guarantees.html", s.workbench}, file) {
		return fmt.Errorf("race: a page can't be named %q", name)
	}
	s.files[name] = file
	e := siteEntry{Page: p, File: file, On: strings.Join(p.Trace.Servers, ", ")}
	if e.On == "" {
		e.On = p.Trace.Server
	}
	e.On = "on " + serverName(e.On)
	if p.Starred {
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
	return s.trace(e.File, p.Trace, pageContext{Nav: nav, Survives: e.Survives, Exercise: p.Exercise})
}

// trace writes a trace twice: to be seen, and to be read by a program.
func (s *site) trace(file string, t race.Trace, c pageContext) error {
	c.JSON = strings.TrimSuffix(file, ".html") + ".json"
	if s.workbench != "" && t.Schedule != "" {
		c.Workbench = s.workbench + "#" + Fragment(t.Schedule)
	}
	var page, data bytes.Buffer
	if err := writePage(&page, t, c); err != nil {
		return err
	}
	if err := t.WriteJSON(&data); err != nil {
		return err
	}
	if err := s.write(file, page.Bytes()); err != nil {
		return err
	}
	return s.write(c.JSON, data.Bytes())
}

// Fragment returns a schedule as the part of the workbench's address after the #. A colon, which
// could be taken for the end of a scheme, and the shell's quote are escaped.
func Fragment(schedule string) string {
	return strings.NewReplacer(":", "%3A", "'", "%27").Replace(url.PathEscape(schedule))
}

// tables is what the locks promise, each table folded.
func (s *site) tables(tables []SiteTable) (markup.HTML, error) {
	var w markup.Writer
	n := 0
	for _, t := range tables {
		w.Put("<details class=\"lock\"><summary>%s</summary>\n", t.Title)
		w.With("<p>%s</p>\n", t.Note)
		w.Put("<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"%s\"><table>\n<thead><tr><td></td>", t.Title)
		w.Each(`<th scope="col">%s</th>`, t.Columns)
		w.Put("</tr></thead>\n<tbody>\n")
		for _, r := range t.Rows {
			if len(r.Cells) != len(t.Columns) {
				return "", fmt.Errorf("race: table %q, row %q: %d cells for %d columns", t.Title, r.Name, len(r.Cells), len(t.Columns))
			}
			w.Put(`<tr><th scope="row">%s</th>`, r.Name)
			for i, c := range r.Cells {
				file := s.files[c.Race]
				switch {
				case c.Race != "" && file == "":
					return "", fmt.Errorf("race: table %q links to %q, which is no page", t.Title, c.Race)
				case c.Trace != nil && c.Race == "":
					n++
					file = fmt.Sprintf("counterexample-%d-%s.html", n, slug(r.Name+" "+t.Columns[i]))
					if err := s.trace(file, *c.Trace, pageContext{Nav: &pageNav{Prev: &pageLink{"guarantees.html", "guarantees"}}}); err != nil {
						return "", err
					}
				case c.Class != "" && file == "" && c.Bounds == "":
					return "", fmt.Errorf("race: table %q, row %q: %q has neither a race nor bounds", t.Title, r.Name, c.Text)
				}
				w.Put(`<td class="%s"><b>%s</b>`, c.Class, link(file, c.Text))
				w.With("<small>%s</small>", c.Bounds)
				w.Put("</td>")
			}
			w.Put("</tr>\n")
		}
		w.Put("</tbody>\n</table></div>\n</details>\n")
	}
	return w.HTML(), nil
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

// index writes the list of the races and, if there are tables, their page.
func (s *site) index(tables markup.HTML) error {
	var w markup.Writer
	w.Put(`<header>
<h1>How Locks Break</h1>
<p class="objective">Races of Redis locks, each found by running the shipping code through every interleaving of its commands. Try to reach the objective before you look at the steps.</p>
`)
	w.With("<p><a href=\"%s\">The workbench: break any lock by hand, or have the explorer do it</a></p>\n", s.workbench)
	if tables != "" {
		w.Put("<p><a href=\"guarantees.html\">What each lock promises, on which server, within which bounds</a></p>\n")
	}
	w.Put("</header>\n<main>\n")
	s.races(&w, "The course", true)
	s.races(&w, "More races", false)
	w.Put("</main>\n")
	if err := s.render("index.html", "How Locks Break", w.HTML()); err != nil || tables == "" {
		return err
	}
	w = markup.Writer{}
	w.Put(`<nav class="site"><span></span><a href="index.html">all races</a><span></span></nav>
<header>
<h1>What Each Lock Promises</h1>
<p class="objective">Where a cell breaks, it links to a run that shows it. Where it holds, it says within which bounds every run was tried; beyond them nothing is said.</p>
</header>
<main>
%s</main>
`, tables)
	return s.render("guarantees.html", "What Each Lock Promises", w.HTML())
}

// races lists those of the course, or the others.
func (s *site) races(w *markup.Writer, title string, starred bool) {
	listed := false
	for _, e := range s.list {
		if e.Starred != starred {
			continue
		}
		if !listed {
			listed = true
			w.Put("<h2>%s</h2>\n<ol class=\"races\">\n", title)
		}
		w.Put(`<li><span class="no">%s</span><div><h3>%s</h3>`, e.No, link(e.File, Titled(e.Trace.Title)))
		w.With(`<p class="name">%s</p>`, e.Trace.Scenario)
		w.With(`<p><i>%s</i></p>`, e.Trace.Objective)
		w.Put(`</div><p class="verdict">`)
		if v := e.Trace.Verdict; v.Violated != "" {
			w.Put("<b>✗ breaks %s</b> at step %d", v.Violated, v.Step)
		} else {
			w.Put("✓ holds")
		}
		w.Put("<br>%s", e.On)
		w.With(`<br><a href="%s">✓ survived by another lock</a>`, e.Survives)
		w.Put("</p></li>\n")
	}
	if listed {
		w.Put("</ol>\n")
	}
}

func (s *site) render(name, title string, body markup.HTML) error {
	return s.write(name, markup.Page{Title: title, Style: Style() + asset("site.css"), Body: body}.Document())
}

func (s *site) write(name string, b []byte) error {
	return os.WriteFile(filepath.Join(s.dir, name), b, 0o666)
}

// slug is a name as a file's: what is neither a letter nor a digit is a hyphen.
func slug(name string) string {
	words := strings.FieldsFunc(strings.ToLower(path.Clean("/"+name)), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-")
}
