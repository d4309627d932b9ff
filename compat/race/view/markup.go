//go:build !js

package view

import (
	"fmt"
	"html"
	"net/url"
	"slices"
	"strings"
)

// A markup is HTML. It is no template: the linker keeps every method of a program
// that has one, because a template could call it.
type markup string

// A writer writes HTML. What it is given is text, and escaped; it belongs between
// tags or between the quotes of an attribute.
type writer struct{ strings.Builder }

// put writes by a format of fmt's. Of its arguments only a markup is written as it is.
func (w *writer) put(format string, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = html.EscapeString(arg)
		case int, markup:
		default:
			panic(fmt.Sprintf("race: %T in a page", arg)) // which fmt would not escape
		}
	}
	fmt.Fprintf(w, format, args...)
}

// with puts a text if there is one.
func (w *writer) with(format, text string) {
	if text != "" {
		w.put(format, text)
	}
}

// each puts each of several texts.
func (w *writer) each(format string, texts []string) {
	for _, text := range texts {
		w.put(format, text)
	}
}

func (w *writer) markup() markup { return markup(w.String()) }

// fill is a file of the folder page with its {{holes}} filled: names and what they become.
func fill(file string, holes map[string]markup) []byte {
	var list []string
	for name, m := range holes {
		list = append(list, "{{"+name+"}}", string(m))
	}
	return []byte(strings.NewReplacer(list...).Replace(asset(file)))
}

// address is a link that runs nothing: to the web, or to a file beside the page.
func address(link string) string {
	u, err := url.Parse(link)
	if err != nil || !slices.Contains([]string{"", "http", "https", "mailto"}, u.Scheme) {
		return "#"
	}
	return link
}
