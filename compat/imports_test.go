package compat_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
)

// What an import brings: a program that takes a lock compiles redigo and clock, one that tests with
// the embedded Redis miniredis and its Lua too, and the graph of modules, from which go picks
// versions and which security scanners read, has what is named here and no more.
func TestWhatAnImportBrings(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	tree := must.Get(filepath.Abs(".."))(t)
	sums := must.Get(os.ReadFile("../go.sum"))(t)
	write("go.mod", "module example.com/program\n\ngo 1.25.0\n\nrequire "+strings.TrimSuffix(module, "/")+" v0.0.0\n\nreplace "+strings.TrimSuffix(module, "/")+" => "+tree+"\n")
	write("go.sum", string(sums))
	write("main.go", `package main

import (
	_ "github.com/gomodule/redigo/redis"
	_ "github.com/setnxlock/setnxlock/compat/probe"
	_ "github.com/setnxlock/setnxlock/compat/rwlock"
	_ "github.com/setnxlock/setnxlock/getsetlock"
	_ "github.com/setnxlock/setnxlock/txlock"
)

func main() {}
`)
	write("main_test.go", `package main

import _ "github.com/setnxlock/setnxlock/compat/oldredis"
`)
	ask := func(args ...string) []string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, said.String())
		}
		lines := strings.Fields(string(out))
		slices.Sort(lines)
		return slices.Compact(lines)
	}
	ask("mod", "tidy")
	const others = "{{if not .Standard}}{{if not .Module.Main}}{{.ImportPath}}{{end}}{{end}}"
	ours := func(p string) bool { return strings.HasPrefix(p, module) }

	compiled := ask("list", "-deps", "-f", others, ".")
	foreign := slices.DeleteFunc(slices.Clone(compiled), ours)
	if want := []string{"github.com/benbjohnson/clock", "github.com/gomodule/redigo/redis"}; !slices.Equal(foreign, want) {
		t.Errorf("a program compiles %q, want %q", foreign, want)
	}
	if n := len(compiled) - len(foreign); n > 30 {
		t.Errorf("a program compiles %d packages of ours:\n%s", n, strings.Join(compiled, "\n"))
	}
	tested := slices.DeleteFunc(ask("list", "-deps", "-test", "-f", "{{if not .Standard}}{{if not .Module.Main}}{{.Module.Path}}{{end}}{{end}}", "."), func(p string) bool { return p+"/" == module })
	if want := []string{"github.com/alicebob/miniredis/v2", "github.com/benbjohnson/clock", "github.com/gomodule/redigo", "github.com/yuin/gopher-lua"}; !slices.Equal(tested, want) {
		t.Errorf("its tests compile %q, want %q", tested, want)
	}

	graph := ask("list", "-m", "-f", "{{if not .Main}}{{.Path}}{{end}}", "all")
	known := map[string]string{
		"github.com/setnxlock/setnxlock": "", "github.com/gomodule/redigo": "", "github.com/benbjohnson/clock": "",
		"github.com/alicebob/miniredis/v2": "the embedded Redis", "github.com/yuin/gopher-lua": "miniredis", "github.com/chzyer/logex": "gopher-lua", "github.com/chzyer/readline": "gopher-lua", "github.com/chzyer/test": "gopher-lua",
		"go.uber.org/goleak": "conformance", "github.com/davecgh/go-spew": "testify", "github.com/pmezard/go-difflib": "testify", "github.com/stretchr/testify": "redigo", "gopkg.in/yaml.v3": "testify",
		"github.com/rogpeppe/go-internal": "tests of the command", "golang.org/x/tools": "go-internal",
		"github.com/spf13/cobra": "the command", "github.com/spf13/pflag": "the command", "github.com/inconshreveable/mousetrap": "cobra", "golang.org/x/sys": "the command", "golang.org/x/term": "the command",
	}
	for _, m := range graph {
		if _, ok := known[m]; !ok {
			t.Errorf("%s is new in the graph of a program that imports the locks", m)
		}
	}
	for m, why := range known {
		if !slices.Contains(graph, m) {
			t.Errorf("%s (%s) is no longer in the graph of a program that imports the locks", m, why)
		}
	}
	t.Logf("a program compiles %d packages of ours and %d of others; %d modules are in its graph", len(compiled)-len(foreign), len(foreign), len(graph))
}
