//go:build unix

package main

import (
	"bytes"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/rogpeppe/go-internal/testscript"
)

// clients REGEXP waits until the server has a client with such a name.
func scriptClients(ts *testscript.TestScript, _ bool, args []string) {
	c, err := redis.Dial("tcp", ts.Getenv("SETNXLOCK_REDIS"))
	ts.Check(err)
	defer c.Close()
	name := regexp.MustCompile(`(?m) name=` + args[0] + ` `)
	until(ts, "a client is called "+args[0], func() bool {
		list, err := redis.String(c.Do("CLIENT", "LIST"))
		ts.Check(err)
		return name.MatchString(list)
	})
}

// setnames N demands that so many clients have told their names since CONFIG RESETSTAT, or tried to.
func scriptSetnames(ts *testscript.TestScript, _ bool, args []string) {
	c, err := redis.Dial("tcp", ts.Getenv("SETNXLOCK_REDIS"))
	ts.Check(err)
	defer c.Close()
	stats, err := redis.String(c.Do("INFO", "commandstats"))
	ts.Check(err)
	tried := 0
	for _, m := range regexp.MustCompile(`cmdstat_client\|setname:calls=(\d+),.*rejected_calls=(\d+)`).FindAllStringSubmatch(stats, -1) {
		for _, n := range m[1:] {
			n, _ := strconv.Atoi(n)
			tried += n
		}
	}
	if want, _ := strconv.Atoi(args[0]); tried != want {
		ts.Fatalf("%d clients tried, want %d", tried, want)
	}
}

// cutting is the connection of a client that is closed when it tells its name.
type cutting struct {
	net.Conn
	cuts *atomic.Int64
}

func (c cutting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if bytes.Contains(p[:n], []byte("SETNAME")) {
		c.cuts.Add(1)
		c.Close()
		return 0, io.EOF
	}
	return n, err
}

// A proxy that answers INFO and closes a connection on what it does not know costs a run nothing but that.
func TestClientNameIsRefusedRudely(t *testing.T) {
	t.Parallel()
	server := startOld(t, "7.0")
	var cuts atomic.Int64
	proxy := serve(t, func(c net.Conn) { relay(cutting{c, &cuts}, server, func([]byte) {}) })
	out, errs, status := cli(t, []string{"SETNXLOCK_REDIS=" + proxy}, "run", "job", "--", "echo", "runs")
	if out != "runs\n" || errs != "" || status != 0 || cuts.Load() != 1 {
		t.Errorf("%q, %q, status %d, cut %d times", out, errs, status, cuts.Load())
	}
}

func TestClientName(t *testing.T) {
	if name := clientName(); strings.ContainsAny(name, " \t\n") || !regexp.MustCompile(`^setnxlock/[!-~]+/\d+$`).MatchString(name) {
		t.Errorf("%q", name)
	}
}
