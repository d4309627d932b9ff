package main

import (
	"io"
	"strings"
	"testing"
)

// Who is asked whether a lock is to go learns what its holder will do, and that a text need not be a lock; no is no.
func TestReleaseAsks(t *testing.T) {
	t.Parallel()
	address := startReal(t)
	env := []string{"SETNXLOCK_REDIS=" + address}
	if out, status := command(t, address, "run", "--owner", "nightly", "--detach", "job", "--", "true"); status != 0 {
		t.Fatal(out)
	}
	ask(t, address, "SET", "page", "<html>")
	for _, test := range []struct {
		key, answer string
		says        []string
		left        int64
	}{
		{"job", "n", []string{"Remove it? Its holder, nightly@", "works on until its next renewal fails, and ends then", "nothing was changed"}, 1},
		{"job", "yes", []string{"job: removed"}, 0},
		{"page", "", []string{"It may be no lock: any text looks like this. Its holder is not told. It works on until it looks at the key again"}, 1},
		{"page", "y", []string{"page: removed"}, 0},
	} {
		cmd, master := startOnTerminal(t, 200, env, "release", "--force", test.key)
		if _, err := io.WriteString(master, test.answer+"\n"); err != nil {
			t.Fatal(err)
		}
		shown, _ := io.ReadAll(master) // ends in EIO
		cmd.Wait()                     //nolint:errcheck // what is left tells
		master.Close()
		for _, want := range test.says {
			if !strings.Contains(string(shown), want) {
				t.Errorf("%s, %q: no %q in\n%s", test.key, test.answer, want, shown)
			}
		}
		if n := ask(t, address, "EXISTS", test.key); n != test.left {
			t.Errorf("%s, %q: %v are left", test.key, test.answer, n)
		}
	}
}

// Before KEYS holds up an old server who sits at a terminal is asked.
func TestSurveyAsks(t *testing.T) {
	t.Parallel()
	address := startOld(t, "2.4")
	ask(t, address, "SET", "lock:job", someHex)
	env := []string{"SETNXLOCK_REDIS=" + address}
	for answer, want := range map[string]string{"n": "nothing was changed", "y": "1 of 1 keys look like locks"} {
		cmd, master := startOnTerminal(t, 200, env, "survey")
		if _, err := io.WriteString(master, answer+"\n"); err != nil {
			t.Fatal(err)
		}
		shown, _ := io.ReadAll(master) // ends in EIO
		cmd.Wait()                     //nolint:errcheck // what is shown tells
		master.Close()
		for _, text := range []string{want, "KEYS blocks it while it lists all keys (1). Go on? [y/N]"} {
			if !strings.Contains(string(shown), text) {
				t.Errorf("%s: no %q in\n%s", answer, text, shown)
			}
		}
		if answer == "n" && strings.Contains(string(shown), "lock:job") {
			t.Errorf("no is no:\n%s", shown)
		}
	}
}
