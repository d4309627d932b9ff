//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// surveyJSON is what survey --json prints.
type surveyJSON struct {
	Server      string
	Keys, Found int
	Locks       []jsonKey
	Mixtures    []mixture
}

// The locks of many fleets on one server, with SCAN and without.
func TestSurveyFindsTheLocksOfManyFleets(t *testing.T) {
	now := time.Now()
	for _, version := range []string{"1.2", "2.4", "7.0"} {
		t.Run(version, func(t *testing.T) {
			address := startServer(t, version)
			ahead := fmt.Sprint(now.Unix() + 60)
			put(t, address, onKey{"jobs:a", ahead, 0}, onKey{"jobs:b", fmt.Sprint(now.Add(time.Minute).UnixMilli()), 0},
				onKey{"dead", fmt.Sprint(now.Unix() - 60), 0}, onKey{"repaired", ahead, 30}, onKey{"token", someHex, 30},
				onKey{"persistent", someHex, 0}, onKey{"mix.a", ahead, 0}, onKey{"mix.b", someHex, 30}, onKey{"user:1", `{"name": "Ada"}`, 0}, onKey{"token:fence", "17", 0})
			ask(t, address, "RPUSH", "list", "x")
			for i := range 2500 {
				ask(t, address, "SET", fmt.Sprintf("page:%d", i), "<html>")
			}
			out, status := command(t, address, "survey", "--json")
			if version != "7.0" {
				warning, rest, _ := strings.Cut(out, "\n")
				if !strings.Contains(warning, "no SCAN") {
					t.Errorf("no warning of KEYS: %.80s", out)
				}
				out = rest
			}
			var s surveyJSON
			if err := json.Unmarshal([]byte(out), &s); err != nil || status != 0 {
				t.Fatalf("%d, %v: %.300s", status, err, out)
			}
			found := map[string]jsonKey{}
			for _, l := range s.Locks {
				found[l.Key] = l
			}
			for key, want := range map[string]string{
				"jobs:a": "T-s held", "jobs:b": "T-ms held", "dead": "T-s dead", "repaired": "T-s held",
				"token": "K-py held", "persistent": "K-py persistent", "mix.a": "T-s held", "mix.b": "K-py held",
			} {
				l := found[key]
				if got := l.Kind + " " + l.Status; got != want {
					t.Errorf("%s: %s, want %s", key, got, want)
				}
				if wrong := key == "repaired" || key == "persistent"; wrong != (len(l.Wrong) > 0) {
					t.Errorf("%s: wrong: %q", key, l.Wrong)
				}
			}
			if s.Keys != 2511 || len(s.Locks) != 8 || s.Server != address {
				t.Errorf("%d keys, %d locks, %s", s.Keys, len(s.Locks), s.Server)
			}
			var prefixes []string
			for _, m := range s.Mixtures {
				prefixes = append(prefixes, m.Prefix)
			}
			if got := strings.Join(prefixes, " "); got != "jobs: mix." { // names without a prefix are no group
				t.Errorf("mixtures of %q", got)
			}

			out, status = command(t, address, "survey", "--match", "user:*")
			if status != 0 || !strings.Contains(out, "1 of 1 keys look like locks") {
				t.Errorf("--match: %d, %s", status, out)
			}
			out, status = command(t, address, "survey")
			if status != 0 || !strings.Contains(out, "jobs:* holds times in milliseconds and times in seconds: times in different units") ||
				!strings.Contains(out, "8 of 2511 keys look like locks") || !strings.Contains(out, "persistent: a token without a TTL") || strings.Contains(out, "died") {
				t.Errorf("in words: %d, %s", status, out)
			}
		})
	}
}

// Servers whose SCAN is not that of Redis are told in a sentence, and no survey goes on for ever.
func TestSurveyOfAnotherScan(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		scan   string
		status int
		says   string
	}{
		"a cursor that repeats": {"*2\r\n$1\r\n5\r\n*1\r\n$6\r\nlock:a\r\n", 0, "gives the same cursor again and would never end"},
		"a list of keys":        {"*2\r\n$1\r\na\r\n$1\r\nb\r\n", 69, "has another SCAN than Redis (it answers \"a list of another form\")"},
		"other arguments":       {"-ERR wrong number of arguments\r\n", 69, "has another SCAN than Redis (it answers \"ERR wrong number of arguments\")"},
		"one string":            {"+OK\r\n", 69, "has another SCAN than Redis"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := serve(t, answers(func(words []string) string {
				switch words[0] {
				case "SCAN":
					return test.scan
				case "GETRANGE":
					return bulk("1795230000")
				case "PTTL":
					return ":-1\r\n"
				case "WATCH", "UNWATCH", "MULTI":
					return "+OK\r\n"
				case "GET":
					return bulk("1795230000")
				}
				return ":1\r\n"
			}))
			out, errs, status := cli(t, nil, "survey", "--redis", at)
			if status != test.status || !strings.Contains(errs, test.says) || strings.Contains(errs, "redigo") {
				t.Errorf("%d: %s%s", status, out, errs)
			}
			if status == 0 && !strings.Contains(out, "lock:a ") {
				t.Errorf("what was listed is not shown: %s", out)
			}
		})
	}
}
