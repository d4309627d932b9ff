package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/compat/race/view"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

//go:embed page
var assets embed.FS

// A place is a page of the map.
type place struct {
	File  string // of the site
	Title string
	Says  string
	Menu  string // its name in the menu of every page; "": it is on the map only
}

// A part of the map.
type part struct {
	Title  string
	Places []place
}

// parts is the map: every page of docs is on it, once.
var parts = []part{
	{"Begin", []place{
		{"choosing.html", "", "Three questions, one answer.", "Choose a Lock"},
		{"quickstart.html", "", "Ten lines, and eight programs to start from.", "Quickstart"},
		{"faq.html", "", "Why not Redlock, do I need a fence, what is ErrUnknown.", "FAQ"},
		{"troubleshooting.html", "", "Each error and each message, with what to do.", ""},
	}},
	{"Operate", []place{
		{"operating.html", "", "A stuck lock, a full server, a restricted user, unknown clients.", "Operating"},
		{"command.html", "", "Exit statuses, addresses, what happens when something dies.", ""},
		{"json.html", "", "Every field of every answer.", ""},
		{"observing.html", "", "Prometheus, Grafana, OpenTelemetry, alerts.", ""},
		{"migration.html", "", "From an old lock to a new one, while the fleet runs.", "Migrating"},
		{"mixing.html", "", "What may share a key, and the reasons.", ""},
		{"fleets.html", "", "May your clients and these share a key? Two menus, one answer.", ""},
		{"interop.html", "", "22 real clients beside ours.", ""},
	}},
	{"Know What Holds", []place{
		{"guarantees.html", "", "What each lock promises on your server, under your faults.", "Guarantees"},
		{"guarantees-all.html", "", "Every table, with a shortest way to each break.", ""},
		{"comparison.html", "", "redislock, redsync, Redisson, etcd and others, under the same faults.", ""},
		{"performance.html", "", "What a lock costs, beside two PINGs and other libraries.", "Performance"},
		{"testing.html", "", "What is proven, simulated and survived, each with its command.", ""},
	}},
	{"See It Break", []place{
		{"races/index.html", "Races", "57 races of Redis locks, found by running the code that ships.", "Races"},
		{"races/workbench.html", "The Workbench", "You are the scheduler: break any lock by hand, or have it done.", ""},
		{"course.html", "", "A lecture's worth, with exercises.", ""},
		{"explorer.html", "", "How the code is run through every order of its commands.", ""},
		{"from-the-articles.html", "", "The locks that articles have published, and what breaks them.", ""},
		{"trace-format.html", "", "A run as JSON.", ""},
	}},
	{"Look Inside", []place{
		{"algorithms.html", "", "What each lock sends, and what it can't promise.", ""},
		{"servers.html", "", "What each Redis version does.", ""},
		{"clients.html", "", "The locks over go-redis and rueidis.", ""},
		{"architecture.html", "", "The structure, and a lock from TryLock to the server and back.", ""},
		{"glossary.html", "", "The words.", ""},
		{"platforms.html", "", "Systems and ways to install, each with what is tested.", ""},
		{"versioning.html", "", "What is covered by v1.", ""},
		{"contributing.html", "", "Set-up, tests, and how to add a lock.", ""},
		{"changelog.html", "", "What changed.", ""},
	}},
}

// A page of the site.
type page struct {
	File  string
	Title string
	Body  template.HTML

	sections []section
}

// A section is what the search finds.
type section struct {
	Page  string `json:"p"`
	Title string `json:"t"`
	File  string `json:"f"`
	Text  string `json:"x"`
}

// Write renders the docs of a repository into a folder, and puts the menu on the races' pages that
// are there. It returns how many pages it wrote.
func Write(repository, dir string) (int, error) {
	g, err := readGuarantees(repository)
	if err != nil {
		return 0, err
	}
	sources, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil || len(sources) == 0 {
		return 0, fmt.Errorf("no docs in %s: %w", repository, err)
	}
	sources = append(sources, filepath.Join(repository, "CONTRIBUTING.md"), filepath.Join(repository, "CHANGELOG.md"))
	s := &site{dir: dir, markdown: markdown()}
	for _, name := range sources {
		b, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		file := strings.ToLower(strings.TrimSuffix(filepath.Base(name), ".md")) + ".html"
		if err := s.add(file, b, filepath.Base(filepath.Dir(name)) != "docs"); err != nil {
			return 0, err
		}
	}
	if err := s.add("guarantees-all.html", []byte(strings.Replace(g.text, "# Guarantees", "# All Guarantees", 1)), false); err != nil {
		return 0, err
	}
	f, err := readFleets(repository)
	if err != nil {
		return 0, err
	}
	if err := s.fleets(f); err != nil {
		return 0, err
	}
	if err := s.onMap(); err != nil {
		return 0, err
	}
	races, err := s.races(repository)
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	for _, p := range s.pages {
		p.Body = s.named(p.Body)
		if err := s.write(p, g); err != nil {
			return 0, err
		}
	}
	if err := s.index(races); err != nil {
		return 0, err
	}
	if err := s.menuOnRaces(); err != nil {
		return 0, err
	}
	return len(s.pages) + 1, s.pictures(repository)
}

// A site is one being written.
type site struct {
	dir      string
	markdown goldmark.Markdown
	pages    []page
}

func markdown() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithExtensions(extension.Table, extension.Strikethrough),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()),
		goldmark.WithRendererOptions(html.WithUnsafe(), // the docs are our own, and have anchors
			renderer.WithNodeRenderers(util.Prioritized(words{}, 100))),
	)
}

// words renders code in a line of text so that its words stay whole.
type words struct{}

func (words) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindCodeSpan, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		_, err := w.WriteString("<code>" + view.Words(plain(n, source)) + "</code>")
		return ast.WalkSkipChildren, err
	})
}

// add renders a page. top says that it stands at the top of the repository, beside docs.
func (s *site) add(file string, source []byte, top bool) error {
	doc := s.markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&ids{map[string]int{}}))))
	p := page{File: file}
	var strip []*ast.Link
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 && p.Title == "" {
				p.Title = view.Titled(plain(n, source))
			}
		case *ast.Link:
			to := target(string(n.Destination), top)
			if to == "" {
				strip = append(strip, n)
			}
			n.Destination = []byte(to)
		case *ast.Image:
			n.Destination = []byte(strings.TrimPrefix(string(n.Destination), "docs/"))
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	for _, l := range strip { // source code is not on the site: its words stay
		for c := l.FirstChild(); c != nil; {
			next := c.NextSibling()
			l.Parent().InsertBefore(l.Parent(), l, c)
			c = next
		}
		l.Parent().RemoveChild(l.Parent(), l)
	}
	if p.Title == "" {
		return fmt.Errorf("%s has no title", file)
	}
	p.sections = sections(doc, source, p)
	if h := doc.FirstChild(); h != nil && h.Kind() == ast.KindHeading {
		doc.RemoveChild(doc, h) // the template has it
	} else if h := h.NextSibling(); h != nil && h.Kind() == ast.KindHeading { // behind a comment
		doc.RemoveChild(doc, h)
	}
	var b bytes.Buffer
	if err := s.markdown.Renderer().Render(&b, source, doc); err != nil {
		return err
	}
	body := strings.ReplaceAll(b.String(), "<table>", `<div class="table" tabindex="0"><table>`)
	body = strings.ReplaceAll(body, "</table>", "</table></div>")
	body = strings.ReplaceAll(body, "<pre>", `<pre tabindex="0">`)                        // what scrolls is reached by keyboard
	body = regexp.MustCompile(`<th( [^>]*)?></th>`).ReplaceAllString(body, "<td$1></td>") // a head that says nothing is none
	body = regexp.MustCompile(`<thead>\s*<tr>(\s*<td[^>]*></td>)+\s*</tr>\s*</thead>`).ReplaceAllString(body, "")
	body = regexp.MustCompile(`(?s)<!--.*?-->\n?`).ReplaceAllString(body, "")
	body = tables.ReplaceAllStringFunc(body, stacked)
	body = heading.ReplaceAllStringFunc(body, func(h string) string { return option.ReplaceAllString(h, `$1<span class="word">$2</span>`) })
	body = cell.ReplaceAllStringFunc(body, func(c string) string {
		if strings.Contains(c, "<code") {
			return c
		}
		return unit.ReplaceAllString(c, "$1\u00a0$2")
	})
	p.Body = template.HTML(body)
	s.pages = append(s.pages, p)
	return nil
}

var (
	tables  = regexp.MustCompile(`(?s)<table>.*?</table>`)
	rows    = regexp.MustCompile(`(?s)<tr>.*?</tr>`)
	columns = regexp.MustCompile(`(?s)<t[hd][^>]*>(.*?)</t[hd]>`)
	heading = regexp.MustCompile(`<h[23].*?</h[23]>`)
	option  = regexp.MustCompile(`( )(--[\w-]+)`)
	anyCell = regexp.MustCompile(`<td\b`)
	tags    = regexp.MustCompile(`<[^>]*>`)
)

// stacked gives each cell of a table its heading, if the table is about names of code, or has much to
// say, in three to six columns: on a telephone, where these have no room side by side, each row is a block.
func stacked(table string) string {
	head, body, ok := strings.Cut(table, "</thead>")
	var headings []string
	for _, c := range columns.FindAllStringSubmatch(head, -1) {
		headings = append(headings, strings.TrimSpace(tags.ReplaceAllString(c[1], "")))
	}
	text := columns.FindAllString(body, -1)
	much := func(c string) bool { return utf8.RuneCountInString(tags.ReplaceAllString(c, "")) > 100 }
	if !ok || len(headings) < 3 || len(headings) > 6 || !strings.Contains(text[0], "<code>") && !slices.ContainsFunc(text, much) {
		return table
	}
	body = rows.ReplaceAllStringFunc(body, func(row string) string {
		n := -1
		return anyCell.ReplaceAllStringFunc(row, func(td string) string {
			if n++; n == 0 || n >= len(headings) || headings[n] == "" {
				return td
			}
			return td + ` data-of="` + headings[n] + `"`
		})
	})
	return strings.Replace(head, "<table>", `<table class="stacked">`, 1) + "</thead>" + body
}

// cell is one of a table, and unit what follows a number in it, which does not stand alone on a line.
var (
	cell = regexp.MustCompile(`(?s)<td[^>]*>.*?</td>`)
	unit = regexp.MustCompile(`(\d|&lt;) (×|%|\+|(?:ns|µs|ms|s|min|h|MB|kB|\d|\d{3})\b)`)
)

// link is one whose words are the name of its file, as a reader of the repository wants them.
var link = regexp.MustCompile(`(<a href="([\w-]+\.html)[^"]*">)[\w/-]+\.md</a>`)

// race is what is a link already, or a race's name as code.
var race = regexp.MustCompile(`(?s)(<a .*?</a>)|<code><span class="word">([a-z]+/[a-z-]+)</span></code>`)

// named gives links that show a file of the repository the title of their page, and what is called by
// the title of a page, or by the name of a race, a link.
func (s *site) named(body template.HTML) template.HTML {
	text := link.ReplaceAllStringFunc(string(body), func(a string) string {
		m := link.FindStringSubmatch(a)
		for _, p := range s.pages {
			if p.File == m[2] {
				return m[1] + template.HTMLEscapeString(p.Title) + "</a>"
			}
		}
		return a
	})
	for _, p := range s.pages {
		title := "<em>" + template.HTMLEscapeString(p.Title) + "</em>"
		text = strings.ReplaceAll(text, title, `<a href="`+p.File+`">`+title+"</a>")
	}
	return template.HTML(race.ReplaceAllStringFunc(text, func(a string) string {
		m := race.FindStringSubmatch(a)
		file := "races/" + strings.ReplaceAll(m[2], "/", "-") + ".html"
		if _, err := os.Stat(filepath.Join(s.dir, file)); m[1] != "" || m[2] == "" || err != nil {
			return a
		}
		return `<a href="` + file + `">` + a + "</a>"
	}))
}

// target is where a link of the docs leads on the site; "": nowhere, to source code.
func target(to string, top bool) string {
	file, fragment, hash := strings.Cut(to, "#")
	if strings.Contains(to, "://") || file == "" {
		return to
	}
	if top {
		file = strings.TrimPrefix(file, "docs/")
		if file == path.Base(file) && (file == "README.md" || !strings.HasSuffix(file, ".md")) {
			file = "../" + file
		}
	}
	switch {
	case file == "../README.md":
		file = "index.html"
	case file == "races/README.md", file == "races", file == "races/":
		return "races/index.html" // whose places are others
	case file == "../CONTRIBUTING.md", file == "CONTRIBUTING.md", file == "../CHANGELOG.md", file == "CHANGELOG.md":
		file = strings.ToLower(strings.TrimSuffix(path.Base(file), ".md")) + ".html"
	case file == "../"+data, file == data:
		file = "guarantees-all.html"
	case strings.HasPrefix(file, ".."), !strings.HasSuffix(file, ".md"), file == "SECURITY.md", file == "CODE_OF_CONDUCT.md":
		return ""
	default:
		file = strings.TrimSuffix(file, ".md") + ".html"
	}
	if hash {
		file += "#" + fragment
	}
	return file
}

// ids names headings as GitHub does, so that fragments lead to the same place there and here.
type ids struct{ seen map[string]int }

func (i *ids) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, string(value))
	n := i.seen[id]
	i.seen[id]++
	if n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

func (i *ids) Put(value []byte) { i.seen[string(value)]++ }

// plain is the text of a node.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	err := ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			if n.Type() == ast.TypeBlock || n.Kind().String() == "TableCell" {
				b.WriteByte(' ')
			}
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(source))
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		panic(err) // nothing above fails
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// sections cuts a page at its headings.
func sections(doc ast.Node, source []byte, p page) []section {
	all := []section{{Page: p.Title, Title: p.Title, File: p.File}}
	for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			if n.Kind() != ast.KindHTMLBlock {
				last := &all[len(all)-1]
				last.Text = strings.TrimSpace(last.Text + " " + plain(n, source))
			}
			continue
		}
		if h.Level == 1 {
			continue
		}
		id, _ := h.AttributeString("id")
		name, _ := id.([]byte)
		all = append(all, section{Page: p.Title, Title: plain(h, source), File: p.File + "#" + string(name)})
	}
	return all
}

// onMap gives the map its titles. Every page must be on it.
func (s *site) onMap() error {
	titles := map[string]string{}
	for _, p := range s.pages {
		titles[p.File] = p.Title
	}
	for _, part := range parts {
		for i := range part.Places {
			p := &part.Places[i]
			if t, ok := titles[p.File]; ok {
				p.Title = t
				delete(titles, p.File)
			} else if p.Title == "" {
				return fmt.Errorf("%s is on the map, and is no page", p.File)
			}
		}
	}
	for file := range titles {
		return fmt.Errorf("%s is a page, and not on the map", file)
	}
	return nil
}

// menu are the places that every page links to.
func menu() []place {
	var list []place
	for _, part := range parts {
		for _, p := range part.Places {
			if p.Menu != "" {
				list = append(list, p)
			}
		}
	}
	order := []string{"Choose a Lock", "Quickstart", "Operating", "Migrating", "Races", "Guarantees", "Performance", "FAQ"}
	slices.SortFunc(list, func(a, b place) int { return slices.Index(order, a.Menu) - slices.Index(order, b.Menu) })
	return list
}

// A look is what a template gets.
type look struct {
	page
	Style      template.CSS
	Menu       []place
	Up         string // to the top of the site
	Parts      []part
	Intro      template.HTML // of the page whose table comes before its text
	Guarantees template.JS
}

func newLook(p page) look {
	return look{page: p, Style: template.CSS(view.Style() + asset("handbook.css")), Menu: menu()}
}

func (s *site) write(p page, g Guarantees) error {
	l := newLook(p)
	if p.File == "guarantees.html" {
		b, err := json.Marshal(g)
		if err != nil {
			return err
		}
		intro, text, _ := strings.Cut(string(p.Body), "<h2")
		l.Intro, l.Body = template.HTML(intro), template.HTML("<h2"+text)
		l.Guarantees = template.JS(b) // Marshal writes <, > and & as \u003c and so on
	}
	return s.render("page.html", p.File, l)
}

// index writes the map and what the search looks through: the sections of every page, and the
// races.
func (s *site) index(races []section) error {
	l := newLook(page{File: "index.html", Title: "setnxlock"})
	l.Parts = parts
	if err := s.render("index.html", "index.html", l); err != nil {
		return err
	}
	var all []section
	for _, p := range s.pages {
		if p.File != "guarantees-all.html" { // its words are those of guarantees.html, ten times
			all = append(all, p.sections...)
		}
	}
	b, err := json.Marshal(append(all, races...))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "search-index.js"), append(append([]byte("self.SECTIONS = "), b...), '\n'), 0o666); err != nil {
		return err
	}
	for _, name := range []string{"search.js", "guarantees.js", "fleets.js"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(asset(name)), 0o666); err != nil {
			return err
		}
	}
	return nil
}

func (s *site) render(name, file string, l look) error {
	t, err := template.ParseFS(assets, "page/*.html")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, l); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, file), b.Bytes(), 0o666)
}

// races are the pages of docs/races, for the search.
func (s *site) races(repository string) ([]section, error) {
	files, err := filepath.Glob(filepath.Join(repository, "docs", "races", "*.md"))
	if err != nil {
		return nil, err
	}
	var all []section
	for _, name := range files {
		if filepath.Base(name) == "README.md" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		doc := s.markdown.Parser().Parse(text.NewReader(b))
		title, says := "", ""
		for n := doc.FirstChild(); n != nil; n = n.NextSibling() {
			switch {
			case n.Kind() == ast.KindHeading && title == "":
				title = plain(n, b)
			case n.Kind() == ast.KindParagraph || n.Kind() == ast.KindBlockquote:
				says += " " + plain(n, b)
			}
		}
		all = append(all, section{"Races", title, "races/" + strings.TrimSuffix(filepath.Base(name), ".md") + ".html", strings.TrimSpace(says)})
	}
	if len(all) < 50 {
		return nil, fmt.Errorf("%d races in docs/races", len(all))
	}
	return all, nil
}

// menuOnRaces puts the menu on top of the races' pages, which setnxlock race site wrote. One that
// has it stays as it is.
func (s *site) menuOnRaces() error {
	files, err := filepath.Glob(filepath.Join(s.dir, "races", "*.html"))
	if err != nil {
		return err
	}
	t, err := template.ParseFS(assets, "page/*.html")
	if err != nil {
		return err
	}
	l := newLook(page{File: "races/index.html"})
	l.Up = "../"
	var head bytes.Buffer
	if err := t.ExecuteTemplate(&head, "menu", l); err != nil {
		return err
	}
	const body = "\n<body>\n"
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		before, after, ok := strings.Cut(string(b), "\n<body>")
		if !ok || strings.Contains(after, `id="menu"`) {
			continue
		}
		before = strings.Replace(before, "</style>", asset("menu.css")+"</style>", 1)
		if err := os.WriteFile(name, []byte(before+body+head.String()+strings.TrimPrefix(after, "\n")), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// pictures copies what the docs show.
func (s *site) pictures(repository string) error {
	for _, pattern := range []string{"*.svg", "*.png", "*/*.svg", "*/*.png"} {
		files, err := filepath.Glob(filepath.Join(repository, "docs", pattern))
		if err != nil {
			return err
		}
		for _, name := range files {
			rel, err := filepath.Rel(filepath.Join(repository, "docs"), name)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(name)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(filepath.Join(s.dir, rel)), 0o777)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(s.dir, rel), b, 0o666)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func asset(name string) string {
	b, err := assets.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}
