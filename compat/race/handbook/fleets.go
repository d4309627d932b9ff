package main

import (
	"bytes"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"strings"
)

// pairs is what the explorer computed of two fleets on one key: mixing.Matrix.Codes says what the lines are. A test
// of compat/race/mixing compares it with the code.
const pairs = "compat/race/mixing/pairs.txt"

// A Fleet is one side of a mixture, and what each of the others does beside it.
type Fleet struct {
	Name, Short string // "ours/tx:guarded", "tx:guarded"
	Says        string
	Alike       []string // shorts of those that behave alike
	Beside      []Beside
}

// A Beside is what two fleets do to each other.
type Beside struct {
	*Fleet
	Safe bool
	Text string // "Two hold it late, with one client of each."
}

var grades = map[byte]string{'x': "at once", 't': "at takeover", 'e': "early", 'l': "late"}

// readFleets reads the data of a repository.
func readFleets(repository string) ([]*Fleet, error) {
	b, err := os.ReadFile(filepath.Join(repository, pairs))
	if err != nil {
		return nil, err
	}
	var all []*Fleet
	var codes [][]string
	for line := range strings.Lines(string(b)) {
		cells := strings.Split(line, " |")
		if len(cells) != 5 {
			return nil, fmt.Errorf("%s: %q", pairs, line)
		}
		f := &Fleet{Name: cells[0], Short: short(cells[0]), Says: strings.TrimSpace(cells[2])}
		for _, name := range strings.Fields(cells[3]) {
			f.Alike = append(f.Alike, short(name))
		}
		all, codes = append(all, f), append(codes, strings.Fields(cells[4]))
	}
	for i, f := range all {
		if len(codes[i]) != len(all)-i {
			return nil, fmt.Errorf("%s: %s has %d codes, want %d", pairs, f.Name, len(codes[i]), len(all)-i)
		}
		for k, g := range all {
			first, second := min(i, k), max(i, k)
			code := codes[first][second-first]
			text, err := sentence(code, all[first], all[second])
			if err != nil {
				return nil, err
			}
			f.Beside = append(f.Beside, Beside{g, code == ".", text})
		}
	}
	return all, nil
}

// sentence says in words what a code says of two fleets.
func sentence(code string, a, b *Fleet) (string, error) {
	if code == "." {
		return "No two clients hold it at once, and what a dead client has left is taken again.", nil
	}
	var parts []string
	rest := code[1:]
	if grade, ok := grades[code[0]]; ok && rest != "" {
		needs := map[byte]string{'1': "one client of each", 'a': "two clients of " + a.Short + " and one of " + b.Short, 'b': "two clients of " + b.Short + " and one of " + a.Short}[rest[0]]
		if a == b {
			needs = map[byte]string{'1': "two clients", 'a': "three clients"}[rest[0]]
		}
		if needs == "" {
			return "", fmt.Errorf("%s: code %q", pairs, code)
		}
		text := "Two hold it " + grade + ", with " + needs
		rest = rest[1:]
		if added, ok := strings.CutPrefix(rest, "*"); ok {
			text, rest = text+"; neither fleet does so alone", added
		}
		parts = append(parts, text+".")
	} else if code[0] != '.' {
		return "", fmt.Errorf("%s: code %q", pairs, code)
	}
	for ; rest != ""; rest = rest[2:] {
		of, by := a, b
		if rest[0] == '<' {
			of, by = b, a
		}
		when := ""
		if len(rest) > 1 {
			when = map[string]string{"h": "If a client of %s dies holding it, %s never gets it again", "d": "If a client of %s dies half-way, %s never gets it again",
				"o": "Once a client of %s has released it, %s never gets it again"}[strings.ToLower(rest[1:2])]
		}
		if when == "" || rest[0] != '<' && rest[0] != '>' {
			return "", fmt.Errorf("%s: code %q", pairs, code)
		}
		text := fmt.Sprintf(when, of.Short, by.Short)
		if of != by && rest[1] >= 'a' {
			text += "; nor does " + of.Short
		}
		parts = append(parts, text+".")
	}
	return strings.Join(parts, " "), nil
}

// short is a fleet's name without its side.
func short(name string) string {
	_, s, _ := strings.Cut(name, "/")
	return s
}

// fleets is the page of the two menus.
func (s *site) fleets(all []*Fleet) error {
	t, err := template.ParseFS(assets, "page/*.html")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "fleets.html", all); err != nil {
		return err
	}
	p := page{File: "fleets.html", Title: "Two Fleets on One Key", Body: template.HTML(b.String())}
	p.sections = []section{{Page: p.Title, Title: p.Title, File: p.File, Text: "May two fleets share a key? Two menus, and an answer."}}
	for _, f := range all {
		p.sections = append(p.sections, section{p.Title, f.Short, p.File + "#" + f.Short, strings.Join(append([]string{f.Says}, f.Alike...), ", ")})
	}
	s.pages = append(s.pages, p)
	return nil
}
