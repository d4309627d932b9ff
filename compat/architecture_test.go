package compat_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/internal/must"
)

// The algorithms get the time and a connection: no clock, timer,
// goroutine, channel or context stands in them, so that the engine alone waits
// and the explorer can run them as they ship.
func TestAlgorithmsOnlyCompute(t *testing.T) {
	for _, dir := range []string{"../getsetlock", "../txlock", "setlock", "rwlock", "bridge"} {
		for _, f := range parse(t, dir) {
			if f.set.File(f.file.Pos()).Name() == "rwlock/downgrade.go" { // what a holder calls, with a Locker: no algorithm
				continue
			}
			ast.Inspect(f.file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
					t.Errorf("%s: %T in an algorithm", f.at(n), n)
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" {
						switch n.Sel.Name {
						case "Now", "Sleep", "After", "AfterFunc", "NewTimer", "Tick", "NewTicker", "Since":
							t.Errorf("%s: time.%s in an algorithm", f.at(n), n.Sel.Name)
						}
					}
				case *ast.ImportSpec:
					for _, banned := range []string{"context", "sync", "benbjohnson/clock"} {
						if strings.HasSuffix(strings.Trim(n.Path.Value, `"`), banned) {
							t.Errorf("%s: import %s in an algorithm", f.at(n), n.Path.Value)
						}
					}
				}
				return true
			})
		}
	}
}

// The engine goes by a Locker's clock. What looks at the real one is in one file, which says why; of the engine's other
// parts only NewLocker makes a clock, for a Locker that was given none. None keeps a time as a number.
func TestOneFileLooksAtTheRealClock(t *testing.T) {
	const real = "internal/limit/real.go"
	looks := map[string]string{"Now": "time", "Since": "time", "Until": "time", "After": "time", "AfterFunc": "time", "NewTimer": "time",
		"NewTicker": "time", "Tick": "time", "Sleep": "time", "WithTimeout": "context", "WithTimeoutCause": "context", "New": "clock"}
	seen := map[string]bool{}
	for _, dir := range []string{".", "internal/cleaning", "internal/lease", "internal/limit", "internal/mux", "internal/queue", "internal/safe",
		"internal/schedule", "internal/session", "internal/signal", "internal/slot", "internal/stock", "internal/wire"} {
		for _, f := range parse(t, dir) {
			for _, d := range f.file.Decls {
				of, _ := d.(*ast.FuncDecl)
				ast.Inspect(d, func(n ast.Node) bool {
					s, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					at := f.at(n)
					x, ok := s.X.(*ast.Ident)
					if strings.HasPrefix(s.Sel.Name, "Unix") && (!ok || x.Name != "time") {
						t.Errorf("%s: a time as a number has no monotonic reading: a wall clock that is set moves it", at)
					}
					if !ok || looks[s.Sel.Name] != x.Name {
						return true
					}
					seen[at.Filename] = true
					if at.Filename != real && (x.Name != "clock" || of == nil || of.Name.Name != "NewLocker") {
						t.Errorf("%s: %s.%s, which is for %s", at, x.Name, s.Sel.Name, real)
					}
					return true
				})
			}
		}
	}
	if !seen[real] || !seen["locker.go"] {
		t.Errorf("it was looked for in %v", seen)
	}
}

// Every package has one package comment, and it begins as Go's do.
func TestPackageComments(t *testing.T) {
	for _, dir := range packages(t) {
		var docs []string
		name := ""
		for _, f := range parse(t, dir) {
			name = f.file.Name.Name
			if f.file.Doc != nil {
				docs = append(docs, f.file.Doc.Text())
			}
		}
		if len(docs) != 1 || !strings.HasPrefix(docs[0], "Package "+name+" ") {
			t.Errorf("%s has %d package comments, want one that begins with its name", dir, len(docs))
		}
	}
}

// packages are the directories of the module that have Go files, but for commands.
func packages(t *testing.T) []string {
	t.Helper()
	return packagesBut(t, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		return err == nil || dir == "../cmd" // another module
	})
}

// packagesBut are the directories of the checkout that have Go files, but for those in a folder to be left out.
func packagesBut(t *testing.T, out func(dir string) bool) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != ".." && (name == "testdata" || strings.HasPrefix(name, ".") || out(path)) {
			return fs.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if slices.ContainsFunc(files, func(name string) bool { return !strings.HasSuffix(name, "_test.go") }) {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil || len(dirs) < 9 {
		t.Fatalf("the packages of the module: %q, %v", dirs, err)
	}
	return dirs
}

// Imports point one way, and a program that imports a lock compiles redigo and
// clock and nothing else of size.
func TestImports(t *testing.T) {
	allowed := map[string]bool{"github.com/gomodule/redigo/redis": true, "github.com/benbjohnson/clock": true, "github.com/setnxlock/setnxlock/compat/protocol": true, "github.com/setnxlock/setnxlock/compat/dialect": true, "github.com/setnxlock/setnxlock/compat/ability": true}
	for _, p := range []string{"github.com/setnxlock/setnxlock/getsetlock", "github.com/setnxlock/setnxlock/txlock",
		"github.com/setnxlock/setnxlock/compat/setlock"} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", p).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range strings.Fields(string(out)) {
			if dep != p && !allowed[dep] && !strings.HasPrefix(dep, module+"compat/internal/") {
				t.Errorf("%s needs %s", p, dep)
			}
		}
	}
}

// Options are few: what is faster or fairer is the engine's own to choose.
func TestOptionsAreFew(t *testing.T) {
	if n := reflect.TypeFor[compat.Options]().NumField(); n > 9 {
		t.Errorf("%d options, want 9 at most", n)
	}
}

type source struct {
	set  *token.FileSet
	file *ast.File
}

func (s source) at(n ast.Node) token.Position { return s.set.Position(n.Pos()) }

// parse reads the Go files of a directory, without its tests.
func parse(t *testing.T, dir string) []source { return parseInto(t, token.NewFileSet(), dir) }

func parseInto(t *testing.T, set *token.FileSet, dir string) []source {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(names), err)
	}
	var all []source
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f := must.Get(parser.ParseFile(set, name, nil, parser.ParseComments))(t)
		all = append(all, source{set, f})
	}
	return all
}

const module = "github.com/setnxlock/setnxlock/"

// deps are the packages of this module that p imports, directly or not.
func deps(t *testing.T, p string) []string {
	t.Helper()
	out := must.Get(exec.Command("go", "list", "-deps", module+p).Output())(t)
	var all []string
	for _, dep := range strings.Fields(string(out)) {
		if rel, ours := strings.CutPrefix(dep, module); ours && rel != p {
			all = append(all, rel)
		}
	}
	return all
}

// Imports point one way: docs/architecture.md draws which.
func TestImportsPointOneWay(t *testing.T) {
	for p, banned := range map[string][]string{
		"compat":                {"getsetlock", "txlock", "compat/"},
		"compat/protocol":       {"compat", "compat/internal/lease", "compat/internal/queue", "compat/internal/schedule", "compat/internal/mux", "compat/internal/cleaning", "compat/internal/signal"},
		"compat/ability":        {"compat"},
		"getsetlock":            {"txlock", "compat", "compat/race", "compat/probe", "compat/locks", "compat/oldredis", "cmd"},
		"txlock":                {"getsetlock", "compat", "compat/race", "compat/probe", "compat/locks", "compat/oldredis", "cmd"},
		"compat/internal/lease": {""},
		"compat/dialect":        {"getsetlock", "txlock", "compat/race", "cmd"},
		"compat/locks":          {"compat/race", "compat/probe", "cmd"},
		"compat/probe":          {"compat/race", "cmd"},
		"compat/race":           {"compat/probe", "compat/race/view", "compat/race/catalogue", "compat/race/racetest", "cmd"},
		"compat/race/catalogue": {"compat/race/racetest", "cmd"},
		"compat/race/view":      {"cmd"},

		"compat/race/internal/trace": {""},
		"compat/race/internal/memo":  {""},
		"compat/race/internal/plan":  {"compat/race/internal/"},
		"compat/race/internal/client": {"compat/race/internal/judge", "compat/race/internal/embedded",
			"compat/race/internal/live", "compat/race/internal/search"},
		"compat/race/internal/judge": {"compat/race/internal/embedded", "compat/race/internal/live",
			"compat/race/internal/search"},
		"compat/race/internal/embedded": {"compat/race/internal/judge", "compat/race/internal/live",
			"compat/race/internal/search"},
		"compat/race/internal/live":   {"compat/race/internal/search"},
		"compat/race/internal/search": {"compat/race/internal/live"},
	} {
		for _, dep := range deps(t, p) {
			for _, b := range banned {
				if b == "compat/" && (strings.HasPrefix(dep, "compat/internal/") || dep == "compat/protocol") {
					continue
				}
				if dep == b || strings.HasPrefix(dep, b) && (b == "" || strings.HasSuffix(b, "/")) || b != "compat" && strings.HasPrefix(dep, b+"/") {
					t.Errorf("%s needs %s", p, dep)
				}
			}
		}
	}
}

// The engine's parts know nothing of a Lock, a Locker or an Algorithm: each can be read, and
// tested, alone.
func TestPartsStandAlone(t *testing.T) {
	parts, err := filepath.Glob("internal/*")
	if err != nil || len(parts) < 4 {
		t.Fatalf("the engine's parts: %q, %v", parts, err)
	}
	for _, p := range parts {
		switch p {
		case "internal/chaos", "internal/simulate", "internal/promises", "internal/mutants":
			continue // which test all of it, and are no parts
		}
		for _, dep := range deps(t, "compat/"+p) {
			if !strings.HasPrefix(dep, "compat/internal/") {
				t.Errorf("%s needs %s", p, dep)
			}
		}
	}
}

// What another module can import is few packages: each is a promise.
func TestFewPackagesArePublic(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{if ne .Name \"main\"}}{{.ImportPath}}{{end}}", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	public := slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return strings.Contains(p, "/internal/") })
	if len(public) > 24 {
		t.Errorf("%d packages are public, want 24 at most: %q", len(public), public)
	}
}

// The faces of the two layers are small: each name is for a user of locks, in compat, or for an author of one, in protocol.
// A name of compat that repeats one of protocol's is not counted twice. The explorer's face is small, too.
func TestSmallFaces(t *testing.T) {
	own := face(t, ".")
	authors := face(t, "protocol")
	if len(authors) > 130 || len(authors) < 80 {
		t.Errorf("protocol has %d exported names, want 130 at most", len(authors))
	}
	both := maps.Clone(authors)
	maps.Copy(both, own)
	if len(both) > 220 || len(both) < 150 {
		t.Errorf("compat and protocol have %d exported names, want 220 at most", len(both))
	}
	if n := len(face(t, "race")); n > 90 || n < 60 {
		t.Errorf("race has %d exported names, want 90 at most", n)
	}
}

// face is the exported identifiers of a package: types, functions, methods, fields, constants, variables. The methods
// that errors, errors.Is and encoding ask for are no names of its own.
func face(t *testing.T, dir string) map[string]bool {
	names := map[string]bool{}
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			switch n := id.Name; {
			case !id.IsExported(), n == "Error", n == "Is", n == "Unwrap", n == "As", n == "String", strings.HasPrefix(n, "Marshal"), strings.HasPrefix(n, "Unmarshal"):
			default:
				names[n] = true
			}
		}
	}
	for _, f := range parse(t, dir) {
		for _, d := range f.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil || receiver(d).IsExported() {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						add(s.Names...)
					case *ast.TypeSpec:
						if add(s.Name); !s.Name.IsExported() {
							continue
						}
						ast.Inspect(s.Type, func(n ast.Node) bool {
							if f, ok := n.(*ast.Field); ok {
								add(f.Names...)
							}
							_, signature := n.(*ast.FuncType)
							return !signature // whose parameters are no names
						})
					}
				}
			}
		}
	}
	return names
}

// receiver is the type that a method is of.
func receiver(d *ast.FuncDecl) *ast.Ident {
	of := d.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	return of.(*ast.Ident)
}

// An algorithm is read on one page.
func TestAlgorithmsAreOnePage(t *testing.T) {
	for _, page := range []string{
		"../getsetlock/classic.go", "../getsetlock/guarded.go", "../getsetlock/listcas.go", "../getsetlock/patient.go", "../getsetlock/twokeys.go", "../getsetlock/pair.go",
		"../txlock/classic.go", "../txlock/guarded.go", "../txlock/renamed.go", "../txlock/fleet.go",
		"setlock/lua.go", "setlock/script.go", "setlock/watched.go",
		"sentinel/replicated.go",
		"multilock/tx.go", "multilock/getset.go", "multilock/classic.go", "multilock/inturn.go",
		"rwlock/rwlock.go", "rwlock/read.go", "rwlock/write.go", "rwlock/extend.go", "rwlock/downgrade.go", "rwlock/turns.go", "rwlock/look.go", "rwlock/view.go", "rwlock/clocks.go", "rwlock/inspect.go", "rwlock/check.go",
	} {
		text := must.Get(os.ReadFile(page))(t)
		if n := strings.Count(string(text), "\n"); n > 120 {
			t.Errorf("%s has %d lines, want 120 at most", page, n)
		}
	}
}

// The engine is read in short pieces. The lease machine's switch is one table of events, and not cut.
func TestEngineIsInShortPieces(t *testing.T) {
	dirs := must.Get(filepath.Glob("internal/*"))(t)
	short := 0
	for _, dir := range append(dirs, ".", "protocol") {
		switch filepath.Base(dir) {
		case "chaos", "mutants", "promises", "simulate", "history", "faulty": // what tests it
			continue
		}
		for _, f := range parse(t, dir) {
			file := f.set.File(f.file.Pos())
			if n := file.LineCount(); n > 401 { // one more than there are newlines
				t.Errorf("%s has %d lines, want 400 at most", file.Name(), n)
			}
			for _, d := range f.file.Decls {
				d, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				n := f.set.Position(d.End()).Line - f.set.Position(d.Pos()).Line - 1
				if short++; n > 60 && !(dir == "internal/lease" && d.Name.Name == "On") {
					t.Errorf("%s: %s has %d lines, want 60 at most", f.at(d), d.Name.Name, n)
				}
			}
		}
	}
	if short < 500 {
		t.Errorf("%d functions were looked at", short)
	}
}

// What a user hands in is never asked by a type assertion what else it can: a wrapper would lose
// it. Assertions are for replies, errors and what the engine itself has put somewhere.
func TestNoAbilityIsDiscovered(t *testing.T) {
	own := map[string]bool{
		"redis.Error": true, "[]any": true, "[]byte": true, "string": true, "int64": true, "bool": true, "marked": true,
		"*limited": true, "*Lock": true, "*call": true, "*task": true, "*HeldError": true, "*LostError": true,
		"*redis.Pool": true, // whose idle connections save a goroutine, and nothing else
	}
	for _, f := range slices.Concat(parse(t, "."), parse(t, "protocol")) {
		ast.Inspect(f.file, func(n ast.Node) bool {
			if a, ok := n.(*ast.TypeAssertExpr); ok && a.Type != nil {
				if name := types.ExprString(a.Type); !own[name] {
					t.Errorf("%s: an assertion to %s", f.at(n), name)
				}
			}
			return true
		})
	}
}
