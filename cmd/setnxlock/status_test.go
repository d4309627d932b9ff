//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// Each row of the table in docs/command.md, on a real server.
func TestExitStatusesAreWhatThePageSays(t *testing.T) {
	t.Parallel()
	server := realredis.Run(t)
	at := server.Addr
	noexec := t.TempDir() + "/data"
	must.Do(t, os.WriteFile(noexec, nil, 0o600))
	type rows = map[string][]string // the command line, by what it is an example of
	script := func(flags, script string) []string {
		return append(append([]string{"run"}, strings.Fields(flags)...), "job", "--", "sh", "-c", script)
	}
	del := "setnxlock release job --force --yes >&2"
	examples := map[string]rows{
		"0": {"success": script("", "exit 0"), "detached": {"run", "--detach", "kept", "--", "true"}},
		"COMMAND's": {
			"3":   script("", "exit 3"),
			"75":  script("--busy-status 9", "exit 75"),
			"255": script("--detach", "exit 255"), // and nothing is detached
		},
		"64": {
			"no command":    {"run", "job"},
			"two ways":      script("--try --wait 1s", "exit 0"),
			"no such lock":  script("--algorithm nix", "exit 0"),
			"not a URL":     script("--redis http://h", "exit 0"),
			"a short TTL":   script("--ttl 1us", "exit 0"),
			"no handle":     {"run", "--adopt", "nix", "--", "true"},
			"unknown flag":  script("--nix", "exit 0"),
			"no such ca":    script("--tls-ca /nonesuch", "exit 0"),
			"empty key":     {"run", "", "--", "true"},
			"several of rw": {"run", "--algorithm", "rw:read", "a", "b", "--", "true"},
		},
		"65": {
			"a list":           {"run", "list", "--", "true"},
			"a list, one try":  {"run", "--try", "list", "--", "true"},
			"a list, in time":  {"run", "--wait", "1m", "list", "--", "true"},
			"another lock's":   {"run", "--algorithm", "tx", "list", "--", "true"},
			"a list of a few":  {"run", "job", "list", "--", "true"},
			"a list as getset": {"run", "--algorithm", "getset", "list", "--", "true"},
		},
		"69": {
			"no server":      script("--redis 127.0.0.1:1", "exit 0"),
			"none in time":   script("--redis 127.0.0.1:1 --wait 50ms", "exit 0"),
			"not safe there": script("--redis "+startServer(t, "2.0")+" --algorithm tx", "exit 0"),
			"wrong password": script("--redis redis://:x@"+at, "exit 0"),
		},
		"75": {
			"one try":  {"run", "--try", "held", "--", "true"},
			"in time":  {"run", "--wait", "ENOUGH", "held", "--", "true"},
			"inside":   script("", "exec setnxlock run --try job -- true"),
			"a quorum": {"run", "--algorithm", "redlock", "--timeout", "1m", "--try", "held", "--", "true"},
		},
		"76": {
			"while it runs":        script("--ttl 1s", `trap "exit 0" TERM; `+del+`; while :; do sleep 0.02; done`),
			"while it runs, 3":     script("--ttl 1s", `trap "exit 3" TERM; `+del+`; while :; do sleep 0.02; done`),
			"at the release":       script("", del),
			"at the release, 3":    script("", del+"; exit 3"),
			"of another's":         script("", del+"; redis-cli -p "+strings.TrimPrefix(at, "127.0.0.1:")+" SET job other PX 300 >&2"),
			"by itself":            script("", `setnxlock release --token "$SETNXLOCK_HANDLE"`),
			"at the detachment":    script("--detach", del),
			"detached, a reader's": script("--detach --algorithm rw:read", "redis-cli -p "+strings.TrimPrefix(at, "127.0.0.1:")+" FLUSHALL >&2"),
			"getset":               script("--algorithm getset", del),
			"a quorum":             script("--algorithm redlock --timeout 1m", del),
			"several":              {"run", "a", "b", "--", "sh", "-c", "setnxlock release a --force --yes >&2"},
			"adopted too late":     {"sh", "-c", `h=$(setnxlock run --detach gone -- sh -c 'echo "$SETNXLOCK_HANDLE"'); setnxlock release --token "$h"; exec setnxlock run --adopt "$h" -- touch never`},
		},
		"126": {"not executable": {"run", "job", "--", noexec}, "a folder": {"run", "job", "--", os.TempDir()}},
		"127": {"nonesuch": {"run", "job", "--", "nonesuch"}},
		"128+N": {
			"by TERM": script("", "kill -TERM $$"),
			"by KILL": script("", "kill -KILL $$"),
		},
	}

	page := must.Get(os.ReadFile("../../docs/command.md"))(t)
	_, table, _ := strings.Cut(string(page), "## Exit statuses")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := regexp.MustCompile(`(?m)^\| ([^|]+) \| `).FindAllStringSubmatch(table, -1)
	if len(documented) < 9 {
		t.Fatalf("a table of %d rows", len(documented))
	}
	for _, row := range documented {
		status := row[1]
		if status == "status" {
			continue
		}
		list, ok := examples[status]
		delete(examples, status)
		if !ok {
			t.Errorf("no example of the documented status %s", status)
		}
		for name, args := range list {
			t.Run(status+"/"+name, func(t *testing.T) {
				ask(t, at, "FLUSHALL")
				ask(t, at, "RPUSH", "list", "x")
				ask(t, at, "SET", "held", "somebody")
				want := status
				switch status {
				case "COMMAND's":
					want = name
				case "128+N":
					want = fmt.Sprint(128 + map[string]int{"by TERM": int(syscall.SIGTERM), "by KILL": int(syscall.SIGKILL)}[name])
				}
				if args[0] != "sh" {
					args = append([]string{"setnxlock"}, args...)
				}
				var out, errs string
				got := enough(args, func(args []string) (status int) {
					cmd := exec.Command(args[0], args[1:]...)
					cmd.Env = append(os.Environ(), using(at)...)
					out, errs, status = finish(t, cmd)
					return status
				})
				if fmt.Sprint(got) != want {
					t.Errorf("%q exits %d, want %s: %s%s", args, got, want, out, errs)
				}
				if status != "0" && status != "COMMAND's" && status != "128+N" && errs == "" {
					t.Error("it does not say why")
				}
			})
		}
	}
	for status := range examples {
		t.Errorf("status %s is not documented", status)
	}

	// A release that can't reach the server leaves the command's status.
	s := puppets(t, at)
	server.Kill()
	s.exits(5, 5, "could not be released (it ends by itself at ")
}
