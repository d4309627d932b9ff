//go:build !js

package workbench

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/markup"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/pages"
	"github.com/setnxlock/setnxlock/compat/race"
)

// The files of the page.
var (
	//go:embed page/workbench.html
	pageHTML string
	//go:embed page/workbench.css
	pageCSS string
	//go:embed page/workbench.js
	pageJS string
)

// The files that Site writes. A state of the workbench is Page, a # and its schedule.
const (
	Page   = "workbench.html"
	Engine = "workbench-engine.js" // which Page loads
)

// ErrNoSource is why there is no workbench: it is compiled when a site is written.
var ErrNoSource = errors.New("the workbench is compiled by the go command from a clone of this module")

const program = "github.com/setnxlock/setnxlock/cmd/setnxlock/internal/workbench/wasm"

// A Level is a race as a game.
type Level struct {
	No        int        `json:"no,omitempty"` // in the course, from 1; 0: it is the opening, or of the archive
	Name      string     `json:"name"`
	Title     string     `json:"title"`
	Objective string     `json:"objective"`
	Text      string     `json:"text"`
	Goal      string     `json:"goal"` // the invariant to be broken
	Head      string     `json:"head"` // of its schedules, before the colon
	Fix       string     `json:"fix"`
	Survives  *Survivor  `json:"survives,omitempty"`
	Exercise  *Marked    `json:"exercise,omitempty"`
	Graph     race.Graph `json:"graph,omitzero"` // what the hints know; none in the archive
}

// A Survivor is the same race on a lock that survives it.
type Survivor struct {
	Algorithm string `json:"algorithm"`
	Schedule  string `json:"schedule"`
}

// levelOf makes a level of a race. Of states its hints know as many as limit; 0: it has no hints.
func levelOf(p pages.Page, limit int) (l Level, err error) {
	t := p.Trace
	head, _, _ := strings.Cut(t.Schedule, " :")
	l = Level{
		Name: t.Scenario, Title: t.Title, Objective: t.Objective, Text: t.Text,
		Goal: t.Verdict.Violated, Head: head, Fix: t.Argument.Fix,
	}
	if p.Survives != nil {
		l.Survives = &Survivor{p.Survives.Algorithm, p.Survives.Schedule}
	}
	if p.Exercise != "" {
		l.Exercise = new(Marked)
		if *l.Exercise, err = marked(t.Scenario, ""); err != nil {
			return l, err
		}
	}
	if limit > 0 {
		l.No = p.Order
		l.Graph, err = race.Around(t.Schedule, limit, Locks(), cardOf(t.Schedule))
	}
	return l, err
}

// cardOf lets time pass in a level's graph as the card of time does.
func cardOf(schedule string) func([]race.Choice, race.Trace) []race.Choice {
	c, _, _ := race.ParseSchedule(schedule) //nolint:errcheck // a trace has it
	c.Locks = Locks()
	return func(way []race.Choice, at race.Trace) []race.Choice {
		if d, ok := (Position{c, way, at}).Deadline(); ok {
			return []race.Choice{{Verb: race.Pass, By: d.By}}
		}
		return nil
	}
}

// levelsOf makes levels of races, behind the opening.
func levelsOf(races []pages.Page) ([]Level, error) {
	t, err := race.ReplaySchedule(opening, Locks())
	if err != nil {
		return nil, err
	}
	t.Scenario, t.Title = openingName, "the lock of the SETNX page"
	t.Objective = "Make two clients hold the lock at once."
	t.Text = "The value is the time at which the lease ends. Whoever finds it past takes the lock over. " +
		"A release compares, and then deletes."
	var levels []Level
	for _, p := range append([]pages.Page{{Trace: t}}, races...) {
		limit := 0
		switch {
		case p.Trace.Scenario == openingName:
			limit = openingStates
		case p.Lecture > 0:
			limit = graphStates
		}
		l, err := levelOf(p, limit)
		if err != nil {
			return nil, err
		}
		levels = append(levels, l)
	}
	return levels, nil
}

// Site writes the workbench into the folder of a pages.Site: Page, and Engine, the explorer compiled by the go command
// from the working directory's module. Its levels are the opening and the races of the course;
// those of the archive it knows. ErrNoSource says that it can't.
func Site(ctx context.Context, dir string, races []pages.Page) error {
	levels, err := levelsOf(races)
	if err != nil {
		return err
	}
	module, err := engine(ctx)
	if err != nil {
		return err
	}
	root, err := ask(ctx, "env", "GOROOT")
	if err != nil {
		return err
	}
	start, err := os.ReadFile(filepath.Join(root, "lib", "wasm", "wasm_exec.js"))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoSource, err)
	}
	exec, err := json.Marshal(string(start))
	if err != nil {
		return err
	}
	code, err := sources(ctx)
	if err != nil {
		return err
	}
	// A page from the disk may fetch no file: the engine is a script, which has what is packed in a string.
	script := fmt.Sprintf("self.SETNXLOCK_EXEC = %s\nself.SETNXLOCK_CODE = '%s'\nself.SETNXLOCK_WASM = '%s'\n",
		exec, packed(code), packed(module))
	// Marshal writes <, > and & as \u003c and so on: no </script> can end the data.
	data, err := json.Marshal(levels)
	if err != nil {
		return err
	}
	html := markup.Page{
		Title:  "The Workbench: Break a Lock by Hand",
		Allow:  []string{pages.FileScripts + " blob: 'wasm-unsafe-eval'", "worker-src blob:"},
		Sheets: []string{pages.Sheet, "workbench.css"},
		Body: markup.Fill(pageHTML, map[string]markup.HTML{
			"levels":    markup.HTML(data),
			"megabytes": markup.HTML(fmt.Sprintf("%.1f", float64(len(script))/1e6)),
		}),
	}
	for name, b := range map[string][]byte{
		Page: html.Document(), Engine: []byte(script),
		"workbench.css": []byte(pageCSS), "workbench.js": []byte(pages.Lanes + pageJS),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// packed gzips b and writes it as the text of a script's string, seven bits to a character. A character that may not
// stand there has 128 added, so that a reader takes each character modulo 128.
func packed(b []byte) string {
	var zipped bytes.Buffer
	z, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression) //nolint:errcheck // there is this level
	z.Write(b)                                                 //nolint:errcheck // a Buffer takes all
	z.Close()                                                  //nolint:errcheck
	var text strings.Builder
	bits, have := 0, 0
	put := func(seven int) {
		if strings.ContainsRune("\x00\n\r'\\", rune(seven)) {
			seven += 128
		}
		text.WriteRune(rune(seven))
	}
	for _, c := range zipped.Bytes() {
		bits, have = bits<<8&0x7fff|int(c), have+8
		for have >= 7 {
			have -= 7
			put(bits >> have & 127)
		}
	}
	if have > 0 {
		put(bits << (7 - have) & 127)
	}
	return text.String()
}

// engine returns the explorer as WebAssembly.
func engine(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "setnxlock-workbench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "engine.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, program)
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %w: %s", ErrNoSource, err, bytes.TrimSpace(said))
	}
	return os.ReadFile(file)
}

// ask asks the go command.
func ask(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoSource, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// algorithms are the packages in which a client that asks for a lock can stand (race.Spots).
var algorithms = []string{"getsetlock", "txlock", "compat/setlock", "compat/rwlock", "compat/semaphore", "compat/race/catalogue", "internal/broken", "cmd/setnxlock/internal/mixing"}

// engines are the files in which it can, where the engine, or redlock for one of its servers, sends for an algorithm.
var engines = []string{"compat/protocol/watch.go", "compat/protocol/unguarded.go", "compat/protocol/listcas.go", "compat/protocol/script.go", "compat/protocol/ifeq.go", "compat/redlock/server.go", "compat/redlock/redlock.go"}

// sources reads the files of the algorithms, by name, in JSON: each line where it was.
func sources(ctx context.Context) ([]byte, error) {
	root, err := ask(ctx, "list", "-f", "{{.Module.Dir}}", path.Dir(program))
	if err != nil {
		return nil, err
	}
	names := slices.Clone(engines)
	for _, dir := range algorithms {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.go"))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				names = append(names, dir+"/"+filepath.Base(f))
			}
		}
	}
	comment := regexp.MustCompile(`(?m)^//.*$`) // outside of every function: the page never shows it
	files := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		// Only what sends is shown: a file that has no connection has none of it.
		if slices.Contains(engines, name) || strings.Contains(string(b), "protocol.Conn") || strings.Contains(string(b), "protocol.Change") {
			files[name] = comment.ReplaceAllString(string(b), "")
		}
	}
	return json.Marshal(files)
}
