//go:build unix

package main

import (
	"bytes"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A command runs on through a failover; a lock that was on the replica too is
// still held after it.
func TestRunOutlivesAFailover(t *testing.T) {
	t.Parallel()
	s := realredis.RunSentinels(t, "mymaster")
	at := "mymaster@" + strings.Join(s.Addrs(), ",")
	const like = "redis://ignored/0"
	run := func(args ...string) (string, int) {
		t.Helper()
		return command(t, like, append([]string{"--sentinel", at}, args...)...)
	}
	if out, status := run("doctor"); status != 0 || !strings.Contains(out, "mymaster") {
		t.Errorf("doctor: %d, %s", status, out)
	}
	p := puppets(t, like, "--sentinel", at, "--ttl", "20s")
	old := must.Get(s.Master())(t)
	s.Failover()
	s.Replaced(old)
	if out, status := run("run", "--try", "job", "--", "true"); status != statusBusy {
		t.Errorf("beside a held lock, after the failover: %d, %s", status, out)
	}
	if out, status := run("inspect", "job"); status != 0 || !strings.Contains(out, p.token) {
		t.Errorf("inspect: %d, %s", status, out)
	}
	p.exits(0, 0, "")
	if out, status := run("inspect", "job"); status != 0 || !strings.Contains(out, "free") {
		t.Errorf("inspect: %d, %s", status, out)
	}
	if out, status := run("--cluster", "inspect", "job"); status != exit.Wrong {
		t.Errorf("--cluster too: %d, %s", status, out)
	}
	for _, bad := range []string{"mymaster", "@" + s.Addrs()[0], "mymaster@"} {
		if out, status := command(t, like, "--sentinel", bad, "inspect", "job"); status != exit.Wrong {
			t.Errorf("--sentinel %s: %d, %s", bad, status, out)
		}
	}
	if out, status := command(t, like, "--timeout", "500ms", "--sentinel", "other@"+s.Addrs()[0], "inspect", "job"); status != statusUnavailable {
		t.Errorf("a name that no Sentinel knows: %d, %s", status, out)
	}
}

// Any node will do as the address, whatever the key; keys of several slots are
// locked as one, and a lock outlives its slot's move.
func TestKeysOfSeveralSlotsAreOneLock(t *testing.T) {
	t.Parallel()
	c := realredis.RunCluster(t)
	at := c.Addrs()[1]
	run := func(args ...string) (string, int) {
		t.Helper()
		return command(t, at, append([]string{"--cluster"}, args...)...)
	}
	if out, status := run("doctor"); status != 0 {
		t.Errorf("doctor: %d, %s", status, out)
	}
	for _, key := range []string{"a", "b", "c", "d", "e"} { // on all masters
		for _, algorithm := range []string{"auto", "set:watch", "tx:renamed", "getset:guarded", "rw:write"} {
			if out, status := run("--algorithm", algorithm, "run", key, "--", "sh", "-c",
				`setnxlock --cluster --algorithm `+algorithm+` run --try `+key+` -- true; test $? = 75`); status != 0 {
				t.Errorf("%s %s: %d, %s", algorithm, key, status, out)
			}
		}
	}
	out, status := run("run", "a", "b", "c", "--", "sh", "-c", `setnxlock --cluster run --try b -- true; test $? = 75 && setnxlock --cluster inspect a b c`)
	if status != 0 || !strings.Contains(out, "held") {
		t.Errorf("several keys: %d, %s", status, out)
	}

	p := puppets(t, at, "--cluster", "--ttl", "20s")
	moved := cluster.Slot("job")
	from := moved * 3 / 16384
	to := (from + 1) % 3
	masters := c.Addrs()[:3]
	must.Get(realredis.Move(moved, masters[from], masters[to], masters, func() {}))(t)
	if out, status := run("run", "--try", "job", "--", "true"); status != statusBusy {
		t.Errorf("beside a held lock, after its slot was moved: %d, %s", status, out)
	}
	p.exits(0, 0, "")
	if out, status := run("inspect", "job"); status != 0 || !strings.Contains(out, "free") {
		t.Errorf("inspect: %d, %s", status, out)
	}
	if out, status := command(t, at+","+c.Addrs()[0], "inspect", "a"); status != exit.Wrong || !strings.Contains(out, "--cluster") {
		t.Errorf("two nodes without --cluster: %d, %s", status, out)
	}
}

// A server of a quorum that is slower than 250 ms has no vote, unless --timeout gives it the time; and the
// hint says so.
func TestSlowServerHasNoVote(t *testing.T) {
	t.Parallel()
	var all []string
	for range 3 {
		server := startServer(t, "7.0")
		all = append(all, serve(t, func(c net.Conn) {
			relay(c, server, func(asked []byte) {
				if bytes.Contains(asked, []byte("\r\njob\r\n")) { // what it asks about itself is answered at once
					time.Sleep(300 * time.Millisecond)
				}
			})
		}))
	}
	quorum := strings.Join(all, ",")
	out, status := command(t, quorum, "inspect", "--algorithm", "redlock", "job")
	if status != statusUnavailable || !strings.Contains(out, "250ms") || strings.Contains(out, "5s") {
		t.Errorf("inspect: %d, want %d and why\n%s", status, statusUnavailable, out)
	}
	if out, status := command(t, quorum, "inspect", "--algorithm", "redlock", "--timeout", "1m", "job"); status != 0 {
		t.Errorf("inspect with a --timeout: %d\n%s", status, out)
	}
}

// A server of a quorum that takes connections and says nothing is waited for a second, and not for the --timeout of other
// servers. A wait that ends before that panics on the choice that was not made.
func TestAServerOfAQuorumHangs(t *testing.T) {
	t.Parallel()
	quorum := startAll(t, "2.4,7.0") + "," + serve(t, hangs)
	for wait, want := range map[string]int{"30s": 0, "100ms": statusUnavailable} {
		out, status := command(t, quorum, "run", "--wait", wait, "--algorithm", "redlock", "job", "--", "true")
		if status != want || want != 0 && !strings.Contains(out, "does not answer") {
			t.Errorf("--wait %s: %d, want %d: %s", wait, status, want, out)
		}
	}
}

// release --force --yes removes no plain text from a quorum, nor what stands in a readers' or writer's place: it looks like
// a lock to every lock that reads it. Locks it removes.
func TestReleaseByForceLeavesTexts(t *testing.T) {
	t.Parallel()
	servers := startAll(t, "2.4,7.0,7.0")
	one := strings.Split(servers, ",")[1]
	for _, test := range []struct {
		name, servers, flags string
		values               []string // by server
		status               int
	}{
		{"a page on a majority", servers, "redlock", []string{"", "a page", "a page"}, 64},
		{"counters", servers, "redlock", []string{"17", "18", "18"}, 64},
		{"a token beside a counter", servers, "redlock", []string{"94213c24deadbeef94213c24deadbeef", "94213c24deadbeef94213c24deadbeef", "5"}, 64},
		{"tokens", servers, "redlock", []string{"94213c24deadbeef94213c24deadbeef", "94213c24deadbeef94213c24deadbeef", ""}, 0},
		{"a page for a writer", one, "rw:write", []string{"a page"}, 64},
		{"a page for readers", one, "rw:read", []string{"a page"}, 64},
		{"a writer", one, "rw:read", []string{"w:94213c24deadbeef94213c24deadbeef"}, 0},
	} {
		for i, address := range strings.Split(test.servers, ",") {
			if c := dial(t, address); test.values[i] == "" {
				must.Get(c.Do("DEL", "k"))(t)
			} else {
				must.Get(c.Do("SET", "k", test.values[i]))(t)
			}
		}
		out, status := command(t, test.servers, "release", "--algorithm", test.flags, "--timeout", "1m", "--force", "--yes", "k")
		if status != test.status {
			t.Errorf("%s: status %d, want %d: %s", test.name, status, test.status, out)
		}
		for i, address := range strings.Split(test.servers, ",") {
			left, _ := redis.String(dial(t, address).Do("GET", "k"))
			if want := test.values[i]; test.status != 0 && left != want || test.status == 0 && left != "" {
				t.Errorf("%s: server %d has %q, had %q", test.name, i, left, want)
			}
		}
	}
}
