//go:build unix

package main

import (
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// A server that others use is left alone, unless the user insists; and nothing is
// left on it.
func TestBenchDisturbsNobody(t *testing.T) {
	t.Parallel()
	address := startReal(t)
	bench := func(args ...string) (string, int) {
		cmd := exec.Command("setnxlock", append([]string{"bench", "--redis", address, "--duration", "30ms"}, args...)...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	c, err := redis.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if out, status := bench("--keys", "1", "--goroutines", "3", "--algorithm", "set,tx,getset", "--signal"); status != 0 {
		t.Errorf("status %d: %s", status, out)
	}
	keys, err := redis.Strings(c.Do("KEYS", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys { // what stays has an end: a wake-up that nobody waited for
		if ttl, err := redis.Int(c.Do("TTL", key)); err != nil || ttl < 0 {
			t.Errorf("%s was left behind: TTL %d, %v", key, ttl, err)
		}
	}

	stop, others := make(chan struct{}), sync.WaitGroup{}
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				c.Do("PING") //nolint:errcheck // only to be seen
			}
		}
	})
	out, status := bench()
	if status != 75 || !strings.Contains(out, "others are at work on "+address) || !strings.Contains(out, "--anyway") {
		t.Errorf("status %d: %s", status, out)
	}
	if out, status := bench("--anyway"); status != 0 {
		t.Errorf("status %d: %s", status, out)
	}
	close(stop)
	others.Wait()
}
