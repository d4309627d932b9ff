//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer/described"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/spf13/cobra"
)

const jsonPage = "../../docs/json.md"

// Every command with --json prints what docs/json.md says: each field, of its type, and no null.
func TestJSONIsWhatThePageSays(t *testing.T) {
	t.Parallel()
	sections := must.Get(described.Read(jsonPage))(t)
	address := realredis.Start(t)
	other := startServer(t, "2.4")
	put(t, address,
		onKey{"resque:lock:a", "1700000000", 0}, onKey{"resque:lock:b", "hello", 0}, onKey{"mix.a", someHex, 100}, onKey{"mix.b", "1700000000", 0},
		onKey{"lock:\xff", "\x04web1\x06report\x04main\x00\x00\x01\xa1\xfc\x90\xea\x6a", 100}, onKey{"lock:bytes", "\x3e\x2b\x01\x6b\x00\x00\x00\x00", 0},
		onKey{"lock:both", "1795238718:4711", 0}, onKey{"job:fence:{job}", "17", 0}, onKey{"\xff:fence:{\xff}", "17", 0})
	put(t, other, onKey{"job:fence:{job}", "17", 0})
	for _, args := range [][]string{{"own"}, {"--algorithm", "rw:read", "read"}, {"a", "b"}} {
		leave(t, address, args...)
	}
	quorum := address + "," + other + ",127.0.0.1:1"
	for _, c := range []struct {
		section, redis string
		args           []string
	}{
		{"inspect", address, []string{"inspect", "--json", "free"}},
		{"inspect", address, []string{"inspect", "--json", "own"}},
		{"inspect", address, []string{"inspect", "--json", "read"}},
		{"inspect", address, []string{"inspect", "--json", "lock:\xff"}},
		{"inspect", address, []string{"inspect", "--json", "a", "b"}},
		{"inspect", quorum, []string{"inspect", "--json", "--algorithm", "redlock", "--timeout", "1m", "own"}},
		{"fences", address, []string{"fences", "--json"}},
		{"fences", other, []string{"fences", "--json"}},
		{"survey", address, []string{"survey", "--json"}},
		{"survey", address, []string{"survey", "--json", "--match", "nothing"}},
		{"survey", address, []string{"survey", "--json", "--all"}},
		{"repair", address, []string{"repair", "--json", "--dialect", "resque-lock", "--lease", "1s", "--match", "nothing"}},
		{"repair", address, []string{"repair", "--json", "--dialect", "resque-lock", "--lease", "1s", "--match", "*"}},
		{"repair", address, []string{"repair", "--json", "--yes", "--dialect", "resque-lock", "--lease", "1s", "resque:lock:a", "resque:lock:b", "none"}},
		{"release", address, []string{"release", "--json", "--force", "--yes", "a", "b", "none"}},
		{"release", address, []string{"release", "--json", "--force", "--yes", "none"}},
		{"doctor", address, []string{"doctor", "--json"}},
		{"doctor", other, []string{"doctor", "--json", "--algorithm", "set"}},
		{"doctor --json --algorithm redlock", quorum,
			[]string{"doctor", "--json", "--algorithm", "redlock", "--timeout", "1m"}},
		{"migrate plan", "", []string{"migrate", "plan", "--from", "jedis-lock", "--json"}},
		{"migrate plan", "", []string{"migrate", "plan", "--from", "node-resque", "--json"}},
		{"migrate plan", "", []string{"migrate", "plan", "--from", "setnx-expire", "--json"}},
		{"race list", "", []string{"race", "list", "--json"}},
		{"race explore", "", []string{"race", "explore", "--algorithm", "tx:guarded", "--attempts", "1", "--json"}},
		{"race explore", "", []string{"race", "explore", "--algorithm", "broken/no-repair", "--faults", "crash", "--json"}},
		{"race explore", "", []string{"race", "explore", "--algorithm", "tx:guarded", "--max-states", "100", "--json"}},
		{"race mixing", "", []string{"race", "mixing", "--a", "ServiceStack", "--b", "theirs/retools-0.4", "--json"}},
		{"race mixing", "", []string{"race", "mixing", "--a", "redis-py-2.10", "--json"}},
	} {
		if !strings.Contains(c.section, "--json") {
			c.section += " --json"
		}
		cmd := exec.Command("setnxlock", c.args...)
		cmd.Env = append(os.Environ(), using(c.redis)...)
		out, err := cmd.Output() // an exit status says what was found
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if wrong := sections[c.section].Check(out); len(wrong) > 0 || !strings.HasPrefix(string(out), "{\n  \"schema\": 1") {
			t.Errorf("%q: %s\n%.300s", c.args, strings.Join(wrong, "; "), out)
		}
	}
	named := map[string]bool{"race show --json": true, "race replay --json": true, "race monitor --json": true} // traces, which have a page
	for name := range sections {
		named[name] = true
	}
	eachCommand(rootOf(), func(cmd *cobra.Command) {
		name := strings.TrimPrefix(cmd.CommandPath(), "setnxlock ") + " --json"
		if cmd.Flags().Lookup("json") != nil && !named[name] {
			t.Errorf("%s is not on the page", name)
		}
	})
}
