//go:build unix

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
)

// An onKey is a key and what is on it; ttl in seconds, 0 for none.
type onKey struct {
	key, value string
	ttl        int
}

func put(t *testing.T, address string, all ...onKey) {
	t.Helper()
	for _, k := range all {
		ask(t, address, "SET", k.key, k.value)
		if k.ttl > 0 {
			ask(t, address, "EXPIRE", k.key, k.ttl)
		}
	}
}

// untouched demands that keys are as they were put.
func untouched(t *testing.T, address string, all ...onKey) {
	t.Helper()
	for _, k := range all {
		if got, _ := redis.String(ask(t, address, "GET", k.key), nil); got != k.value {
			t.Errorf("%s was changed to %q", k.key, got)
		}
		if ttl, _ := redis.Int(ask(t, address, "TTL", k.key), nil); (ttl >= 0) != (k.ttl > 0) {
			t.Errorf("%s has a TTL of %d now", k.key, ttl)
		}
	}
}

const someHex, someUUID = "94213c24deadbeef94213c24deadbeef", "fb2d0a1e-3f44-4e2e-8f0a-0123456789ab"

// everyServer runs a test on embedded servers and on a real one.
func everyServer(t *testing.T, versions []string, f func(t *testing.T, address string)) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f(t, startServer(t, version))
		})
	}
}

// Nothing is changed without keys, a dialect and a yes; and then nothing that merely looks like a
// lock, nor one that lives, nor one of clients that need not set a TTL.
func TestRepairDoesNoHarm(t *testing.T) {
	t.Parallel()
	everyServer(t, []string{"2.2", "real"}, func(t *testing.T, address string) {
		data := []onKey{
			{"user:42:last_login", "1700000000", 0}, {"user:43:seen", "1700000000.25", 0}, {"user:44:seen", "1700000000000", 0},
			{"etag:1", someHex, 0}, {"session:1", someUUID, 0}, {"flag", "1", 0}, {"text", "hello", 0},
		}
		alive := []onKey{
			{"lock:py", someHex, 0},                // redis-py's timeout=None
			{"resque:lock:ttl", "1700000000", 600}, // a time that has passed: when a job began
			{"lock:ria", someUUID, 600},            // its TTL runs
			{"resque:lock:on", "4102444800", 0},    // its time is to come
			{"lock:owner:on", "host:1", 0}, {"lock:expire:on", "4102444800", 0},
		}
		all := append(data, alive...)
		put(t, address, all...)
		put(t, address, onKey{"resque:lock:gone", "1700000000", 0})
		for _, c := range []struct {
			args   []string
			status int
			says   string
		}{
			{nil, exit.Wrong, "repair needs keys, or --match"},
			{[]string{"--dialect", "resque-lock"}, exit.Wrong, "repair needs keys, or --match"},
			{[]string{"--match", "resque:lock:*"}, exit.Wrong, "these keys look like locks of node-resque, resque-lock"},
			{[]string{"--match", "*", "--dialect", "resque-lock", "resque:lock:gone"}, exit.Wrong, "not both"},
			{[]string{"--match", "*", "--dialect", "resque-lock", "--algorithm", "tx"}, exit.Wrong, "--dialect"},
			{[]string{"--dialect", "resque-lock", "--lease", "1ms", "k"}, exit.Wrong, "--lease must be a second or more, got 1ms"},
			{[]string{"--dialect", "resque", "k"}, exit.Wrong, "no dialect"},
			{[]string{"--dialect", "resque-lock", "--lease", "1s", "--match", "resque:lock:*"}, exit.Wrong, "--yes does it without asking"},
			{[]string{"--dialect", "resque-lock", "--lease", "1s", "--match", "resque:lock:*", "--dry-run"}, 0, "1 of 3 keys would be changed; nothing was"},
			{[]string{"--dialect", "resque-lock", "--lease", "1s", "--match", "resque:lock:*", "--json"}, 0, `"applied": false`},
			{[]string{"--dialect", "seconds", "--lease", "1s", "--yes", "--match", "user:*"}, 0, "nothing but the value's form says that it is a lock"},
			{[]string{"--dialect", "float", "--lease", "1s", "--yes", "--match", "user:*"}, 0, "nothing to repair for float among 3 keys"},
			{[]string{"--dialect", "redis-py-3", "--lease", "1s", "--yes", "--match", "*"}, 0, "redis-py-3 need not set a TTL: a lock without one may be held"},
			{[]string{"--dialect", "redis-py-2.10", "--lease", "1s", "--yes", "lock:py"}, 0, "need not set a TTL"},
			{[]string{"--dialect", "sherlock", "--lease", "1s", "--yes", "session:1"}, 0, "need not set a TTL"},
			{[]string{"--dialect", "redis-in-action", "--lease", "1s", "--yes", "lock:ria"}, 0, "runs: it is held"},
			{[]string{"--dialect", "resque-lock", "--lease", "1s", "--yes", "resque:lock:ttl", "resque:lock:on"}, 0, "runs: it is held"},
			{[]string{"--dialect", "laravel-5.5", "--lease", "1s", "--yes", "flag"}, 0, "say nothing"},
			{[]string{"--dialect", "locky", "--lease", "1s", "--yes", "text"}, 0, "say nothing"},
			{[]string{"--dialect", "mlanett-redis-lock", "--lease", "1s", "--yes", "on"}, 0, "its time has not passed"},
			{[]string{"--dialect", "setnxlock", "--lease", "1s", "--yes", "lock:py"}, 0, "no token of setnxlock's"},
			{[]string{"--dialect", "seconds", "--lease", "1s", "--yes", "nothing"}, 0, "there is no such key"},
		} {
			out, status := command(t, address, append([]string{"repair"}, c.args...)...)
			if status != c.status || !strings.Contains(out, c.says) {
				t.Errorf("%q: %d, want %d and %q: %s", c.args, status, c.status, c.says, out)
			}
			if strings.Contains(out, "died") {
				t.Errorf("%q says who died: %s", c.args, out)
			}
		}
		untouched(t, address, append(all, onKey{"resque:lock:gone", "1700000000", 0})...)
	})
}

// What its clients left behind is ended, with the evidence shown first; what moves meanwhile stays.
func TestRepairEndsWhatClientsLeftBehind(t *testing.T) {
	t.Parallel()
	everyServer(t, []string{"2.2", "2.4", "7.0", "real"}, func(t *testing.T, address string) {
		put(t, address, onKey{"resque:lock:a", "1700000000", 0}, onKey{"resque:lock:b", "1700000001", 0})
		s := play(t, address, "repair", "--dialect", "resque-lock", "--lease", shortLease, "--yes",
			"--match", "resque:lock:*")
		until(t, "it watches", func() bool { return strings.Contains(s.errs.String(), "watching 2 keys") })
		renewed := onKey{"resque:lock:b", fmt.Sprint(time.Now().Unix() + 600), 0}
		put(t, address, renewed)
		out := ""
		for line := range s.lines {
			out += line + "\n"
		}
		s.want(0, "")
		for _, want := range []string{
			"resque:lock:a: remove\n  why   its time passed at 2023-11-14 22:13:20 UTC, and it has no TTL\n  seen  integer seconds 1700000000, TTL none; unchanged for 1",
			"like  resque-lock, resque-lock-timeout, node-resque (likely: resque-lock writes integer seconds; its keys are called resque:lock:NAME)",
			"resque:lock:b: leave\n  why   it changed while it was watched: somebody uses it", "resque:lock:a: removed",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		if v := ask(t, address, "GET", "resque:lock:a"); v != nil {
			t.Errorf("resque:lock:a is still there: %s", v)
		}
		untouched(t, address, renewed)

		put(t, address, onKey{"lock:ria", someUUID, 0}, onKey{"lock:owner:two", "host:1", 0}, onKey{"lock:expire:two", "1700000000", 0},
			onKey{"own", "setnxlock:web1:47/x:" + someHex, 0}, onKey{"raw", "1700000000.5", 0})
		for _, args := range [][]string{{"redis-in-action", "lock:ria"}, {"mlanett-redis-lock", "two"}, {"setnxlock", "own"}, {"redis-py-2.9", "raw"}} {
			if out, status := command(t, address, "repair", "--lease", "1s", "--yes", "--dialect", args[0], args[1]); status != 0 {
				t.Errorf("%s: %d, %s", args, status, out)
			}
		}
		for key, want := range map[string]bool{"lock:owner:two": false, "lock:expire:two": false, "raw": false, "lock:ria": true, "own": true} {
			ttl, _ := redis.Int(ask(t, address, "TTL", key), nil)
			if there := ask(t, address, "GET", key) != nil; there && (!want || ttl < 0) {
				t.Errorf("%s: there %v, TTL %d", key, there, ttl)
			}
		}
	})
}

// What was changed before a failure is told to machines, too.
func TestHalfDoneIsTold(t *testing.T) {
	t.Parallel()
	address := startServer(t, "real")
	ask(t, address, "ACL", "SETUSER", "half", "on", ">secret", "~resque:lock:a*", "%R~*", "+@all")
	for _, args := range [][]string{{"repair", "--dialect", "resque-lock", "--lease", "1s"}, {"release", "--force", "--not-a-lock"}} {
		for json, want := range map[bool]string{false: "resque:lock:a: removed", true: `("removed": \[\n *"resque:lock:a"\n|"outcome": "removed"(?s:.*)"outcome": "planned")`} {
			put(t, address, onKey{"resque:lock:a", "1700000000", 0}, onKey{"resque:lock:b", "1700000000", 0})
			args := append(args, "--user", "half", "--yes", "resque:lock:a", "resque:lock:b", "--json="+strconv.FormatBool(json))
			out, errs, status := cli(t, append(using(address), "SETNXLOCK_PASSWORD=secret"), args...)
			if status != statusUnavailable || !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%q: %d, no %s in %s%s", args, status, want, out, errs)
			}
			if !strings.Contains(errs, `refuses on "resque:lock:b": NOPERM`) {
				t.Errorf("%q does not name the key: %s", args, errs)
			}
			untouched(t, address, onKey{"resque:lock:b", "1700000000", 0})
		}
	}
}

// A signal ends the watch with its own status, and nothing is changed.
func TestSignalsEndTheWatch(t *testing.T) {
	t.Parallel()
	address := startServer(t, "2.4")
	left := onKey{"resque:lock:a", "1700000000", 0}
	put(t, address, left)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		s := play(t, address, "repair", "--dialect", "resque-lock", "--lease", "1h", "--yes", left.key)
		until(t, "it watches", func() bool { return strings.Contains(s.errs.String(), "watching 1 keys") })
		s.signal(sig)
		s.want(exit.Signal+int(sig), "interrupted: nothing was changed")
	}
	untouched(t, address, left)
}
