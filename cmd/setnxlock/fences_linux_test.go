package main

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// At a terminal fences asks, with what a storage makes of it, and does as it is told.
func TestFencesAsks(t *testing.T) {
	t.Parallel()
	address := startOld(t, "2.4")
	ask(t, address, "SET", "job:fence:{job}", "900")
	c := must.Get(redis.Dial("tcp", address))(t)
	defer c.Close()
	for _, does := range []struct {
		answer       string
		status, left int
	}{{"n\n", 1, 1}, {"\n", 1, 1}, {"y\n", 0, 0}} {
		cmd, master := startOnTerminal(t, 80, []string{"SETNXLOCK_REDIS=" + address}, "fences", "--remove", "job")
		must.Get(io.WriteString(master, does.answer))(t)
		shown, _ := io.ReadAll(master)
		master.Close()
		err := cmd.Wait()
		status := 0
		if e := (*exec.ExitError)(nil); errors.As(err, &e) {
			status = e.ExitCode()
		}
		if left := must.Get(redis.Int(c.Do("EXISTS", "job:fence:{job}")))(t); status != does.status || left != does.left {
			t.Errorf("%q: status %d, %d counters: %s", does.answer, status, left, shown)
		}
		if text := string(shown); !strings.Contains(text, "900") || !strings.Contains(text, "refuses every holder until they have passed it. Remove the counters? [y/N] ") {
			t.Errorf("%q: asks %q", does.answer, text)
		}
	}
}
