package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A survey of many keys, each of which looks like a lock, takes no more memory than it may, and
// hardly more than one of a few.
func TestSurveyStreams(t *testing.T) {
	t.Parallel()
	const many = 50_000
	address := realredis.Start(t)
	c := dial(t, address)
	fill := func(from, to int) {
		t.Helper()
		for at := from; at < to; at += 1000 {
			args := make([]any, 0, 2000)
			for i := at; i < at+1000; i++ {
				args = append(args, fmt.Sprintf("app:%d:lock:%d", i, i), someHex)
			}
			must.Get(c.Do("MSET", args...))(t)
		}
	}
	resident := func(args ...string) (kilobytes int, last string) {
		t.Helper()
		cmd := exec.Command("setnxlock", append([]string{"--redis", address, "survey"}, args...)...)
		cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GOGC=") }) // the tests' own
		w := &weigher{cmd: cmd}
		cmd.Stdout = w
		if err := cmd.Run(); err != nil || w.most == 0 {
			t.Fatalf("%v; %d KB", err, w.most)
		}
		return w.most, string(w.last)
	}
	fill(0, 1000)
	few, _ := resident()
	fill(1000, many)
	for _, args := range [][]string{nil, {"--json"}} {
		most, last := resident(args...)
		if !strings.Contains(last, fmt.Sprintf("%d of %[1]d keys", many)) && !strings.Contains(last, fmt.Sprintf(`"keys": %d`, many)) {
			t.Errorf("%q ends with %q", args, last)
		}
		t.Logf("survey %q: %d MB for 1,000 keys, %d MB for %d", args, few>>10, most>>10, many)
		if limit := 64 << 10; most > limit && !realredis.UnderRace() || most > 2*few+limit/4 {
			t.Errorf("%q: %d KB resident, with 1,000 keys %d", args, most, few)
		}
	}
}

// A weigher is where a command writes: it keeps the end of that, and looks how much memory the
// command has had at most. (Its rusage won't do: that begins with the parent's memory.)
type weigher struct {
	cmd  *exec.Cmd
	most int // KB
	last []byte
}

func (w *weigher) Write(p []byte) (int, error) {
	n, _ := strconv.Atoi(ofProcess(w.cmd.Process.Pid, "VmHWM")) //nolint:errcheck // gone
	w.most = max(w.most, n)
	w.last = append(w.last, p...)
	w.last = slices.Clone(w.last[max(0, len(w.last)-200):])
	return len(p), nil
}
