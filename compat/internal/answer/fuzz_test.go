package answer_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// FuzzAnswer reads arbitrary error replies and INFO replies without a panic. No error is two things that
// exclude each other, Denied names no key without a remedy, and a field of INFO contains no line break.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"", "ERR", "NOPERM this user has no permissions to run the 'set' command", "NOPERM No permissions to access a key", "MOVED 1 h:1", "ASK", "ASK 1", "CLUSTERDOWN",
		"NOSCRIPT No matching script. Please use EVAL.", "EXECABORT", "WRONGTYPE", "ERR unknown command 'x'", "OOM command not allowed when used memory > 'maxmemory'.",
		"ERR Error running script: @user_script:1: The user executing the script can't run this command", "NOPERM '", "redis_version:2.8.10\r\n", "redis_version:", "a:b\nredis_version:99999999999999999999.1.1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e := redis.Error(s)
		if answer.NoScript(e) && answer.ExecAborted(e) || answer.Redirected(e) && answer.NotString(e) && strings.HasPrefix(s, "WRONGTYPE") {
			t.Errorf("%q is two things", s)
		}
		if _, not := answer.NotNow(errors.New(s)); not || answer.Lacks(errors.New(s)) || answer.NotString(errors.New(s)) {
			t.Errorf("%q, which is no server's answer, proves something", s)
		}
		command, key, remedy := answer.Denied(e, "SET", "lock")
		if remedy == "" && key != "" {
			t.Errorf("%q: the key %q is the reason for nothing (%q)", s, key, command)
		}
		answer.Lacks(e)
		if v := answer.Info(s, "redis_version"); strings.ContainsAny(v, "\r\n") {
			t.Errorf("%q: version %q", s, v)
		}
	})
}
