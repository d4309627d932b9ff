//go:build !js

package mixing

import (
	"embed"
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat/internal/markup"
	"github.com/setnxlock/setnxlock/compat/race/view"
)

// pairs is Matrix.Codes of all parties that are shown, as last computed.
//
//go:embed pairs.txt
var pairs string

//go:embed page
var pageFiles embed.FS

// A fleet is one side of a mixture, and what each of the others does beside it.
type fleet struct {
	Party
	beside []beside
}

type beside struct {
	*fleet
	safe bool
	text string // "Two hold it late, with one client of each."
}

var grades = map[byte]string{'x': "at once", 't': "at takeover", 'e': "early", 'l': "late"}

// fleets reads what Codes has written.
func fleets(codes string) ([]*fleet, error) {
	var all []*fleet
	var table [][]string
	for line := range strings.Lines(codes) {
		cells := strings.Split(line, " |")
		if len(cells) != 5 {
			return nil, fmt.Errorf("mixing: %q is no line of pairs", line)
		}
		p := Party{Name: cells[0], Says: strings.TrimSpace(cells[2]), Alike: strings.Fields(cells[3])}
		all = append(all, &fleet{Party: p})
		table = append(table, strings.Fields(cells[4]))
	}
	for i, f := range all {
		if len(table[i]) != len(all)-i {
			return nil, fmt.Errorf("mixing: %s has %d codes, want %d", f.Name, len(table[i]), len(all)-i)
		}
		for k, g := range all {
			first, second := min(i, k), max(i, k)
			code := table[first][second-first]
			text, err := sentence(code, all[first].Party, all[second].Party)
			if err != nil {
				return nil, err
			}
			f.beside = append(f.beside, beside{g, code == ".", text})
		}
	}
	return all, nil
}

// sentence says in words what a code says of two parties.
func sentence(code string, a, b Party) (string, error) {
	if code == "." {
		return "No two clients hold it at once, and what a dead client has left is taken again.", nil
	}
	var parts []string
	rest := code[1:]
	if grade, ok := grades[code[0]]; ok && rest != "" {
		needs := map[byte]string{
			'1': "one client of each",
			'a': "two clients of " + a.Short() + " and one of " + b.Short(),
			'b': "two clients of " + b.Short() + " and one of " + a.Short(),
		}[rest[0]]
		if a.Name == b.Name {
			needs = map[byte]string{'1': "two clients", 'a': "three clients"}[rest[0]]
		}
		if needs == "" {
			return "", fmt.Errorf("mixing: code %q", code)
		}
		text := "Two hold it " + grade + ", with " + needs
		rest = rest[1:]
		if added, ok := strings.CutPrefix(rest, "*"); ok {
			text, rest = text+"; neither fleet does so alone", added
		}
		parts = append(parts, text+".")
	} else if code[0] != '.' {
		return "", fmt.Errorf("mixing: code %q", code)
	}
	for ; rest != ""; rest = rest[2:] {
		of, by := a, b
		if rest[0] == '<' {
			of, by = b, a
		}
		when := ""
		if len(rest) > 1 {
			when = map[string]string{
				"h": "If a client of %s dies holding it, %s never gets it again",
				"d": "If a client of %s dies half-way, %s never gets it again",
				"o": "Once a client of %s has released it, %s never gets it again",
			}[strings.ToLower(rest[1:2])]
		}
		if when == "" || rest[0] != '<' && rest[0] != '>' {
			return "", fmt.Errorf("mixing: code %q", code)
		}
		text := fmt.Sprintf(when, of.Short(), by.Short())
		if of.Name != by.Name && rest[1] >= 'a' {
			text += "; nor does " + of.Short()
		}
		parts = append(parts, text+".")
	}
	return strings.Join(parts, " "), nil
}

// FleetsPage is the page of a site with two menus, and the stored answer for each pair. workbench is a
// page beside it that explores any pair; "": there is none.
func FleetsPage(workbench string) (view.Question, error) {
	all, err := fleets(pairs)
	if err != nil {
		return view.Question{}, err
	}
	var w, more markup.Writer
	for _, f := range all {
		w.Put(`<details class="fleet" id="%s" data-name="%s"><summary>`, f.Short(), f.Name)
		w.Put(`<code>%s</code> %s`, markup.HTML(view.Words(f.Short())), f.Says)
		for i, name := range f.Alike {
			w.Put("%s%s", []string{"; the same: ", ", "}[min(i, 1)], Party{Name: name}.Short())
		}
		w.Put("</summary>\n<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"beside %s\">", f.Short())
		w.Put("<table>\n<tr><th>beside</th><th>may they share a key?</th></tr>\n")
		for _, b := range f.beside {
			says, class := "No.", "breaks"
			if b.safe {
				says, class = "Yes.", "holds"
			}
			name := markup.HTML("<code>" + view.Words(b.Short()) + "</code>")
			if b.fleet == f {
				name = "its own"
			}
			w.Put("<tr data-name=\"%s\"><td>%s</td>", b.Name, name)
			w.Put("<td class=\"%s\"><b>%s</b> %s</td></tr>\n", class, says, b.text)
		}
		w.Put("</table></div></details>\n")
	}
	more.With("<a id=\"show\" href=\"%s\">See the steps in the workbench</a>, or in a terminal:", workbench)
	if workbench == "" {
		more.Put("The steps, in a terminal:")
	}
	return view.Question{
		File: "fleets.html", Title: "Two Fleets on One Key", Says: "Two fleets on one key: may they share it?",
		Body: markup.Fill(asset("fleets.html"), map[string]markup.HTML{
			"fleets": w.HTML(), "steps": more.HTML(), "count": markup.HTML(fmt.Sprint(len(all))),
		}),
		Script: asset("fleets.js"),
	}, nil
}

func asset(name string) string {
	b, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}
