//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/internal/must"
)

// A command that is run from a loop in a shell must not prepare what it does not
// use: pages, tables, the explorer's help. What is prepared shows in allocations,
// which don't depend on how busy the machine is.
func TestStartsWithWhatItNeeds(t *testing.T) {
	null := must.Get(os.OpenFile(os.DevNull, os.O_RDWR, 0))(t)
	defer null.Close()
	const commandLine = 5000 // flags and help texts of all commands; the explorer's list alone made 60,000
	if n := testing.AllocsPerRun(3, func() { execute([]string{"version"}, null, null, null) }); n > commandLine {
		t.Errorf("version allocates %.0f times, %d at most", n, commandLine)
	}
}

// The command as it is installed: this test's own binary has more in it.
func TestBinaryStaysSmall(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "setnxlock")
	goRun(t, ".", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, ".") // as make install: the size depends on no path
	t.Run("size", func(t *testing.T) {
		code := must.Get(os.ReadFile(file))(t)
		if name := "text/template.(*state).walk"; bytes.Contains(code, []byte(name)) {
			t.Errorf("%s is in it: for a template the linker keeps every method there is", name)
		}
		const most = 15.3e6 // half of what it was; reading MONITOR logs and judging exercises takes 0.2 MB of it
		if len(code) > most && runtime.GOARCH == "amd64" {
			t.Errorf("%d bytes, %.0f at most", len(code), most)
		}
	})
	t.Run("init", func(t *testing.T) { beforeMain(t, file) })
	if runtime.GOOS == "linux" {
		t.Run("memory", func(t *testing.T) { whileItWaits(t, file) })
	}
}

// beforeMain counts what our packages allocate before main.
func beforeMain(t *testing.T, file string) {
	cmd := exec.Command(file, "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := 0
	for _, m := range regexp.MustCompile(`init (\S+) @.* (\d+) allocs`).FindAllStringSubmatch(string(out), -1) {
		n, _ := strconv.Atoi(m[2])
		if m[1] != "main" && !strings.HasPrefix(m[1], "github.com/setnxlock/") {
			continue
		}
		const most = 40 // errors and a small map; a regular expression alone makes 50 and more
		if all += n; n > most {
			t.Errorf("package %s allocates %d times before main, %d at most", m[1], n, most)
		}
	}
	const most = 200
	if all > most {
		t.Errorf("our packages allocate %d times before main, %d at most", all, most)
	}
	if all == 0 {
		t.Errorf("no package of ours in %s", out)
	}
}

// whileItWaits looks at the memory of a run that waits for a lock, and ends soon after that is free.
func whileItWaits(t *testing.T, file string) {
	address := startServer(t, "2.6.12")
	ask(t, address, "SET", "job", "another's", "EX", 600)
	cmd := exec.Command(file, "run", "--redis", address, "--wait", "1h", "job", "--", "true")
	var errs syncBuffer
	cmd.Stderr = &errs
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	most, waits := 0, false // kB
	for {
		select {
		case <-look.C:
			n, _ := strconv.Atoi(ofProcess(cmd.Process.Pid, "VmHWM")) //nolint:errcheck // gone
			most = max(most, n)
			if !waits && strings.Contains(errs.String(), "waiting for") {
				waits = true
				ask(t, address, "DEL", "job")
			}
		case err := <-ended:
			if err != nil {
				t.Errorf("%v: %s", err, errs.String())
			}
			if most == 0 || most > 16<<10 {
				t.Errorf("%d kB are resident, %d at most", most, 16<<10)
			}
			return
		}
	}
}
