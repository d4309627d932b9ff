//go:build !js

package workbench

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race/view"
)

//go:embed page
var page embed.FS

// The files that Site writes. A state of the workbench is Page, a # and its schedule.
const (
	Page   = "workbench.html"
	Engine = "workbench-engine.js" // which Page loads
)

// A Level is a race of the course as a game.
type Level struct {
	Name      string    `json:"name"`
	Title     string    `json:"title"`
	Objective string    `json:"objective"`
	Text      string    `json:"text"`
	Goal      string    `json:"goal"` // the invariant to be broken
	Head      string    `json:"head"` // of its schedules, before the colon
	Fix       string    `json:"fix"`
	Survives  *Survivor `json:"survives,omitempty"`
	Graph     Graph     `json:"graph"`
}

// A Survivor is the same race on a lock that survives it.
type Survivor struct {
	Algorithm string `json:"algorithm"`
	Schedule  string `json:"schedule"`
}

// A Graph is the states that the steps of a level lead to. States[0] is the beginning.
type Graph struct {
	States []GraphState `json:"states"`
	Cut    bool         `json:"cut,omitempty"` // there are more
}

// A GraphState leads on by words of a schedule.
type GraphState struct {
	To     map[string]int `json:"to"`
	Broken bool           `json:"broken,omitempty"` // the level's invariant
}

// LevelOf makes a level of a race that breaks something, with its fork; nil of one that has none.
func LevelOf(p view.Page) *Level {
	t := p.Trace
	if t.Fork == nil || t.Verdict.Violated == "" {
		return nil
	}
	head, _, _ := strings.Cut(t.Schedule, " :")
	l := &Level{Name: t.Scenario, Title: t.Title, Objective: t.Objective, Text: t.Text, Goal: t.Verdict.Violated, Head: head, Fix: t.Argument.Fix}
	if p.Survives != nil {
		l.Survives = &Survivor{p.Survives.Algorithm, p.Survives.Schedule}
	}
	for _, s := range t.Fork.States {
		to := map[string]int{}
		for _, c := range s.Choices {
			to[c.Token] = c.To
		}
		l.Graph.States = append(l.Graph.States, GraphState{to, s.Broken != nil && s.Broken.Invariant == l.Goal})
		l.Graph.Cut = l.Graph.Cut || s.Cut
	}
	return l
}

// Site writes the workbench into a folder: Page, and Engine, which is the explorer compiled from
// the module that the working directory is in, by the go command. ErrNoSource says that it can't.
func Site(ctx context.Context, dir string, levels []*Level) error {
	wasm, goroot, err := compile(ctx)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err = z.Write(wasm); err == nil {
		err = z.Close()
	}
	if err != nil {
		return err
	}
	start, err := os.ReadFile(filepath.Join(goroot, "lib", "wasm", "wasm_exec.js"))
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
	engine := "self.SETNXLOCK_CODE = " + string(code) + "\nself.SETNXLOCK_EXEC = " + string(exec) + "\nself.SETNXLOCK_WASM = '" + base64.StdEncoding.EncodeToString(packed.Bytes()) + "'\n"
	if err := os.WriteFile(filepath.Join(dir, Engine), []byte(engine), 0o666); err != nil {
		return err
	}
	// Marshal writes <, > and & as \u003c and so on: no </script> can end the data.
	data, err := json.Marshal(levels)
	if err != nil {
		return err
	}
	html := strings.NewReplacer("{{style}}", view.Style()+asset("workbench.css"), "{{levels}}", string(data), "{{script}}", asset("workbench.js"),
		"{{megabytes}}", fmt.Sprintf("%.1f", float64(packed.Len())/1e6)).Replace(asset("workbench.html"))
	return os.WriteFile(filepath.Join(dir, Page), []byte(html), 0o666)
}

func asset(name string) string {
	b, err := page.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	return string(b)
}

// ErrNoSource is why there is no workbench: it is compiled when a site is written.
var ErrNoSource = errors.New("the workbench is compiled by the go command from a clone of this module")

const program = "github.com/setnxlock/setnxlock/compat/race/workbench/wasm"

// compile is the explorer as WebAssembly, and where the Go that compiled it is.
func compile(ctx context.Context) (wasm []byte, goroot string, err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrNoSource, err)
	}
	goroot = strings.TrimSpace(string(out))
	tmp, err := os.MkdirTemp("", "setnxlock-workbench-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(tmp)
	overlay, err := withoutTLS(tmp, goroot)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(tmp, "engine.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-trimpath", "-gcflags=all=-l", "-ldflags=-s -w", "-o", file, program)
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("%w: %w: %s", ErrNoSource, err, cmp.Or(strings.TrimSpace(string(said)), "it said nothing"))
	}
	if wasm, err = os.ReadFile(file); err != nil {
		return nil, "", err
	}
	wasm, err = merged(wasm)
	return wasm, goroot, err
}

// algorithms are the packages in which a client that asks for a lock can stand (race.Spots).
var algorithms = []string{"getsetlock", "txlock", "compat/setlock", "compat/rwlock", "compat/redlock", "compat/race/catalogue", "compat/race/catalogue/broken", "compat/race/mixing"}

// engines are the files of package compat in which it can.
var engines = []string{"compat/watch.go", "compat/unguarded.go", "compat/listcas.go", "compat/script.go"}

// sources are the files of the algorithms, by name, in JSON.
func sources(ctx context.Context) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Module.Dir}}", path.Dir(program)).Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSource, err)
	}
	root := strings.TrimSpace(string(out))
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
	files := map[string]string{}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		// Only what sends is shown: a file that has no connection has none of it.
		if strings.Contains(string(b), "compat.Conn") || strings.Contains(string(b), "compat.Change") || strings.HasPrefix(string(b), "package compat\n") {
			files[name] = string(b)
		}
	}
	return json.Marshal(files)
}

// noTLS stands in for crypto/tls, which redigo and miniredis name and a browser's explorer never
// gets to: no connection leaves the page. With TLS go X.509 and most of Go's cryptography.
const noTLS = `package tls

import (
	"errors"
	"net"
)

type Config struct {
	InsecureSkipVerify bool
	ServerName         string
}

type Conn struct{ net.Conn }

var errNone = errors.New("tls: not in this program")

func (c *Config) Clone() *Config { d := *c; return &d }

func Client(c net.Conn, _ *Config) *Conn { return &Conn{c} }

func (*Conn) Handshake() error { return errNone }

func Dial(string, string, *Config) (*Conn, error) { return nil, errNone }

func Listen(string, string, *Config) (net.Listener, error) { return nil, errNone }
`

// withoutTLS writes an overlay for go build, in which noTLS is all of crypto/tls.
func withoutTLS(dir, goroot string) (overlay string, err error) {
	stub := filepath.Join(dir, "tls.go")
	if err := os.WriteFile(stub, []byte(noTLS), 0o666); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(goroot, "src", "crypto", "tls", "*.go"))
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, f := range files {
		replace[f] = "" // as if it were not there
	}
	replace[filepath.Join(goroot, "src", "crypto", "tls", "tls.go")] = stub
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o666)
}
