//go:build !js

package mixing

import (
	_ "embed"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/markup"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
)

// pairs is Matrix.Codes of all parties that are shown, as last computed.
//
//go:embed pairs.txt
var pairs string

//go:embed page/fleets.html
var fleetsHTML string

//go:embed page/fleets.js
var fleetsJS string

var grades = map[byte]string{'x': "at once", 't': "at takeover", 'e': "early", 'l': "late"}

// sentence puts a code of two parties into words.
func sentence(code string, a, b Party) string {
	if code == "." {
		return "No two clients hold it at once, and what a dead client has left is taken again."
	}
	var parts []string
	rest := code[1:]
	if grade := grades[code[0]]; grade != "" {
		needs := map[byte]Needs{'1': OneOfEach, 'a': TwoOfA, 'b': TwoOfB}[rest[0]]
		text := "Two hold it " + grade + ", with " + needs.among(a.Short(), b.Short())
		rest = rest[1:]
		if added, ok := strings.CutPrefix(rest, "*"); ok {
			text, rest = text+"; neither fleet does so alone", added
		}
		parts = append(parts, text+".")
	}
	for ; rest != ""; rest = rest[2:] {
		of, by := a, b
		if rest[0] == '<' {
			of, by = b, a
		}
		text := fmt.Sprintf(map[string]string{
			"h": "If a client of %s dies holding it, %s never gets it again",
			"d": "If a client of %s dies half-way, %s never gets it again",
			"o": "Once a client of %s has released it, %s never gets it again",
		}[strings.ToLower(rest[1:2])], of.Short(), by.Short())
		if of.Name != by.Name && rest[1] >= 'a' {
			text += "; nor does " + of.Short()
		}
		parts = append(parts, text+".")
	}
	return strings.Join(parts, " ")
}

// FleetsPage writes the page with two menus and the stored answer for each pair. workbench is a page beside
// it that explores any pair; "": there is none.
func FleetsPage(workbench string) pages.Question {
	all, codes := Shown(), strings.Split(pairs, "\n")
	var w, more markup.Writer
	for i, f := range all {
		w.Put(`<details class="fleet" id="%s" data-name="%s"><summary>`, f.Short(), f.Name)
		w.Put(`<code>%s</code> %s`, markup.HTML(pages.Words(f.Short())), f.Says)
		for i, name := range f.Alike {
			w.Put("%s%s", []string{"; the same: ", ", "}[min(i, 1)], Party{Name: name}.Short())
		}
		w.Put("</summary>\n<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"beside %s\">", f.Short())
		w.Put("<table>\n<tr><th>beside</th><th>may they share a key?</th></tr>\n")
		for k, other := range all {
			first, second := min(i, k), max(i, k)
			code := strings.Fields(codes[first])[1+second-first]
			says, class := "No.", "breaks"
			if code == "." {
				says, class = "Yes.", "holds"
			}
			name := markup.HTML("<code>" + pages.Words(other.Short()) + "</code>")
			if k == i {
				name = "its own"
			}
			w.Put("<tr data-name=\"%s\"><td>%s</td>", other.Name, name)
			w.Put("<td class=\"%s\"><b>%s</b> %s</td></tr>\n", class, says, sentence(code, all[first], all[second]))
		}
		w.Put("</table></div></details>\n")
	}
	more.With("<a id=\"show\" href=\"%s\">See the steps in the workbench</a>, or in a terminal:", workbench)
	if workbench == "" {
		more.Put("The steps, in a terminal:")
	}
	return pages.Question{
		File: "fleets.html", Title: "Two Fleets on One Key", Says: "Two fleets on one key: may they share it?",
		Body: markup.Fill(fleetsHTML, map[string]markup.HTML{
			"fleets": w.HTML(), "steps": more.HTML(), "count": markup.HTML(fmt.Sprint(len(all))),
		}),
		Script: fleetsJS,
	}
}
