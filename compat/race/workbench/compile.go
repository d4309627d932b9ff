//go:build !js

package workbench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// ErrNoSource is why there is no workbench: it is compiled when a site is written.
var ErrNoSource = errors.New("the workbench is compiled by the go command from a clone of this module")

const program = "github.com/setnxlock/setnxlock/compat/race/workbench/wasm"

// Module is the explorer as WebAssembly, as the page runs it, and where the Go that compiled it is.
func Module(ctx context.Context) (wasm []byte, goroot string, err error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMOD").Output()
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrNoSource, err)
	}
	goroot, gomod, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	// Its path gets into the module, and its length is all that anonymous leaves of it: MkdirTemp's names differ in length.
	tmp := filepath.Join(os.TempDir(), "setnxlock-workbench-"+rand.Text())
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(tmp)
	overlay, err := withoutTLS(tmp, goroot)
	if err != nil {
		return nil, "", err
	}
	modfile, err := without(ctx, tmp, gomod)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(tmp, "engine.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-modfile", modfile, "-overlay", overlay, "-trimpath", "-gcflags=all=-l", "-ldflags=-s -w -buildid=", "-o", file, program)
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=", "GOWORK=off")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("%w: %w: %s", ErrNoSource, err, cmp.Or(strings.TrimSpace(string(said)), "it said nothing"))
	}
	if wasm, err = os.ReadFile(file); err != nil {
		return nil, "", err
	}
	wasm, err = merged(anonymous(wasm))
	return wasm, goroot, err
}

// anonymous blanks what a program knows of the folders that it was built in, between two marks: with it no
// two modules are the same.
func anonymous(wasm []byte) []byte {
	const begin, end = "0w\xaf\f\x92t\b\x02A\xe1\xc1\a\xe6\xd6\x18\xe6", "\xf92C1\x86\x18 r\x00\x82B\x10A\x16\xd8\xf2"
	if from := bytes.Index(wasm, []byte(begin)); from >= 0 {
		if n := bytes.Index(wasm[from:], []byte(end)); n >= 0 {
			copy(wasm[from+len(begin):], bytes.Repeat([]byte{' '}, n-len(begin)))
		}
	}
	return wasm
}

// A cut is what the engine leaves out of a module that it is compiled from: lines that hand out functions
// which nothing in the page calls, and which the linker would keep for them.
type cut struct {
	module string
	files  string // a pattern of names
	line   string // those that match are left out: a regular expression
	least  int    // so many do; fewer: the module has changed, and must be looked at
}

func cuts() []cut {
	return []cut{
		{"github.com/alicebob/miniredis/v2", "cmd_*.go", `(?m)^\tm\.srv\.Register\("(?:` + strings.ReplaceAll(strings.ToUpper(absent+" "+needless), " ", "|") + `)",.*\n`, 80},
		{"github.com/yuin/gopher-lua", "linit.go", `(?m)^\tluaLib\{(?:Io|Os|Channel)LibName,.*\n`, 3},
	}
}

// needless are the commands of miniredis that oldredis runs itself, or not at all.
const needless = "blmove blpop brpop brpoplpush bzmpop bzpopmax bzpopmin client cluster command copy debug dump geohash georadius georadius_ro " +
	"georadiusbymember georadiusbymember_ro geosearchstore hello hexpire hpersist hpttl hsetex httl info lcs lmpop memory migrate monitor move " +
	"psubscribe pubsub punsubscribe randomkey restore scan shutdown sort subscribe swapdb unsubscribe wait xack xautoclaim xclaim xgroup xinfo " +
	"xpending xread xreadgroup zmpop"

// without copies the modules of cuts, and writes a go.mod that has the copies in their place.
func without(ctx context.Context, dir, gomod string) (modfile string, err error) {
	mod, err := os.ReadFile(gomod)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoSource, err)
	}
	sum, err := os.ReadFile(strings.TrimSuffix(gomod, ".mod") + ".sum")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoSource, err)
	}
	for n, c := range cuts() {
		list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", c.module)
		list.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		out, err := list.Output()
		if err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrNoSource, c.module, err)
		}
		to := filepath.Join(dir, fmt.Sprint("module", n))
		if err := c.copy(strings.TrimSpace(string(out)), to); err != nil {
			return "", err
		}
		mod = fmt.Appendf(mod, "\nreplace %s => %s\n", c.module, to)
	}
	modfile = filepath.Join(dir, "engine.mod")
	if err := os.WriteFile(modfile, mod, 0o666); err != nil {
		return "", err
	}
	return modfile, os.WriteFile(filepath.Join(dir, "engine.sum"), sum, 0o666)
}

// copy copies a module without its tests and what is cut.
func (c cut) copy(from, to string) error {
	found, line := 0, regexp.MustCompile(c.line)
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(name) != "go.mod" && (filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go")) {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if ok, _ := filepath.Match(c.files, filepath.Base(name)); ok {
			found += len(line.FindAllIndex(b, -1))
			b = line.ReplaceAll(b, nil)
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		name = filepath.Join(to, rel)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			return err
		}
		return os.WriteFile(name, b, 0o666)
	})
	if err == nil && found < c.least {
		err = fmt.Errorf("workbench: %s has %d lines that can be left out, where there were %d", c.module, found, c.least)
	}
	return err
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
