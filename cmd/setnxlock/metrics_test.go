//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/internal/must"
	"golang.org/x/sys/unix"
)

// Whatever is in the way of the metrics, COMMAND runs under its lock, soon, and with its own status; no other file
// is read, written or made.
func TestMetricsNeverStopTheCommand(t *testing.T) {
	t.Parallel()
	address := startServer(t, "7.0")
	write := func(name, text string) { must.Do(t, os.WriteFile(name, []byte(text), 0o644)) }
	for name, prepare := range map[string]func(file string){
		"nothing":                           nil,
		"no folder":                         func(file string) { must.Do(t, os.Remove(filepath.Dir(file))) },
		"a folder that can't be written to": func(file string) { must.Do(t, os.Chmod(filepath.Dir(file), 0o500)) },
		"a folder in its place":             func(file string) { must.Do(t, os.Mkdir(file, 0o755)) },
		"a folder in its lock's place":      func(file string) { must.Do(t, os.Mkdir(file+".lock", 0o755)) },
		"another's file":                    func(file string) { write(file, "root:x:0\n") },
		"a pipe":                            func(file string) { must.Do(t, unix.Mkfifo(file, 0o644)) },
		"a pipe for a lock":                 func(file string) { must.Do(t, unix.Mkfifo(file+".lock", 0o644)) },
		"a device without an end":           func(file string) { must.Do(t, os.Symlink("/dev/zero", file)) },
		"a link": func(file string) {
			write(file+".other", "setnxlock_held{lock=\"a\"} 1\n")
			must.Do(t, os.Symlink(file+".other", file))
		},
		"a lock that is a link": func(file string) { must.Do(t, os.Symlink(file+".made", file+".lock")) },
		"its lock is held": func(file string) {
			l, err := os.Create(file + ".lock")
			must.Do(t, err)
			t.Cleanup(func() { l.Close() })
			must.Do(t, unix.Flock(int(l.Fd()), unix.LOCK_EX))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "metrics", "jobs.prom")
			must.Do(t, os.Mkdir(filepath.Dir(file), 0o755))
			if prepare != nil {
				prepare(file)
			}
			defer os.Chmod(filepath.Dir(file), 0o755) //nolint:errcheck // one case takes the folder away
			began := time.Now()
			out, errs, status := cli(t, using(address),
				"run", "--metrics-file", file, name, "--", "sh", "-c", "echo under; exit 3")
			if out != "under\n" || status != 3 || time.Since(began) > 30*time.Second {
				t.Errorf("%q, %d after %v: %s", out, status, time.Since(began), errs)
			}
			if told := strings.Contains(errs, "metrics"); told == (name == "nothing") && os.Getuid() != 0 {
				t.Errorf("told: %q", errs)
			}
			if _, err := os.Lstat(file + ".made"); err == nil {
				t.Error("a link was followed")
			}
			if b, err := os.ReadFile(file + ".other"); err == nil && string(b) != "setnxlock_held{lock=\"a\"} 1\n" {
				t.Errorf("a link was followed: %s", b)
			}
			if s, err := os.Lstat(file + ".lock"); err == nil && name == "nothing" && s.Mode().Perm()&0o077 != 0 {
				t.Errorf("others can hold the lock: %v", s.Mode())
			}
		})
	}
}
