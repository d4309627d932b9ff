//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// poison is what no terminal may be told: it ends a line, goes back in it, colours, sets a title, turns text around.
const poison = "\x1b[31m\x1b]0;t\x07\u202e\u009b2J\x7f\x80\u2028"

// tame reports that a terminal, and a reader of it, is told the text and nothing else.
func tame(text string) bool {
	wild := func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }
	return utf8.ValidString(text) && !strings.ContainsFunc(text, wild)
}

// poisoned answers everything so: an error, or a role, a value and a name with poison in them.
func poisoned(t *testing.T, how string) string {
	return serve(t, answers(func(words []string) string {
		switch name := strings.ToUpper(words[0]); {
		case how == "status":
			return "+" + poison + "\r\n"
		case how == "words":
			return "-" + poison + " x\r\n"
		case how == "bulk" && name == "INFO":
			info := ""
			for _, field := range []string{
				"redis_version:2.8.24", "role:master", "master_host:", "redis_mode:", "maxmemory_policy:", "run_id:",
			} {
				info += field + poison + "\r\n"
			}
			return bulk(info)
		case how == "bulk":
			return bulk("\r" + poison + "\nsetnxlock: the lock is free\n")
		case how == "list":
			return "*2\r\n" + bulk(poison) + "*1\r\n" + bulk("\n"+poison)
		}
		return "-ERR no " + poison + "\r\n"
	}))
}

// Whatever a server answers, and whatever stands in keys, values and arguments, people and machines are told it
// without anything that a terminal obeys; and the lines are ours.
func TestNothingFromOutsideReachesTheTerminal(t *testing.T) {
	t.Parallel()
	real := realredis.Start(t)
	for key, value := range map[string]string{
		"k\n" + poison: "v\n" + poison, "lock:" + poison: "1700000000", "lock:plain": "snx:" + poison,
		"lock:\x00" + poison: "\x00" + poison, "own" + poison: "setnxlock:%1B[31m:" + someHex,
	} {
		ask(t, real, "SET", key, value)
	}
	ask(t, real, "HSET", "lock:hash"+poison, "field"+poison, "1")
	ask(t, real, "ZADD", "rw"+poison+":readers:{rw"+poison+"}", "9999999999999", "r:"+poison)
	servers := map[string]string{"real": real}
	for _, how := range []string{"error", "status", "words", "bulk", "list"} {
		servers[how] = poisoned(t, how)
	}
	k := "k\n" + poison
	forAll := [][]string{
		{"run", "--try", k, "--", "true"}, {"run", "--try", k, "other" + poison, "--", "true"},
		{"run", "-v", "--wait", "300ms", k, "--", "true"}, {"run", "--try", "--algorithm", "getset", k, "--", "true"},
		{"run", "--try", "--algorithm", "rw:read", "rw" + poison, "--", "true"},
		{"run", "--try", "--cluster", k, "--", "true"},
		{"run", "--try", "--sentinel", "m" + poison + "@AT", k, "--", "true"},
		{"run", "--try", "--redis", "AT,AT,AT", "--algorithm", "redlock", k, "--", "true"}, {"inspect", k},
		{"inspect", "lock:plain"}, {"inspect", "--json", k}, {"inspect", k, "lock:" + poison},
		{"inspect", "rw" + poison}, {"inspect", "--algorithm", "getset", k}, {"inspect", "lock:hash" + poison},
		{"survey"}, {"survey", "--all"}, {"survey", "--all", "--json"}, {"survey", "--match", poison + "*"},
		{"release", k, "--token", "x" + poison}, {"release", k, "--force"},
		{"repair", k, "--dialect", "redis-py-2.9", "--dry-run"},
		{"repair", "--match", "*", "--dialect", "redis-py-2.9", "--dry-run", "--json", "--lease", "1s"},
		{"repair", "--match", "*", "--dialect", "seconds", "--lease", "1s", "--yes"}, {"inspect", "own" + poison}, {"doctor"},
		{"doctor", "-v"}, {"doctor", "--json"}, {"doctor", "--algorithm", "tx"}, {"doctor", "--cluster"},
		{"doctor", "--redis", "AT,AT,AT", "--algorithm", "redlock"},
	}
	once := [][]string{
		{poison}, {"--" + poison}, {"run", "--ttl", poison, "k"}, {"run", "k", "--", "no" + poison},
		{"run", "k", "--", "no such " + poison}, {"run", k},
		{"run", "--metrics-file", "/nonesuch/" + poison, "k", "--", "true"}, {"run", "--adopt", poison, "--", "true"},
		{"--algorithm", poison, "inspect", "k"}, {"--dialect", poison, "inspect", "k"},
		{"--password-file", "/" + poison, "inspect", "k"},
		{"--tls-ca", poison, "--redis", "rediss://h", "inspect", "k"}, {"--redis", "h" + poison, "inspect", "k"},
		{"--redis", "/nonesuch" + poison, "inspect", "k"}, {"--redis", "redis://h/" + poison, "inspect", "k"},
		{"--sentinel", poison + "@h" + poison, "inspect", "k"}, {"migrate", "plan", "--from", poison},
		{"race", poison}, {"race", "play", poison}, {"race", "show", poison},
		{"race", "replay", "/nonesuch" + poison}, {"race", "mixing", "--a", poison, "--b", poison},
		{"race", "explore", "--algorithm", poison},
	}
	try := func(t *testing.T, server string, args []string) {
		given := []string{"--timeout", "300ms"}
		for _, arg := range args {
			given = append(given, strings.ReplaceAll(arg, "AT", servers[server]))
		}
		if args[0] == "race" {
			given = given[2:]
		}
		out, errs, _ := cli(t, using(servers[server]), given...)
		if !tame(out) || !tame(errs) {
			t.Errorf("%s, %q:\n%+q\n%+q", server, args, out, errs)
		}
		for line := range strings.Lines(out + errs) {
			if strings.Contains(line, "setnxlock: the lock is free") && !strings.Contains(line, `\n`) {
				t.Errorf("%s, %q: a line that is not ours: %s", server, args, line)
			}
		}
		if strings.Contains(strings.Join(args, " "), "--json") && out != "" && !json.Valid([]byte(out)) {
			t.Errorf("%s, %q: not JSON: %s", server, args, out)
		}
	}
	for server := range servers {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			for _, args := range forAll {
				try(t, server, args)
			}
		})
	}
	for _, args := range once {
		try(t, "real", args)
	}
}

// What a hint has in quotes a shell reads back as the same word.
func TestShellsReadBackWhatIsQuoted(t *testing.T) {
	words := []string{
		"", "plain", "a b", "it's", `"`, "$(touch x)", "`x`", "a\\b", "-x", "~", "*", "a;b", "a\nb", "a\n", "\n", "\t", "key\r",
		poison, "%s%d", "100%\x1b", "\x1b'\\", "ключ", "=x", "a=b", "!1", "#c", "{a,b}", "\xff\xfe", "é\u0301",
	}
	for _, word := range words {
		if !tame(quoted(word)) || strings.Contains(quoted(word), "\n") {
			t.Errorf("%q: %q", word, quoted(word))
		}
	}
	for _, shell := range []string{"bash", "sh"} {
		path := must.Get(exec.LookPath(shell))(t)
		for _, word := range words {
			out := filepath.Join(t.TempDir(), "out")
			if b, err := exec.Command(path, "-c", "printf %s. "+quoted(word)+" > "+out).CombinedOutput(); err != nil {
				t.Fatalf("%q: %s, %v", word, b, err)
			}
			b, _ := os.ReadFile(out)
			if shell == "sh" && strings.HasSuffix(word, "\n") {
				continue // before POSIX of 2024 it has no word for that
			}
			if string(b) != word+"." {
				t.Errorf("%s reads %s back as %q, not %q", shell, quoted(word), b, word)
			}
		}
	}
}

// A value of any size is shown by its beginning and its length, and inspect does not read all of it.
func TestLargeValuesAreCut(t *testing.T) {
	t.Parallel()
	const size = 3_000_001
	for _, version := range []string{"7.0", "2.4", "2.2"} { // with GETRANGE, and without
		address := startServer(t, version)
		ask(t, address, "SETRANGE", "big", size-1, "x")
		ask(t, address, "APPEND", "small", strings.Repeat("s", 300))
		for _, args := range [][]string{
			{"inspect", "big"}, {"inspect", "--json", "big"}, {"inspect", "--algorithm", "getset", "big"},
			{"inspect", "big", "small"}, {"inspect", "--json", "big", "small"}, {"survey", "--all"},
			{"survey", "--all", "--json"}, {"release", "big", "--force", "--yes"}, {"release", "big", "--token", "x"},
			{"repair", "big", "--dialect", "redis-py-2.9", "--dry-run", "--lease", "1s"},
			{"repair", "big", "--dialect", "redis-py-2.9", "--dry-run", "--json", "--lease", "1s"},
			{"run", "--try", "big", "--", "true"}, {"run", "-v", "--wait", "300ms", "big", "--", "true"},
			{"run", "--try", "--algorithm", "getset", "big", "--", "true"},
			{"run", "--try", "big", "small", "--", "true"},
			{"run", "--try", "--redis", strings.Repeat(address+",", 2) + address, "--algorithm", "redlock", "big", "--", "true"},
			{"run", "--try", "--algorithm", "rw:write", "big", "--", "true"},
		} {
			out, errs, status := cli(t, using(address), args...)
			if len(out+errs) > 16<<10 {
				t.Errorf("%s, %q: %d: %d bytes: %.300s", version, args, status, len(out+errs), out+errs)
			}
			if args[0] == "inspect" && !strings.Contains(out, fmt.Sprint(size)) {
				t.Errorf("%s, %q: %d: no length: %.1000s%.300s", version, args, status, out, errs)
			}
		}
		if n := ask(t, address, "STRLEN", "big"); n != int64(size) {
			t.Errorf("%s: %v bytes are left", version, n)
		}
	}
}
