package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// An edit replaces a place in a function by code, where "@" stands for the old code. The Go code of an expression, a
// statement or an element of a composite literal names the place; layout and comments don't count.
//
//	"case Done:"          the head of this clause
//	"case Done: e.Final"  this code in this clause
//	"#2/3 e.Final"        the second of three places
type edit struct{ place, code string }

// drop leaves out statements, arguments, or elements.
func drop(places ...string) []edit { return each(places, "") }

// never makes conditions false. A condition stays behind the false: its variables are used.
func never(conditions ...string) []edit { return each(conditions, "(false && (@))") }

// always makes conditions true.
func always(conditions ...string) []edit { return each(conditions, "(true || (@))") }

func each(places []string, code string) (all []edit) {
	for _, p := range places {
		all = append(all, edit{p, code})
	}
	return all
}

func swap(place, code string) []edit { return []edit{{place, code}} }

// apply returns the function's code with the edit made.
func (e edit) apply(code string) (string, error) {
	f, err := parseFunc(code)
	if err != nil {
		return "", err
	}
	from, to, err := find(f, e.place)
	if err != nil {
		return "", err
	}
	old := code[from:to]
	if e.code == "" { // with an argument or element, its comma goes
		if strings.HasPrefix(code[to:], ",") {
			to++
		} else {
			from = len(strings.TrimSuffix(code[:from], ", "))
		}
	}
	return code[:from] + strings.ReplaceAll(e.code, "@", old) + code[to:], nil
}

// head makes a file of a single function, for the parser.
const head = "package p\n"

func parseFunc(code string) (*ast.FuncDecl, error) {
	f, err := parser.ParseFile(token.NewFileSet(), "", head+code, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return f.Decls[0].(*ast.FuncDecl), nil
}

// offset returns the offset of pos in a function's code after parseFunc. The positions of a set begin at 1.
func offset(pos token.Pos) int { return int(pos) - 1 - len(head) }

// parse reads the code of a place.
func parse(code string) (ast.Node, error) {
	if x, err := parser.ParseExpr(code); err == nil {
		return x, nil
	}
	if x, err := parser.ParseExpr("T{" + code + "}"); err == nil && len(x.(*ast.CompositeLit).Elts) == 1 {
		return x.(*ast.CompositeLit).Elts[0], nil
	}
	clause := strings.HasPrefix(code, "case ")
	if clause {
		code = "switch {\n" + code + "\n}"
	}
	f, err := parseFunc("func _() {\n" + code + "\n}")
	if err != nil || len(f.Body.List) != 1 {
		return nil, fmt.Errorf("not one piece of code: %s", code)
	}
	if clause {
		return f.Body.List[0].(*ast.SwitchStmt).Body.List[0], nil
	}
	return f.Body.List[0], nil
}

// text prints a node without comments. The layout depends on the tree alone: a set without files has no lines.
func text(n ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), n); err != nil {
		panic(err) // no parser has made this tree
	}
	return b.String()
}

var ordinal = regexp.MustCompile(`^#(\d+)/(\d+) `)

// find returns the range of the place in the function's code.
func find(f *ast.FuncDecl, place string) (from, to int, err error) {
	which, of := 1, 1
	m := ordinal.FindStringSubmatch(place)
	if m != nil {
		place = place[len(m[0]):]
		which, _ = strconv.Atoi(m[1])
		of, _ = strconv.Atoi(m[2])
	}
	wanted, err := parse(place)
	if err != nil {
		return 0, 0, err
	}
	found := []ast.Node{f.Body}
	clause, ok := wanted.(*ast.CaseClause)
	if ok {
		head := func(n ast.Node) string { return text(&ast.CaseClause{List: n.(*ast.CaseClause).List}) }
		found = search(found, clause, head)
		if wanted = nil; len(clause.Body) > 0 {
			wanted = clause.Body[0]
		}
	}
	if x, ok := wanted.(*ast.ExprStmt); ok {
		wanted = x.X
	}
	if wanted != nil {
		found = search(found, wanted, text)
	}
	if len(found) != of || which < 1 || which > of {
		return 0, 0, fmt.Errorf("found %d times, want %d: %s", len(found), of, place)
	}
	n := found[which-1]
	from, to = offset(n.Pos()), offset(n.End())
	if wanted == nil {
		to = offset(n.(*ast.CaseClause).Colon) + 1
	}
	return from, to, nil
}

// search returns the nodes below in with the type and the text of wanted.
func search(in []ast.Node, wanted ast.Node, text func(ast.Node) string) (found []ast.Node) {
	for _, top := range in {
		ast.Inspect(top, func(n ast.Node) bool {
			if reflect.TypeOf(n) == reflect.TypeOf(wanted) && text(n) == text(wanted) {
				found = append(found, n)
			}
			return true
		})
	}
	return found
}
