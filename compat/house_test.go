package compat_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The algorithms are told the time and given a connection: no clock, timer,
// goroutine, channel or context stands in them, so that the engine alone waits
// and the explorer can run them as they ship.
func TestAlgorithmsAreTold(t *testing.T) {
	for _, dir := range []string{"../getsetlock", "../txlock", "setlock", "rwlock", "bridge"} {
		for _, f := range parse(t, dir) {
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

// packages are the directories of the module that have Go files, but for commands,
// and for bench, which is a module of its own.
func packages(t *testing.T) []string {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path == "../cmd" || path == "../bench" || name == "testdata" || name != ".." && strings.HasPrefix(name, ".") {
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
	allowed := map[string]bool{"github.com/gomodule/redigo/redis": true, "github.com/benbjohnson/clock": true, "github.com/setnxlock/setnxlock/compat": true, "github.com/setnxlock/setnxlock/compat/dialect": true}
	for _, p := range []string{"github.com/setnxlock/setnxlock/getsetlock", "github.com/setnxlock/setnxlock/txlock",
		"github.com/setnxlock/setnxlock/compat/setlock"} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", p).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range strings.Fields(string(out)) {
			if dep != p && !allowed[dep] {
				t.Errorf("%s needs %s", p, dep)
			}
		}
	}
}

type source struct {
	set  *token.FileSet
	file *ast.File
}

func (s source) at(n ast.Node) token.Position { return s.set.Position(n.Pos()) }

// parse reads the Go files of a directory, without its tests.
func parse(t *testing.T, dir string) []source {
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
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, source{set, f})
	}
	return all
}
