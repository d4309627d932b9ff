//go:build unix

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A hint's command can be pasted: it asks the same server about the same key, whatever the
// user has given.
func TestHintsRun(t *testing.T) {
	t.Parallel()
	address := startServer(t, "2.4")
	ask(t, address, "SELECT", 0)
	key := `it's a "job"; $(touch pwned) *`
	ask(t, address, "SET", "app: "+key, "somebody")
	restricted := realredis.Start(t, "--user", "app", "on", ">p w", "~app:*", "&*", "+@all")
	dir := t.TempDir()
	for _, test := range []struct {
		args []string
		want string // in what the hint's command shows
	}{
		{[]string{"run", "--redis", address, "--try", "--prefix", "app: ", key, "--", "true"}, "token   somebody"},
		{[]string{"run", "--redis=" + "redis://" + address + "/0", "--try", "--timeout", "3s", "--algorithm", "tx", "--prefix=app: ", key, "--", "true"}, "token   somebody"},
		{[]string{"--redis", address, "--algorithm", "redlock", "--timeout", "1m", "--prefix", "app: ", "run", "--try", key, "--", "true"}, "token   somebody"},
		{[]string{"run", "--redis", "redis://app:p%20w@" + restricted, "job", "--", "true"}, "NOPERM"},
		{[]string{"run", "--redis", address, "--algorithm", "set:lua", "job", "--", "true"}, "UNSAFE"},
	} {
		_, errs, status := cli(t, nil, test.args...)
		_, hint, ok := strings.Cut(errs, "hint: ")
		i := strings.Index(hint, "setnxlock ")
		if status == 0 || !ok || i < 0 {
			t.Errorf("%q: no hint with a command in it: %d, %s", test.args, status, errs)
			continue
		}
		cmd := exec.Command("sh", "-c", hint[i:])
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "SETNXLOCK_REDIS=127.0.0.1:1")
		if strings.Contains(hint, "--user app") {
			cmd.Env = append(cmd.Env, "SETNXLOCK_PASSWORD=p w")
		}
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), test.want) {
			t.Errorf("%s: no %q in %s", hint[i:], test.want, out)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("a key was run as a command: %v", left)
	}
}

func TestPasswordsAreScrubbed(t *testing.T) {
	for text, want := range map[string]string{
		"redis://:pw@h:1/2":                       "redis://:***@h:1/2",
		"redis://user:pw@h, redis://pw@g":         "redis://user:***@h, redis://***@g",
		"dial redis://u:p@w@h: refused":           "dial redis://u:***@h: refused",
		`"redis://:a:b@h" and http://x/y`:         `"redis://:***@h" and http://x/y`,
		"redis://h:6379":                          "redis://h:6379",
		"mail me@h, see http://h":                 "mail me@h, see http://h",
		"redis://:a@h1,redis://:b@h2,h3":          "redis://:***@h1,redis://:***@h2,h3",
		"m@redis://:pw@s1:26379,redis://u:q@s2:1": "m@redis://:***@s1:26379,redis://u:***@s2:1",
	} {
		if got := scrubbed(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for arg, want := range map[string]string{
		"redis://:pw@h:1/2":     "redis://h:1/2",
		"redis://user:pw@h":     "redis://h",
		"redis://pw@h":          "redis://h",
		"rediss://h":            "rediss://h",
		"unix://u:pw@/path":     "unix:///path",
		"m@redis://:pw@s1:1,s2": "m@redis://s1:1,s2",
		"u:pw@h":                "h",
		"/run/redis@2.sock":     "/run/redis@2.sock",
		"unix:///run/r@2.sock":  "unix:///run/r@2.sock",
	} {
		if got := shownList(arg); got != want {
			t.Errorf("%s: %s, want %s", arg, got, want)
		}
	}
}
