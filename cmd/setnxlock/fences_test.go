//go:build unix

package main

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/rogpeppe/go-internal/testscript"
)

// aged KEY VALUE SECONDS puts a value on a key of a real server (5.0 or later) that nobody has used for so long.
func scriptAged(ts *testscript.TestScript, _ bool, args []string) {
	c, err := redis.Dial("tcp", ts.Getenv("SETNXLOCK_REDIS"))
	ts.Check(err)
	defer c.Close()
	_, err = c.Do("SET", args[0], args[1])
	ts.Check(err)
	dump, err := c.Do("DUMP", args[0])
	ts.Check(err)
	_, err = c.Do("RESTORE", args[0], 0, dump, "REPLACE", "IDLETIME", args[2])
	ts.Check(err)
}

func TestAgo(t *testing.T) {
	for idle, want := range map[time.Duration]string{
		unknown: "the server doesn't say", 0: "less than a minute ago", 59 * time.Second: "less than a minute ago",
		time.Minute: "1 minute ago", 119 * time.Second: "1 minute ago", 59 * time.Minute: "59 minutes ago", time.Hour: "1 hour ago",
		47 * time.Hour: "1 day ago", 23 * time.Hour: "23 hours ago", 400 * 24 * time.Hour: "400 days ago",
	} {
		if got := ago(idle); got != want {
			t.Errorf("%v: %q, want %q", idle, got, want)
		}
	}
}
