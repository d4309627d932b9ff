// Package markup writes HTML: what is given to it as text is escaped, and every page begins with the
// same head. It is no template: the linker keeps every method of a program that has one, because a
// template could call it.
package markup

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
)

// HTML is written as it is.
type HTML string

// A Writer writes HTML. It escapes its arguments as text, for the place between tags or between the quotes of
// an attribute.
type Writer struct{ b strings.Builder }

// Put writes by a format of fmt's. Of its arguments, strings, ints and HTML, only HTML is written as
// it is.
func (w *Writer) Put(format string, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = html.EscapeString(arg)
		case int, HTML:
		default:
			panic(fmt.Sprintf("markup: %T in a page", arg)) // which fmt would not escape
		}
	}
	fmt.Fprintf(&w.b, format, args...)
}

// With puts a text if there is one.
func (w *Writer) With(format, text string) {
	if text != "" {
		w.Put(format, text)
	}
}

// Each puts each of several texts.
func (w *Writer) Each(format string, texts []string) {
	for _, text := range texts {
		w.Put(format, text)
	}
}

// HTML returns the written text.
func (w *Writer) HTML() HTML { return HTML(w.b.String()) }

// Text escapes a text.
func Text(s string) HTML { return HTML(html.EscapeString(s)) }

// Fill replaces the {{holes}} of a text by name.
func Fill(text string, holes map[string]HTML) HTML {
	var list []string
	for name, h := range holes {
		list = append(list, "{{"+name+"}}", string(h))
	}
	return HTML(strings.NewReplacer(list...).Replace(text))
}

// A Page is a whole document. It loads its sheets, and runs and loads nothing else but the sources in Allow.
type Page struct {
	Title  string
	Allow  []string // directives of a Content-Security-Policy: "script-src 'sha256-…'"
	Style  string   // CSS
	Sheets []string // files of CSS beside the page
	Body   HTML
}

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'{{files}}{{allow}}">
<link rel="icon" href="data:,">
<title>{{title}}</title>
{{style}}</head>
<body>
{{body}}</body>
</html>
`

// Document writes the page.
func (p Page) Document() []byte {
	allow, files := "", ""
	for _, a := range p.Allow {
		allow += "; " + a
	}
	var style Writer
	for _, file := range p.Sheets {
		files = " 'self' file:"
		style.Put("<link rel=\"stylesheet\" href=\"%s\">\n", file)
	}
	if p.Style != "" {
		style.Put("<style>\n%s</style>\n", HTML(p.Style))
	}
	return []byte(Fill(page, map[string]HTML{
		"allow": HTML(allow), "files": HTML(files), "title": Text(p.Title), "style": style.HTML(), "body": p.Body,
	}))
}

// Script names a script in the page for the Content-Security-Policy.
func Script(code string) string {
	hash := sha256.Sum256([]byte(code))
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// Address returns a link that runs nothing: to the web, or to a file beside the page.
func Address(link string) string {
	u, err := url.Parse(link)
	if err != nil || !slices.Contains([]string{"", "http", "https", "mailto"}, u.Scheme) {
		return "#"
	}
	return link
}
