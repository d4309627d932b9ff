package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"golang.org/x/term"
)

// batch is how many keys are looked at in one round trip.
const batch = 250

// eachKeys lists the keys in batches: by SCAN, or by KEYS where there is none and the user lets it. A server
// that has SCAN has all that server can use.
func (a *app) eachKeys(c redis.Conn, match string, yes bool, server *verdict.Server, f func([]string) error) error {
	if match == "" {
		match = "*"
	}
	pattern := globbed(a.prefix) + match
	conn := protocol.NewConn(c)
	given := map[string]struct{}{} // cursors
	for cursor := "0"; ; {
		var keys []string
		reply, err := redis.Values(c.Do("SCAN", cursor, "MATCH", pattern, "COUNT", batch))
		if err == nil {
			_, err = redis.Scan(reply, &cursor, &keys)
		}
		var refused redis.Error
		switch {
		case err == nil:
		case errors.Is(conn.Lacks(err, "it has no SCAN", "KEYS"), protocol.ErrUnsafeServer) && a.sentinelHere(err):
			return a.notASentinel()
		case errors.Is(conn.Lacks(err, "it has no SCAN", "KEYS"), protocol.ErrUnsafeServer):
			return a.allKeys(c, conn, pattern, yes, f)
		case c.Err() != nil, errors.As(err, &refused) && denial(refused) != nil:
			return conn.Denied(pattern, err)
		default:
			return otherScan(err)
		}
		server.Millis, server.Part = true, true
		if err := f(keys); err != nil {
			return err
		}
		if cursor == "0" {
			return nil
		}
		if _, again := given[cursor]; again {
			a.say("this server's SCAN gives the same cursor again and would never end: keys may be missing here")
			return nil
		}
		given[cursor] = struct{}{}
	}
}

// otherScan ends a listing on a server with a SCAN unlike Redis's.
func otherScan(answer error) error {
	text := "a list of another form"
	var refused redis.Error
	if errors.As(answer, &refused) {
		text = refused.Error()
	}
	if len(text) > 60 {
		text = text[:60]
	}
	return exit.Because(statusUnavailable, fmt.Errorf("this server has another SCAN than Redis (it answers %q): its keys can't be listed", text),
		"name the keys: setnxlock inspect KEY")
}

// many keys are more than a server lists by KEYS in an instant.
const many = 10_000

// allKeys lists the keys at once by KEYS, for servers without SCAN.
func (a *app) allKeys(c redis.Conn, conn *protocol.Conn, pattern string, yes bool, f func([]string) error) error {
	if err := a.mayBlock(c, yes); err != nil {
		return err
	}
	reply, err := c.Do("KEYS", pattern)
	if err != nil {
		return conn.Denied(pattern, err)
	}
	keys, err := redis.Strings(reply, nil)
	if line, ok := reply.([]byte); ok { // before 1.3: one line, blanks between
		keys, err = strings.Fields(string(line)), nil
	}
	if err != nil {
		return err
	}
	for part := range slices.Chunk(keys, batch) {
		if err := f(part); err != nil {
			return err
		}
	}
	return nil
}

// mayBlock asks whether KEYS may hold up all other clients of the server. Where nobody can be asked it
// may, if the keys are few.
func (a *app) mayBlock(c redis.Conn, yes bool) error {
	size, err := redis.Int(c.Do("DBSIZE"))
	long, count := "", "an unknown number of"
	if err == nil {
		count = fmt.Sprint(size)
		if d := (time.Duration(size) * time.Second / 2_000_000).Round(100 * time.Millisecond); d > 0 {
			long = fmt.Sprintf(", about %v", d) // half a second for a million
		}
	}
	const lacks = "this server has no SCAN (it came with 2.8): KEYS blocks it while it lists all keys"
	asked := term.IsTerminal(int(a.in.Fd()))
	switch {
	case yes:
		return nil
	case asked:
		return a.confirm(fmt.Sprintf("%s (%s%s). Go on?", lacks, count, long))
	case err != nil || size >= many:
		return exit.Because(exit.Wrong, fmt.Errorf("this server has no SCAN (it came with 2.8), and KEYS would block it while it lists %s keys%s", count, long),
			"--yes lists them nevertheless, while the server stands still")
	}
	a.say(lacks)
	return nil
}

// globbed returns a pattern that matches text alone.
func globbed(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
