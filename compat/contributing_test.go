package compat_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
)

// The worked examples of CONTRIBUTING.md are what a newcomer types: a lock and its tests, and a
// race, in a module of their own, and a dialect in its table.
func TestContributing(t *testing.T) {
	page := must.Get(os.ReadFile("../CONTRIBUTING.md"))(t)
	tree := must.Get(filepath.Abs(".."))(t)
	blocks := map[string]string{}
	for _, b := range regexp.MustCompile("(?s)```go\n// (\\S+)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		blocks[b[1]] = b[2]
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		must.Do(t, os.WriteFile(name, []byte(text), 0o644))
		return name
	}
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command("go", args...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, name := range []string{"mylock.go", "mylock_test.go", "race_test.go"} {
		if blocks[name] == "" {
			t.Fatalf("the page has no %s", name)
		}
		write(name, blocks[name])
	}
	if out, err := exec.Command("gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v: %s", err, out)
	}
	sums := must.Get(os.ReadFile("../go.sum"))(t)
	write("go.sum", string(sums))
	ours := strings.TrimSuffix(module, "/")
	write("go.mod", "module example.com/mylock\n\ngo 1.25.0\n\nrequire "+ours+" v0.0.0\n\nreplace "+ours+" => "+tree+"\n")
	run(dir, "mod", "tidy")
	out := run(dir, "test", "-count=1", "-v", ".")
	for _, want := range []string{"--- PASS: TestConformance", "--- PASS: TestRaces", "--- PASS: TestCarelessRelease", "exclusion"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}

	const table = "compat/dialect/clients.go"
	text := must.Get(os.ReadFile(filepath.Join(tree, table)))(t)
	const head = "of(Format{Kind: Millis, Stamp: millis, Examples: []string{inMillis}},\n"
	if blocks[table] == "" || !strings.Contains(string(text), head) {
		t.Fatalf("no row on the page, or no table in %s", table)
	}
	overlay := must.Get(json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(tree, table): write("clients.txt", strings.Replace(string(text), head, head+blocks[table], 1)),
	}}))(t)
	if out := run(tree, "test", "-count=1", "-v", "-run", "^TestFormats$", "-overlay", write("overlay.json", string(overlay)), "./compat/dialect"); !strings.Contains(out, "--- PASS: TestFormats") {
		t.Error(out)
	}
}
