package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/workload"
)

// A Report is all that was measured, as docs/performance/results.json has it.
type Report struct {
	Made     time.Time         `json:"made"`
	Took     float64           `json:"took_seconds"`
	Quick    bool              `json:"quick,omitempty"` // too short to say anything: only that it works
	Commit   string            `json:"commit,omitempty"`
	Command  string            `json:"command"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of the libraries, by module
	Servers  []*Measured       `json:"servers"`
}

// A Machine is what it was measured on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	OS     string `json:"os"`
	Kernel string `json:"kernel,omitempty"`
	Load   string `json:"load,omitempty"` // of the minute before it began: how quiet it was
	Go     string `json:"go"`
}

// Measured is what was measured on one server. A part that is nil was not.
type Measured struct {
	Version string `json:"version"`
	Best    string `json:"best"` // what auto chooses there, and what waits in the contended parts

	NotApart string `json:"not_apart,omitempty"` // why it could not have its own core

	Latency    []workload.Result    `json:"latency,omitempty"`
	Distant    []workload.Result    `json:"distant,omitempty"`
	Together   []workload.Result    `json:"together,omitempty"`
	Throughput []workload.Result    `json:"throughput,omitempty"`
	Crowd      []workload.Result    `json:"crowd,omitempty"`
	OneKey     []Contest            `json:"one_key,omitempty"`
	Sweep      []Contest            `json:"sweep,omitempty"`
	Waiter     []workload.Result    `json:"waiter,omitempty"`
	Held       []workload.Footprint `json:"held,omitempty"`
	Allocs     []Allocs             `json:"allocs,omitempty"`
	Command    *Command             `json:"process,omitempty"`
}

// A Contest is many goroutines at one key.
type Contest struct {
	Processes  int               `json:"processes"`
	Goroutines int               `json:"goroutines"` // in each
	Results    []workload.Result `json:"results"`
}

// Allocs is what an acquisition and its release allocate.
type Allocs struct {
	Name   string  `json:"name"`
	Err    string  `json:"error,omitempty"`
	Allocs float64 `json:"allocs"`
	Bytes  float64 `json:"bytes"`
}

// newReport is one with everything but the measurements.
func newReport(quick bool, command string) *Report {
	r := &Report{Made: time.Now().UTC().Truncate(time.Second), Quick: quick, Command: command, Commit: commit(), Versions: map[string]string{}}
	r.Machine = Machine{CPU: cpu(), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: word("/proc/sys/kernel/osrelease"), Load: word("/proc/loadavg"), Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			switch d.Path {
			case "github.com/gomodule/redigo", "github.com/bsm/redislock", "github.com/redis/go-redis/v9", "github.com/go-redsync/redsync/v4", "github.com/redis/rueidis", "github.com/redis/rueidis/rueidislock":
				r.Versions[d.Path] = d.Version
			}
		}
	}
	return r
}

func cpu() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		if name, value, ok := strings.Cut(in.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// word is the first one in a file; "" if there is none.
func word(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(bytes.Fields(b)) == 0 {
		return ""
	}
	return string(bytes.Fields(b)[0])
}

// commit is the one that is checked out; with a + if there is more to it.
func commit() string {
	id, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", "*.go").Output()
	if err == nil && len(changed) > 0 {
		return strings.TrimSpace(string(id)) + "+"
	}
	return strings.TrimSpace(string(id))
}

// server is the place for what is measured on s.
func (r *Report) server(s *server) *Measured {
	for _, m := range r.Servers {
		if m.Version == s.Version {
			return m
		}
	}
	m := &Measured{Version: s.Version, Best: s.name}
	r.Servers = append(r.Servers, m)
	return m
}

// number is a measured one in JSON: not in a text, and of more than four digits.
var number = regexp.MustCompile(`":-?[0-9][0-9.]{4,}(e[-+][0-9]+)?[,}]`)

// rounded is what number matched, with four digits that say something.
func rounded(match []byte) []byte {
	end := len(match) - 1
	v, err := strconv.ParseFloat(string(match[2:end]), 64)
	if err != nil {
		return match
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return append(strconv.AppendFloat([]byte(`":`), v, 'f', -1, 64), match[end])
}

// load reads a report; nil if there is none.
func load(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// save writes it whole or not at all: a run that is interrupted goes on from there.
// Each result has a line, and of a number what could be the same again: four digits.
func (r *Report) save(path string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	b = number.ReplaceAllFunc(b, rounded)
	b = bytes.ReplaceAll(b, []byte(`{"name"`), []byte("\n"+`{"name"`))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
