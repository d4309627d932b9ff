//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
)

const root = "../.."

// A block is a fenced block of a page.
type block struct {
	page string // from the root of the repository
	on   string // the versions of Redis that its fence names
	text string
}

func (b block) String() string {
	first, _, _ := strings.Cut(b.text, "\n")
	return b.page + ": " + first
}

// blocks are those in a language, of these pages of the repository.
func blocks(t *testing.T, language string, pages ...string) (all []block) {
	t.Helper()
	for _, page := range pages {
		b := must.Get(os.ReadFile(filepath.Join(root, page)))(t)
		all = append(all, blocksOf(language, page, string(b))...)
	}
	return all
}

// blocksOf are those of a text, without the indentation of the list that they belong to.
func blocksOf(language, page, text string) (all []block) {
	fences := regexp.MustCompile("(?ms)^( *)```" + language + "( [^\n]*)?\n(.*?)^ *```$")
	for _, m := range fences.FindAllStringSubmatch(text, -1) {
		all = append(all, block{page, strings.TrimSpace(m[2]), strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n")[1:]})
	}
	return all
}

// docs are README.md and the pages of docs.
func docs(t *testing.T) []string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) < 15 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	list := []string{"README.md"}
	for _, p := range pages {
		list = append(list, "docs/"+filepath.Base(p))
	}
	return list
}

// Every Go block of the docs is a program, or a test, that prints what its last comment says on
// every server that its fence names; or it is a part of one, or of an example that go test runs.
func TestProgramsOfTheDocs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var programs []block
	var parts []block
	run := exampleText(t)
	for _, b := range blocks(t, "go", docs(t)...) {
		if b.page == "docs/clients.md" || b.page == "docs/observing.md" {
			continue // of other modules, whose examples are run there
		}
		if strings.HasPrefix(b.text, "package main\n") {
			programs = append(programs, b)
			run += lines(b.text)
		} else {
			parts = append(parts, b)
		}
	}
	if len(programs) < 7 {
		t.Fatalf("%d programs", len(programs))
	}
	for _, b := range parts {
		if !strings.Contains(run, lines(b.text)) {
			t.Errorf("%v\nis neither a program nor a part of one that is run", b)
		}
	}
	asModule(t, dir)
	for i, b := range programs {
		if formatted, err := format.Source([]byte(b.text)); err != nil || string(formatted) != b.text {
			t.Errorf("%v\nis not as gofmt has it: %v", b, err)
		}
		name := filepath.Join(dir, strconv.Itoa(i), "main.go")
		if strings.Contains(b.text, "\nfunc Test") {
			name = filepath.Join(dir, strconv.Itoa(i), "main_test.go")
		}
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o777))
		must.Do(t, os.WriteFile(name, []byte(b.text), 0o666))
	}
	bin := filepath.Join(dir, "bin") + string(filepath.Separator)
	goRun(t, dir, "test", "-count=1", "./...")
	goRun(t, dir, "build", "-o", bin, "./...")
	for i, b := range programs {
		_, says, prints := strings.Cut(b.text, "\n// Output:\n")
		if !prints {
			continue
		}
		says = strings.ReplaceAll(says, "// ", "")
		for _, servers := range strings.Fields(b.on) {
			var out []byte
			var err error
			for late := time.Now().Add(patience); ; { // its time limits are a program's own, on a machine that may stand still
				cmd := exec.Command(bin + strconv.Itoa(i))
				cmd.Env = append(os.Environ(), "SETNXLOCK_REDIS="+startAll(t, servers))
				out, err = cmd.CombinedOutput()
				if !strings.Contains(string(out), protocol.ErrTimeout.Error()) || time.Now().After(late) {
					break
				}
			}
			if !as(strings.TrimSpace(says)).MatchString("\n" + strings.TrimSpace(string(out))) {
				t.Errorf("%v\non %s prints\n%s%v\nthe page says\n%s", b, servers, out, err, says)
			}
		}
	}
}

// asModule makes dir a module that has all that this one has.
func asModule(t *testing.T, dir string) {
	t.Helper()
	abs := must.Get(filepath.Abs(root))(t)
	mod := must.Get(os.ReadFile(filepath.Join(root, "go.mod")))(t)
	sum := must.Get(os.ReadFile(filepath.Join(root, "go.sum")))(t)
	const us = "github.com/setnxlock/setnxlock"
	text := strings.Replace(string(mod), "module "+us, "module programs", 1) + fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %s\n", us, us, abs)
	for name, b := range map[string][]byte{"go.mod": []byte(text), "go.sum": sum} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
	}
}

func goRun(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "XDG_CACHE_HOME=") // go's own cache, not the one that TestMain hides
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// exampleText is all examples of the repository, and the tests that pages have parts of.
func exampleText(t *testing.T) string {
	var b strings.Builder
	must.Do(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			b.WriteString(lines(string(text)))
		}
		return err
	}))
	return b.String()
}

// lines is a text without indentation and empty lines.
func lines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// ownTest are the pages whose commands need more than a server: TestOperatingPage and
// TestInteropMigrationPage run them.
var ownTest = []string{"docs/operating.md", "docs/migration.md"}

// Every command of a page prints what the page says, on every server that its fence names; on
// an embedded 7.0 where it names none.
func TestCommandsOfTheDocs(t *testing.T) {
	t.Parallel()
	commands := 0
	pages := slices.DeleteFunc(docs(t), func(page string) bool { return slices.Contains(ownTest, page) })
	for _, b := range blocks(t, "console", pages...) {
		on := strings.Fields(b.on)
		if len(on) == 0 {
			on = []string{"7.0"}
		}
		for _, servers := range on {
			commands += runBlock(t, b, startAll(t, servers), root)
		}
	}
	if commands < 10 {
		t.Errorf("%d commands", commands)
	}
}

// The README has 100 lines at most, and its make targets exist; its first one is run.
func TestReadmeIsShortAndRuns(t *testing.T) {
	t.Parallel()
	b := must.Get(os.ReadFile(root + "/README.md"))(t)
	if n := strings.Count(string(b), "\n"); n > 100 {
		t.Errorf("the README has %d lines, want 100 at most", n)
	}
	dir := t.TempDir()
	must.Do(t, os.WriteFile(dir+"/go.mod", []byte("module mine\n"), 0o666))
	commands := 0
	for _, b := range blocks(t, "sh", "README.md", "docs/quickstart.md") {
		for line := range strings.Lines(b.text) {
			cmd := exec.Command("sh", "-c", line)
			cmd.Dir, cmd.Env = root, append(os.Environ(), "XDG_CACHE_HOME=")
			switch words := strings.Fields(line); {
			case line == "make demo\n", strings.HasPrefix(line, "make demo "):
			case words[0] == "make": // that it is there; running it is what the gate does
				cmd = exec.Command("make", "-n", words[1])
				cmd.Dir = root
			case words[0] == "go":
				cmd.Dir = dir
			case line == "git clone https://github.com/setnxlock/setnxlock\n":
				continue // not published yet
			}
			commands++
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %s%v\n%s", b.page, line, err, out)
			}
		}
	}
	if commands < 4 {
		t.Errorf("%d commands", commands)
	}
}

// A program gets each adapter from a checkout by the lines of docs/clients.md.
func TestAdaptersFromACheckout(t *testing.T) {
	t.Parallel()
	lines := blocks(t, "sh", "docs/clients.md")
	if len(lines) != 1 {
		t.Fatalf("%d blocks", len(lines))
	}
	abs := must.Get(filepath.Abs(root))(t)
	for _, adapter := range []string{"goredis", "rueidis", "prometheus", "otel"} {
		dir := t.TempDir()
		must.Do(t, os.Symlink(abs, filepath.Join(dir, "setnxlock")))
		const mod = "module mine\n\ngo 1.26\n"
		must.Do(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o666))
		program := fmt.Sprintf("package main\n\nimport _ \"github.com/setnxlock/setnxlock/compat/adapter/%s\"\n\nfunc main() {}\n", adapter)
		must.Do(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o666))
		cmd := exec.Command("sh", "-e", "-c", strings.ReplaceAll(lines[0].text, "ADAPTER", adapter))
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "XDG_CACHE_HOME=", "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		goRun(t, dir, "build", "-o", filepath.Join(dir, "program"), ".")
	}
}

// The pages that are written by hand are short enough to be read. Those that a program writes say so.
func TestWordsOfTheDocs(t *testing.T) {
	const most = 38000
	words := 0
	var generated []string
	for _, page := range docs(t) {
		text := must.Get(os.ReadFile(filepath.Join(root, page)))(t)
		if bytes.Contains(text[:min(400, len(text))], []byte("Generated by")) {
			generated = append(generated, filepath.Base(page))
			continue
		}
		words += len(bytes.Fields(text))
	}
	if words > most {
		t.Errorf("README.md and docs have %d words, want %d at most", words, most)
	}
	if want := []string{"figures.md", "interop.md", "mixing.md", "performance.md"}; !slices.Equal(generated, want) {
		t.Errorf("%q say that a program writes them, want %q", generated, want)
	}
}

// An answer of the FAQ has 80 words at most.
func TestAnswersAreShort(t *testing.T) {
	page := must.Get(os.ReadFile(root + "/docs/faq.md"))(t)
	questions := strings.Split(string(page), "\n## ")[1:]
	for _, q := range questions {
		title, answer, _ := strings.Cut(q, "\n")
		if n := len(strings.Fields(answer)); n > 80 {
			t.Errorf("%s has %d words, want 80 at most", title, n)
		}
	}
	if len(questions) < 10 {
		t.Errorf("%d questions", len(questions))
	}
}

// Every link of a page leads to a file that is there, and every fragment to a heading.
func TestLinksOfTheDocs(t *testing.T) {
	pages := append(docs(t), "CONTRIBUTING.md", "docs/races/README.md", "cmd/setnxlock/internal/pages/guarantees.md")
	for _, page := range pages {
		b := must.Get(os.ReadFile(filepath.Join(root, page)))(t)
		text := regexp.MustCompile("(?ms)^ *```.*?^ *```$|`[^`\n]*`").ReplaceAllString(string(b), "")
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			to, fragment, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			file := filepath.Join(root, filepath.Dir(page), to)
			if to == "" {
				file = filepath.Join(root, page)
			}
			target, err := os.ReadFile(file)
			if err != nil {
				if _, err := os.Stat(file); err != nil {
					t.Errorf("%s links to %s: %v", page, m[1], err)
				}
				continue
			}
			if fragment != "" && strings.HasSuffix(file, ".md") && !anchors(string(target))[fragment] {
				t.Errorf("%s links to %s: there is no such heading", page, m[1])
			}
		}
	}
}

// anchors are the fragments of a page, as GitHub makes them of headings.
func anchors(page string) map[string]bool {
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(page, -1) {
		all[m[1]] = true
	}
	page = regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(page, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all[strings.ReplaceAll(name, " ", "-")] = true
	}
	return all
}

// A command of any page, run here or not, has the words and flags that there are: it gets --help in
// addition, which comes after these are read.
func TestFlagsOfTheDocs(t *testing.T) {
	pages := append(docs(t), "CONTRIBUTING.md")
	line := regexp.MustCompile(`(?m)^ *\$ (?:[A-Z_]+=\S+ )*(setnxlock (?:'[^'\n]*'|[^|;#<>'\n])*)`)
	commands := 0
	for _, page := range pages {
		b := must.Get(os.ReadFile(filepath.Join(root, page)))(t)
		for _, m := range line.FindAllStringSubmatch(string(b), -1) {
			ours, _, _ := strings.Cut(m[1], " -- ")
			if ours = strings.TrimSpace(ours); ours == "setnxlock" {
				continue
			}
			commands++
			out, err := exec.Command("sh", "-c", strings.TrimSuffix(ours, " --")+" --help").CombinedOutput()
			words := strings.Fields(ours)
			name := strings.Join(words[:2], " ")
			if len(words) > 2 && (words[1] == "race" || words[1] == "migrate") {
				name = strings.Join(words[:3], " ")
			}
			if err != nil || !strings.Contains(string(out), name) { // of a word that is none, the help is its parent's
				t.Errorf("%s: %s: %v\n%.300s", page, ours, err, out)
			}
		}
	}
	if commands < 60 {
		t.Errorf("%d commands", commands)
	}
}

// runBlock runs the commands of a block in a folder, and compares what they print with what the page
// says.
func runBlock(t *testing.T, b block, address, dir string, env ...string) (commands int) {
	t.Helper()
	for _, step := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		line, says, _ := strings.Cut(step, "\n")
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(append(os.Environ(), "SETNXLOCK_REDIS="+address, "TZ=UTC"), env...)
		out, _ := cmd.CombinedOutput()
		commands++
		if got, want := masked(string(out)), masked(says); !as(want).MatchString("\n" + got) {
			t.Errorf("%s\n$ %s\n%s\nthe page says\n%s", b.page, line, got, want)
		}
	}
	return commands
}

// docs/choosing.md has the answer that doctor gives, on every version there is.
func TestChoosingIsWhatDoctorSays(t *testing.T) {
	t.Parallel()
	page := must.Get(os.ReadFile(root + "/docs/choosing.md"))(t)
	rows := regexp.MustCompile("(?m)^\\| ([a-z0-9.-]+)[^|]* \\| `([a-z:]+)` \\| (safe|unsafe)[^|]* \\|$").FindAllStringSubmatch(string(page), -1)
	told := map[string][]string{}
	for _, r := range rows {
		told[r[1]] = r[2:]
	}
	for _, v := range slices.Concat(oldredis.Versions(), oldredis.Profiles(), oldredis.Today()) {
		cmd := exec.Command("setnxlock", "doctor", "--json")
		cmd.Env = append(os.Environ(), using(startServer(t, v))...)
		out, _ := cmd.Output()
		var d diagnosis
		if err := json.Unmarshal(out, &d); err != nil {
			t.Fatalf("%s: %v in %s", v, err, out)
		}
		says := "unsafe"
		if d.Safe {
			says = "safe"
		}
		if want := []string{d.Algorithm, says}; !slices.Equal(told[v], want) {
			t.Errorf("of %s the page says %q, and doctor %q", v, told[v], want)
		}
		delete(told, v)
	}
	if len(told) > 0 {
		t.Errorf("the page has servers that there are not: %v", told)
	}
}

// docs/troubleshooting.md has an entry for each exported error with its text, and for each message.
func TestTroubleshootingHasEveryMessage(t *testing.T) {
	b := must.Get(os.ReadFile(root + "/docs/troubleshooting.md"))(t)
	page := string(b)

	for name, text := range exportedErrors(t) {
		row := regexp.MustCompile("\\| `" + regexp.QuoteMeta(name) + "` \\| `([^`]+)`").FindStringSubmatch(page)
		if row == nil {
			t.Errorf("no entry for %s", name)
		} else if !strings.HasPrefix(text, row[1]) && text != "" {
			t.Errorf("%s begins with %q, and the page says %q", name, text, row[1])
		}
	}

	all := messages(t, ".", "internal/racecmd")
	if len(all) < 70 {
		t.Fatalf("%d messages", len(all))
	}
	for _, m := range all {
		if !strings.Contains(page, "`"+m+"`") {
			t.Errorf("no entry for the message `%s`", m)
		}
	}
}

// Each promise of SECURITY.md names tests, which are there.
func TestSecurityPage(t *testing.T) {
	page := must.Get(os.ReadFile("../../SECURITY.md"))(t)
	there := map[string]bool{}
	for _, dir := range []string{".", "../../compat/internal/promises", "../../compat/sentinel", "../../compat/guard"} {
		files, _ := filepath.Glob(dir + "/*_test.go")
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			for _, name := range regexp.MustCompile(`(?m)^func ((Test|Fuzz)\w+)\(`).FindAllSubmatch(text, -1) {
				there[string(name[1])] = true
			}
		}
	}
	promises := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z].*) \| (.*) \|$`).FindAllStringSubmatch(string(page), -1) {
		promises++
		tests := regexp.MustCompile("`((Test|Fuzz)\\w+)`").FindAllStringSubmatch(row[2], -1)
		if len(tests) == 0 {
			t.Errorf("no test: %s", row[1])
		}
		for _, name := range tests {
			if !there[name[1]] {
				t.Errorf("%s is not there: %s", name[1], row[1])
			}
		}
	}
	if promises < 10 {
		t.Errorf("%d promises", promises)
	}
}

// exportedErrors are the exported variables Err… of every package outside of internal folders and
// other modules, with what their text begins with, where it stands beside them.
func exportedErrors(t *testing.T) map[string]string {
	pkg, variable := regexp.MustCompile(`(?m)^package (\w+)`), regexp.MustCompile(`(?m)^(?:var|\t) ?(Err\w+) += (?:[\w.]+\("([^"]*)"\))?`)
	all := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root || d.Name() == "internal" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text := string(must.Get(os.ReadFile(path))(t))
		of := pkg.FindStringSubmatch(text)[1]
		for _, m := range variable.FindAllStringSubmatch(text, -1) {
			if of == "protocol" { // compat names them for users
				all["compat."+m[1]] = m[2]
			} else if all[of+"."+m[1]] == "" {
				all[of+"."+m[1]] = m[2]
			}
		}
		return nil
	})
	if err != nil || len(all) < 25 {
		t.Fatalf("%d errors, %v", len(all), err)
	}
	return all
}

// messages are what the command says when it fails or warns, with … for each verb: exit.Because(status, errors.New("…"),
// hint), exit.Usage(cmd, errors.New("…")), exit.Misuse("…", hint), a.say("…").
func messages(t *testing.T, dirs ...string) (all []string) {
	const text = "(\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`)"
	for _, dir := range dirs {
		call := `Misuse`
		if dir == "." {
			call = `Misuse|\w\.say`
		}
		said := regexp.MustCompile(`\b(?:(?:Because|Usage)\([^,"]*,\s*(?:errors\.New|fmt\.Errorf)|` + call + `)\(\s*` + text + `\s*[,)]`)
		for _, name := range must.Get(filepath.Glob(filepath.Join(dir, "*.go")))(t) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, m := range said.FindAllStringSubmatch(string(must.Get(os.ReadFile(name))(t)), -1) {
				all = append(all, regexp.MustCompile(`%[a-z]`).ReplaceAllString(must.Get(strconv.Unquote(m[1]))(t), "…"))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
