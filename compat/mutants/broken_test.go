package mutants

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// which is the environment variable that says which mutant runs, by its place in the table.
const which = "SETNXLOCK_MUTANT"

// choice is the file that each package with mutants gets.
const choice = `package %s

import (
	"os"
	"strconv"
)

var theMutant, _ = strconv.Atoi("0" + os.Getenv("` + which + `"))
`

// A function is one that has mutants.
type function struct {
	from, to int    // its text in the file
	head     string // "func (s *State) ask", up to its name's end
	rest     string // its parameters and its body, in which none is nameless
	call     string // "s.%s(now)": one like it, called with what it was called with
	returns  bool
}

// read parses m's file and returns its text.
func (m mutant) read(t *testing.T) (string, *ast.File) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), m.file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), file
}

// function is the one that m breaks.
func (m mutant) function(t *testing.T) function {
	t.Helper()
	text, file := m.read(t)
	if n := strings.Count(text, m.old); n != 1 {
		t.Fatalf("%s has this %d times, want once:\n%s", m.file, n, m.old)
	}
	at := strings.Index(text, m.old)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || at < int(f.Body.Lbrace) || at+len(m.old) > int(f.End()) { // positions of a file begin at 1
			continue
		}
		return functionOf(text, f)
	}
	t.Fatalf("%s: it is not in the body of one function:\n%s", m.file, m.old)
	return function{}
}

func functionOf(text string, f *ast.FuncDecl) function {
	type named struct {
		at   int
		from string
		to   string
	}
	var names []named // what has no name, and the one that it gets
	var args []string
	field := func(f *ast.Field) {
		if len(f.Names) == 0 {
			args = append(args, fmt.Sprint("arg", len(args)))
			names = append(names, named{int(f.Type.Pos()) - 1, "", args[len(args)-1] + " "})
		}
		for _, n := range f.Names {
			name := n.Name
			if name == "_" {
				name = fmt.Sprint("arg", len(args))
				names = append(names, named{int(n.Pos()) - 1, "_", name})
			}
			args = append(args, name)
		}
	}
	to := "%s"
	if f.Recv != nil {
		field(f.Recv.List[0])
		to, args = args[0]+".%s", nil
		if args = nil; strings.HasPrefix(to, "arg") {
			to = "arg" + to // apart from the arguments
			names[0].to = "arg" + names[0].to
		}
	}
	for _, p := range f.Type.Params.List {
		field(p)
		if _, many := p.Type.(*ast.Ellipsis); many {
			args[len(args)-1] += "..."
		}
	}
	result := function{from: int(f.Pos()) - 1, to: int(f.End()) - 1, call: to + "(" + strings.Join(args, ", ") + ")", returns: f.Type.Results != nil}
	decl := text[result.from:result.to]
	name := int(f.Name.End()) - 1 - result.from
	for _, n := range slices.Backward(names) {
		i := n.at - result.from
		decl = decl[:i] + n.to + decl[i+len(n.from):]
		if i < name {
			name += len(n.to) - len(n.from)
		}
	}
	result.head, result.rest = decl[:name], decl[name:]
	return result
}

// broken is the text of a file with these mutants, by their place in the table.
func broken(t *testing.T, mutants map[int]mutant) string {
	t.Helper()
	type found struct {
		function
		mutants []int
	}
	functions := map[int]*found{}
	var text string
	for i, m := range mutants {
		text, _ = m.read(t)
		f := m.function(t)
		if functions[f.from] == nil {
			functions[f.from] = &found{function: f}
		}
		functions[f.from].mutants = append(functions[f.from].mutants, i)
	}
	var order []int
	for from := range functions {
		order = append(order, from)
	}
	slices.Sort(order)
	for _, from := range slices.Backward(order) {
		f := functions[from]
		slices.Sort(f.mutants)
		name := f.head[strings.LastIndexByte(f.head, ' ')+1:]
		var choose, copies strings.Builder
		for _, i := range f.mutants {
			mutated := fmt.Sprintf("%sMutant%d", name, i)
			call := fmt.Sprintf(f.call, mutated)
			if f.returns {
				call = "return " + call
			} else {
				call += "\n\t\treturn"
			}
			fmt.Fprintf(&choose, "\n\tif theMutant == %d {\n\t\t%s\n\t}", i+1, call)
			fmt.Fprintf(&copies, "\n\n%sMutant%d%s", f.head, i, strings.Replace(f.rest, mutants[i].old, mutants[i].new, 1))
		}
		brace := f.body()
		text = text[:f.from] + f.head + f.rest[:brace] + choose.String() + "\n" + f.rest[brace:] + copies.String() + text[f.to:]
	}
	return text
}

// body is where the function's begins in its rest.
func (f function) body() int {
	file := "package p\n" + f.head + f.rest
	parsed, err := parser.ParseFile(token.NewFileSet(), "", file, parser.SkipObjectResolution)
	if err != nil {
		panic(err) // it was Go before
	}
	return int(parsed.Decls[0].(*ast.FuncDecl).Body.Lbrace) - (len(file) - len(f.rest))
}

// binaries compiles the tests of the packages of the nets, with every mutant in them.
func binaries(t *testing.T, nets []net) map[string]string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]map[int]mutant{}
	for i, m := range table {
		if files[m.file] == nil {
			files[m.file] = map[int]mutant{}
		}
		files[m.file][i] = m
	}
	replace := map[string]string{}
	add := func(file, text string) {
		at, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if replace[at] == "" {
			replace[at] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		}
		if err := os.WriteFile(replace[at], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for file, mutants := range files {
		add(file, broken(t, mutants))
		for _, m := range mutants {
			_, parsed := m.read(t)
			add(filepath.Join(filepath.Dir(file), "the_mutant.go"), fmt.Sprintf(choice, parsed.Name.Name))
			break
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	bins := map[string]string{}
	for _, n := range nets {
		if bins[n.dir] != "" {
			continue
		}
		bins[n.dir] = filepath.Join(dir, strings.ReplaceAll(n.dir, "/", "-")+".test")
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", bins[n.dir], "./"+n.dir)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", n.dir, err, out)
		}
	}
	return bins
}
