package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The environment variable numberVar has the number of the mutant to run: the index in the table + 1. ranVar has the
// file for the names of called functions.
const (
	numberVar = "SETNXLOCK_MUTANT"
	ranVar    = "SETNXLOCK_MUTANTS_RAN"
)

// choice is an extra file for each package with mutants. The file reads the mutant's number, and notes called functions.
const choice = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	theMutant, _ = strconv.Atoi("0" + os.Getenv("` + numberVar + `"))
	theMutants   = os.Getenv("` + ranVar + `")
	theRun       sync.Map
)

func theMutantRuns(in string) {
	if _, was := theRun.LoadOrStore(in, true); was {
		return
	}
	f, err := os.OpenFile(theMutants, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(in + "\n")
		f.Close()
	}
	if err != nil {
		panic(err)
	}
}
`

// A function of the code may get mutants.
type function struct {
	name     string // in the table
	file     string
	pkg      string // the package's name
	from, to int    // the function's bytes in the file
	code     string // without comments
	args     string // the names of all parameters, as arguments of a call
	mutants  string // one if statement for each mutant
}

// dir returns the directory of a function's package: "lease.State.On" is in compat/internal/lease.
func dir(in string) string {
	pkg, _, _ := strings.Cut(in, ".")
	for _, above := range []string{"", "compat", "compat/internal"} {
		if s, err := os.Stat(filepath.Join(above, pkg)); err == nil && s.IsDir() {
			return filepath.Join(above, pkg)
		}
	}
	return pkg
}

// functions returns the functions in dir, by their names in the table.
func functions(dir string) (map[string]*function, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	all := map[string]*function{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || strings.HasSuffix(file, "_test.go") {
				continue
			}
			name := parsed.Name.Name + "."
			if f.Recv != nil {
				of, _, _ := strings.Cut(strings.TrimPrefix(text(f.Recv.List[0].Type), "*"), "[")
				name += of + "."
			}
			name += f.Name.Name
			all[name] = &function{name: name, file: file, pkg: parsed.Name.Name, from: int(f.Pos()) - 1, to: int(f.End()) - 1,
				args: nameAll(f.Type.Params.List), code: text(f)}
		}
	}
	return all, nil
}

// nameAll gives each parameter a name, and returns the names.
func nameAll(params []*ast.Field) string {
	var args []string
	for _, p := range params {
		if len(p.Names) == 0 {
			p.Names = []*ast.Ident{ast.NewIdent("_")}
		}
		for _, n := range p.Names {
			if n.Name == "_" {
				n.Name = fmt.Sprint("arg", len(args))
			}
			args = append(args, n.Name)
		}
		if _, many := p.Type.(*ast.Ellipsis); many {
			args[len(args)-1] += "..."
		}
	}
	return strings.Join(args, ", ")
}

// add makes the function run m instead of its own code if the environment names this number.
func (f *function) add(m mutant, number int) error {
	code := f.code
	for _, e := range m.edits {
		var err error
		if code, err = e.apply(code); err != nil {
			return err
		}
	}
	decl, err := parseFunc(code)
	if err != nil {
		return err
	}
	decl.Type.TypeParams = nil // a function literal inside the function shares them
	call := fmt.Sprintf("%s %s(%s)", text(decl.Type), text(decl.Body), f.args)
	if decl.Type.Results == nil {
		call += "\nreturn"
	} else {
		call = "return " + call
	}
	// In a compiler's message, the mutant's name stands where the file's name would.
	name := strings.ReplaceAll(m.name, ":", "")
	f.mutants += fmt.Sprintf("\nif theMutant == %d {\n//line %s:1\n%s\n}", number, name, call)
	return nil
}

// overlay returns the files with mutants, by the names of the original files. The error names every row of the table
// without a place in the code.
func overlay() (map[string]string, error) {
	var lost []error
	packages := map[string]map[string]*function{}
	seen := map[string]bool{}
	for i, m := range table {
		d := dir(m.in)
		if packages[d] == nil {
			all, err := functions(d)
			if err != nil {
				return nil, err
			}
			packages[d] = all
		}
		err := errors.New("no such function")
		if f := packages[d][m.in]; f != nil {
			err = f.add(m, i+1)
		}
		if err == nil && (seen[m.name] || len(m.nets) == 0) {
			err = errors.New("the same name again, or no net")
		}
		if seen[m.name] = true; err != nil {
			lost = append(lost, fmt.Errorf("%q: %s: %w", m.name, m.in, err))
		}
	}
	files := map[string]string{}
	for d, all := range packages {
		var changed []*function
		for _, f := range all {
			if f.mutants != "" {
				changed = append(changed, f)
				files[filepath.Join(d, "the_mutant.go")] = fmt.Sprintf(choice, f.pkg)
			}
		}
		slices.SortFunc(changed, func(a, b *function) int { return b.from - a.from }) // backwards: the functions before stay where they are
		for _, f := range changed {
			if files[f.file] == "" {
				source, err := os.ReadFile(f.file)
				if err != nil {
					return nil, err
				}
				files[f.file] = string(source)
			}
			decl, err := parseFunc(f.code)
			if err != nil {
				return nil, err
			}
			begins := offset(decl.Body.Lbrace) + 1
			ran := fmt.Sprintf("\nif theMutants != \"\" {\ntheMutantRuns(%q)\n}", f.name)
			files[f.file] = files[f.file][:f.from] + f.code[:begins] + ran + f.mutants + f.code[begins:] + files[f.file][f.to:]
		}
	}
	return files, errors.Join(lost...)
}

// A builder compiles the tests of packages with all mutants in them.
type builder struct {
	tmp  string
	bins map[string]string // by the packages' directories
}

func newBuilder(files map[string]string, tmp string) (*builder, error) {
	replace := map[string]string{}
	for name, code := range files {
		at, err := filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		replace[at] = filepath.Join(tmp, fmt.Sprint(len(replace), ".go"))
		if err := os.WriteFile(replace[at], []byte(code), 0o600); err != nil {
			return nil, err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	return &builder{tmp: tmp, bins: map[string]string{}}, os.WriteFile(filepath.Join(tmp, "overlay.json"), list, 0o600)
}

// build compiles the tests in dir.
func (b *builder) build(ctx context.Context, dir string) error {
	if b.bins[dir] != "" {
		return nil
	}
	bin := filepath.Join(b.tmp, strings.ReplaceAll(dir, "/", "-")+".test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w",
		"-overlay", filepath.Join(b.tmp, "overlay.json"), "-o", bin, "./"+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", dir, err, out)
	}
	b.bins[dir] = bin
	return nil
}
