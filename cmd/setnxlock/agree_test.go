//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
)

// A claim is a key, what is on it, and what every command must say of it.
type claim struct {
	name  string
	on    func(address, key string) // makes it
	flags []string                  // of all four commands
	says  string                    // the status
	run   int                       // the status with which run --try exits
	since string                    // not on older servers
}

var statusLine = regexp.MustCompile(`(?m)^status\s+(\S+)`)

// inspect, survey, release and run agree about every key, on every kind of server.
func TestCommandsAgree(t *testing.T) {
	const past, ahead = "1700000000", "4102444800"
	set := func(value string, ttl int) func(address, key string) {
		return func(address, key string) { put(t, address, onKey{key, value, ttl}) }
	}
	held := func(args ...string) func(address, key string) {
		return func(address, key string) { leave(t, address, append(slices.Clone(args), key)...) }
	}
	readers := func(until time.Time) func(address, key string) {
		return func(address, key string) {
			ask(t, address, "ZADD", key+":readers:{"+key+"}", until.UnixMilli(), "r:"+someHex)
		}
	}
	pairOf := func(until string) func(address, key string) {
		return func(address, key string) {
			name := strings.TrimPrefix(key, "lock:owner:")
			ask(t, address, "SET", "lock:owner:"+name, "web1:47")
			ask(t, address, "SET", "lock:expire:"+name, until)
		}
	}
	nothing := func(string, string) {}
	for _, version := range []string{"1.2", "2.0", "2.4", "7.0", "real"} {
		// What a lock of times takes over, and one of tokens does not.
		address := startServer(t, version)
		auto, times := 75, version == "1.2" || version == "2.0"
		if times {
			auto = 0
		}
		for i, c := range []claim{
			{name: "free", on: nothing, says: "free", run: 0},
			{name: "token", on: set(someHex, 600), says: "held", run: 75, since: "2.2"},
			{name: "token without a TTL", on: set(someHex, 0), says: "persistent", run: 75},
			{name: "text", on: set("web1", 600), says: "held", run: 75, since: "2.2"},
			{name: "flag", on: set("1", 600), says: "held", run: 75, since: "2.2"},
			{name: "empty flag", on: set("", 600), says: "held", run: 75, since: "2.2"},
			{name: "empty flag without a TTL", on: set("", 0), says: "persistent", run: 75},
			{name: "seconds to come", on: set(ahead, 0), says: "held", run: 75},
			{name: "seconds past", on: set(past, 0), says: "dead", run: auto},
			{name: "float past", on: set(past+".25", 0), says: "dead", run: auto},
			{name: "milliseconds past", on: set(past+"000", 0), says: "dead", run: 75},
			{name: "past, and a TTL", on: set(past+".25", 600), says: "held", run: 75, since: "2.2"},
			{name: "to come, and a TTL", on: set(ahead, 600), says: "held", run: 75, since: "2.2"},
			{name: "ours", on: held(), says: "held", run: 75},
			{name: "ours, times", on: held("--algorithm", "getset:classic"), says: "held", run: 75},
			{name: "readers", on: held("--algorithm", "rw:read"), says: "held", run: 65, since: "2.2"},
			{name: "readers past", on: readers(time.Now().Add(-time.Minute)), says: "dead", run: 0, since: "2.2"},
			{name: "writer", on: held("--algorithm", "rw:write"), says: "held", run: 75, since: "2.2"},
			{name: "Redisson", on: func(address, key string) {
				ask(t, address, "HSET", key, someUUID+":57", "1")
				ask(t, address, "EXPIRE", key, 600)
			}, says: "foreign", run: 65, since: "2.2"},
			{name: "two keys past", on: pairOf(past), says: "dead", run: 75},
			{name: "two keys to come", on: pairOf(ahead), says: "held", run: 75},

			// As the lock that is named.
			{name: "past, resque-lock", flags: []string{"--dialect", "resque-lock"}, on: set(past, 0), says: "dead", run: 0},
			{name: "to come, resque-lock", flags: []string{"--dialect", "resque-lock"}, on: set(ahead, 0), says: "held", run: 75},
			{name: "token, seconds", flags: []string{"--algorithm", "getset:classic", "--dialect", "seconds"}, on: set(someHex, 0), says: "foreign", run: 75},
			{name: "past, tx", flags: []string{"--algorithm", "tx"}, on: set(past, 0), says: "persistent", run: 75, since: "2.2"},
			{name: "token, redis-py-3", flags: []string{"--dialect", "redis-py-3"}, on: set(someHex, 600), says: "held", run: 75, since: "2.2"},
			{name: "readers, rw:write", flags: []string{"--algorithm", "rw:write"}, on: held("--algorithm", "rw:read"), says: "held", run: 75, since: "2.2"},
			{name: "readers, rw:read", flags: []string{"--algorithm", "rw:read"}, on: held("--algorithm", "rw:read"), says: "held", run: 0, since: "2.2"},
			{name: "writer, rw:read", flags: []string{"--algorithm", "rw:read"}, on: held("--algorithm", "rw:write"), says: "held", run: 75, since: "2.2"},
			{name: "two keys past, by name", flags: []string{"--dialect", "mlanett-redis-lock"}, on: pairOf(past), says: "dead", run: 0, since: "2.2"},
			{name: "two keys to come, by name", flags: []string{"--dialect", "mlanett-redis-lock"}, on: pairOf(ahead), says: "held", run: 75, since: "2.2"},
			{name: "bridge, past", flags: []string{"--algorithm", "bridge", "--dialect", "redis-py-2.9"}, on: set(past+".25", 0), says: "dead", run: 0, since: "2.2"},
		} {
			if c.since != "" && times {
				continue
			}
			t.Run(version+"/"+strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				key := fmt.Sprintf("k%02d", i)
				if strings.HasPrefix(c.name, "two keys") && len(c.flags) == 0 {
					key = "lock:owner:" + key
				}
				c.on(address, key)
				c.check(t, address, key)
			})
		}
	}
}

// Of several keys, and of several servers, they agree as well; and by force each part is removed
// that was shown.
func TestCommandsAgreeOnSeveral(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2.4", "7.0", "real"} {
		one, all := startServer(t, version), startAll(t, version+","+version+","+version)
		for i, c := range []struct {
			name string
			on   func(a, b string) // where there are two keys
			says string
			run  int
			left int // the status of release --force --yes
		}{
			{"free", func(a, b string) {}, "free", 0, 0},
			{"one held", func(a, b string) { put(t, one, onKey{a, someHex, 600}) }, "held", 75, 0},
			{"two clients", func(a, b string) { put(t, one, onKey{a, someHex, 600}, onKey{b, someHex[1:] + "0", 0}) }, "persistent", 75, 0},
			{"one past", func(a, b string) { put(t, one, onKey{b, "1700000000", 0}) }, "dead", 75, 0},
			{"ours", func(a, b string) { leave(t, one, a, b) }, "held", 75, 0},
			{"readers of one", func(a, b string) { leave(t, one, "--algorithm", "rw:read", b) }, "held", 65, 0},
			{"Redisson", func(a, b string) {
				if version != "2.4" {
					ask(t, one, "EVAL", "redis.call('HSET', KEYS[1], ARGV[1], 1)", 1, b, someUUID+":57")
				} else {
					ask(t, one, "HSET", b, someUUID+":57", "1")
				}
			}, "foreign", 65, 65},
		} {
			t.Run(version+"/"+c.name, func(t *testing.T) {
				a, b := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)
				c.on(a, b)
				agree(t, one, []string{a, b}, nil, c.says, c.run)
				if out, status := command(t, one, "release", "--force", "--yes", a, b); status != c.left {
					t.Errorf("release: %d, want %d\n%s", status, c.left, out)
				}
				if out, status := command(t, one, "run", "--try", a, b, "--", "true"); (status == 0) != (c.left == 0) {
					t.Errorf("after it run: %d\n%s", status, out)
				}
			})
		}
		redlock := []string{"--algorithm", "redlock", "--timeout", "1m"} // however busy the machine is
		for i, c := range []struct {
			name string
			on   int // on how many servers somebody has the key; -1: our own lock
			says string
			run  int
		}{{"free", 0, "free", 0}, {"a minority", 1, "dead", 0}, {"a majority", 2, "held", 75}, {"ours", -1, "held", 75}} {
			t.Run(version+"/redlock/"+c.name, func(t *testing.T) {
				key := fmt.Sprintf("q%d", i)
				for _, s := range strings.Split(all, ",")[:max(c.on, 0)] {
					put(t, s, onKey{key, someHex, 600})
				}
				if c.on < 0 {
					leave(t, all, append(slices.Clone(redlock), key)...)
				}
				agree(t, all, []string{key}, redlock, c.says, c.run)
			})
		}
	}
}

// check demands that the four commands say of a key what the claim says.
func (c claim) check(t *testing.T, address, key string) {
	name := strings.TrimPrefix(key, "lock:owner:")
	out, status := command(t, address, append([]string{"survey", "--json", "--match", "*" + name + "*"}, c.flags...)...)
	if i := strings.Index(out, "{"); i > 0 { // on an old server a warning stands before it
		out = out[i:]
	}
	var s surveyJSON
	if err := json.Unmarshal([]byte(out), &s); err != nil || status != 0 {
		t.Fatalf("survey: %d, %v, %s", status, err, out)
	}
	listed := "free"
	for _, l := range s.Locks {
		if l.Key == key || l.Key == "lock:owner:"+name {
			listed = l.Status
		}
	}
	if listed != c.says {
		t.Errorf("survey says %s, want %s\n%s", listed, c.says, out)
	}
	agree(t, address, []string{key}, c.flags, c.says, c.run)
	if c.says != "held" && c.says != "persistent" || c.run == 0 {
		return
	}
	for _, removes := range []bool{true, false} { // whatever the value
		out, status := command(t, address, slices.Concat([]string{"release", "--force", "--yes", "--not-a-lock"}, c.flags, []string{key})...)
		if strings.Contains(out, "it has no WATCH") && strings.HasPrefix(c.name, "two keys") {
			return // which their clients need, too
		}
		if status != 0 || strings.Contains(out, ": removed") != removes {
			t.Errorf("release --yes: %d, removed %v\n%s", status, removes, out)
		}
	}
}

// agree demands that inspect and release say the status, that release does no more unasked, and that run exits with the
// other.
func agree(t *testing.T, address string, keys, flags []string, says string, run int) {
	t.Helper()
	var st jsonKey
	out, status := command(t, address, slices.Concat([]string{"inspect", "--json"}, flags, keys)...)
	if err := json.Unmarshal([]byte(out), &st); err != nil || status != 0 || st.Status != says || st.Obtainable != (run == 0) {
		t.Errorf("inspect: %d, %v, %s, obtainable %v; want %s, run %d\n%s", status, err, st.Status, st.Obtainable, says, run, out)
	}
	out, status = command(t, address, slices.Concat([]string{"release", "--force"}, flags, keys)...)
	shows := statusLine.FindAllStringSubmatch(out, -1) // of each key
	if !slices.ContainsFunc(shows, func(m []string) bool { return m[1] == says }) {
		t.Errorf("release shows %q, want %s\n%s", shows, says, out)
	}
	want := map[bool]int{true: 0, false: exit.Wrong}[says == "free"]
	if len(keys) == 1 && !slices.Contains(flags, "redlock") && status != want && says != "foreign" {
		t.Errorf("release: %d, want %d\n%s", status, want, out)
	}
	out, status = command(t, address, slices.Concat([]string{"run", "--try"}, flags, keys, []string{"--", "true"})...)
	if status != run {
		t.Errorf("run: %d, want %d, of keys that are %s\n%s", status, run, says, out)
	}
}
