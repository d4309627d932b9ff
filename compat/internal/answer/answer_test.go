package answer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// Each error reply proves its own fact; a broken connection proves nothing.
func TestAnswers(t *testing.T) {
	type facts struct{ lacks, notString, noScript, aborted, notNow, redirected, closed bool }
	for _, test := range []struct {
		err  error
		want facts
	}{
		{nil, facts{}},
		{io.EOF, facts{closed: true}},
		{fmt.Errorf("reading: %w", net.ErrClosed), facts{closed: true}},
		{errors.New("unknown command"), facts{}},
		{redis.Error("ERR unknown command 'EVAL'"), facts{lacks: true}},
		{fmt.Errorf("asking: %w", redis.Error("ERR unknown command 'EVAL'")), facts{lacks: true}},
		{redis.Error("ERR command not allowed when used memory > 'maxmemory'"), facts{}},
		{redis.Error("ERR Operation against a key holding the wrong kind of value"), facts{notString: true}},
		{redis.Error("WRONGTYPE Operation against a key"), facts{notString: true}},
		{redis.Error("ERR Key should be of string type if conditions are specified"), facts{notString: true}},
		{redis.Error("NOSCRIPT No matching script"), facts{noScript: true}},
		{redis.Error("EXECABORT Transaction discarded"), facts{aborted: true}},
		{redis.Error("MOVED 1 a:1"), facts{notNow: true, redirected: true}},
		{redis.Error("CLUSTERDOWN The cluster is down"), facts{notNow: true}},
	} {
		_, notNow := NotNow(test.err)
		got := facts{Lacks(test.err), NotString(test.err), NoScript(test.err), ExecAborted(test.err), notNow, Redirected(test.err), Closed(test.err)}
		if got != test.want {
			t.Errorf("%v: %+v, want %+v", test.err, got, test.want)
		}
	}
}

func TestDenied(t *testing.T) {
	for e, want := range map[redis.Error][3]string{
		"NOPERM this user has no permissions to run the 'watch' command": {"WATCH", "", "the user's ACL lacks this command: ACL SETUSER … +watch"},
		"NOPERM No permissions to access a key":                          {"EVAL", "app:k", "the user's ACL does not cover this key, or one that begins with it: ACL SETUSER … ~app:k*"},
		"ERR The user executing the script can't run this command or subcommand script: 1, on @user_script:1.": {
			"EVAL", "", "the user's ACL lacks a command that this script runs: docs/servers.md has each lock's line for ACL SETUSER"}, // 7.0
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 1, on @user_script:1.": {
			"EVAL", "app:k", "the user's ACL does not cover this key, or one that begins with it: ACL SETUSER … ~app:k*"},
		"ERR ACL failure in script: User app has no permissions to run the 'incr' command script: 1, on @user_script:8.": {
			"EVAL", "", "the user's ACL lacks a command that this script runs: docs/servers.md has each lock's line for ACL SETUSER"}, // 7.4, Valkey 8.0
		"ERR ACL failure in script: No permissions to access a key script: 1, on @user_script:8.":                   {"EVAL", "app:k", "the user's ACL does not cover this key, or one that begins with it: ACL SETUSER … ~app:k*"},
		"EXECABORT Transaction discarded because of: NOPERM this user has no permissions to run the 'exec' command": {"EXEC", "", "the user's ACL lacks this command: ACL SETUSER … +exec"},
		"EXECABORT Transaction discarded because of: READONLY You can't write":                                      {"EVAL", "", "this is a replica: connect to its master"},
		"OOM command not allowed":                        {"EVAL", "", "the server is over its maxmemory: it needs room, or a higher maxmemory"},
		"READONLY You can't write":                       {"EVAL", "", "this is a replica: connect to its master"},
		"ERR operation not permitted":                    {"EVAL", "", "it asks for a password: AUTH"},
		"LOADING Redis is loading the dataset in memory": {"EVAL", "", "it is loading its data: try again when it has"},
		"ERR syntax error":                               {"EVAL", "", ""},
	} {
		if command, key, remedy := Denied(e, "EVAL", "app:k"); command != want[0] || key != want[1] || remedy != want[2] {
			t.Errorf("%s: %q, %q, %q", e, command, key, remedy)
		}
	}
}

// For a pipeline, a connection returns all replies, or the last reply with the first error.
func TestDo(t *testing.T) {
	first, second := redis.Error("ERR first"), redis.Error("ERR second")
	for _, test := range []struct {
		name    string
		replies []any
		reply   any
		err     error
	}{
		{"GET", nil, nil, nil},
		{"GET", []any{"OK", int64(1)}, int64(1), nil},
		{"GET", []any{first, second, int64(1)}, int64(1), first},
		{"EXEC", []any{"OK", second}, second, second},
		{"", []any{"OK", first}, []any{"OK", first}, nil},
	} {
		if reply, err := Do(test.name, test.replies); !reflect.DeepEqual(reply, test.reply) || err != test.err {
			t.Errorf("Do %q of %v: %v, %v, want %v, %v", test.name, test.replies, reply, err, test.reply, test.err)
		}
	}
	if reply, err := Receive(first); reply != nil || err != first {
		t.Errorf("Receive of %v: %v, %v", first, reply, err)
	}
	if reply, err := Receive("OK"); reply != "OK" || err != nil {
		t.Errorf("Receive of OK: %v, %v", reply, err)
	}
}
