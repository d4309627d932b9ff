package session

import (
	"errors"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// A Session knows the state that the server may be in, and whether a command ran, after a pipeline or a Do.
func TestSession(t *testing.T) {
	broken := errors.New("broken")
	moved, oom := redis.Error("MOVED 1 b:1"), redis.Error("OOM command not allowed")
	for _, test := range []struct {
		name                 string
		do                   func(s *Session)
		multi, watching, ran bool
	}{
		{"a read", func(s *Session) { s.Done("GET", nil, nil) }, false, false, false},
		{"a write", func(s *Session) { s.Done("SET", "OK", nil) }, false, false, true},
		{"a write whose reply was lost", func(s *Session) { s.Done("SET", nil, broken) }, false, false, true},
		{"a write to another server's key", func(s *Session) { s.Done("SET", nil, moved) }, false, false, false},
		{"a WATCH whose reply was lost", func(s *Session) { s.Done("watch", nil, broken) }, false, true, false},
		{"a WATCH that was ended", func(s *Session) { s.Done("WATCH", "OK", nil); s.Done("UNWATCH", "OK", nil) }, false, false, false},
		{"a pipeline", func(s *Session) {
			s.Sent("WATCH")
			s.Sent("GET")
			s.Done("", []any{"OK", nil}, nil)
		}, false, true, false},
		{"reply by reply", func(s *Session) {
			s.Sent("MULTI")
			s.Sent("DEL")
			s.Received("OK", nil)
			s.Received("QUEUED", nil)
		}, true, false, false},
		{"a transaction", func(s *Session) {
			s.Sent("MULTI")
			s.Sent("DEL")
			s.Sent("EXEC")
			s.Done("", []any{"OK", "QUEUED", []any{int64(1)}}, nil)
		}, false, false, true},
		{"one that was aborted", func(s *Session) {
			s.Done("WATCH", "OK", nil)
			s.Sent("MULTI")
			s.Sent("EXEC")
			s.Done("", []any{"OK", nil}, nil)
		}, false, false, false},
		{"one that another server is to be asked", func(s *Session) {
			s.Sent("MULTI")
			s.Sent("DEL")
			s.Sent("EXEC")
			s.Done("", []any{"OK", moved, redis.Error("EXECABORT")}, nil)
		}, true, false, false},
		{"one of which half was queued", func(s *Session) {
			s.Sent("MULTI")
			s.Sent("SET")
			s.Sent("EXEC")
			s.Done("", []any{"OK", oom, []any{}}, nil)
		}, false, false, true},
		{"an EXEC that was refused", func(s *Session) { s.Sent("MULTI"); s.Sent("EXEC"); s.Done("", []any{"OK", oom}, nil) }, true, false, false},
		{"and ended", func(s *Session) {
			s.Sent("MULTI")
			s.Sent("EXEC")
			s.Done("", []any{"OK", oom}, nil)
			s.Done("DISCARD", "OK", nil)
		}, false, false, false},
		{"an EXEC whose reply was lost", func(s *Session) { s.Sent("MULTI"); s.Sent("EXEC"); s.Done("", nil, broken) }, true, false, true},
	} {
		s := new(Session)
		test.do(s)
		if s.Multi != test.multi || s.Watching != test.watching || s.Ran != test.ran {
			t.Errorf("%s: in MULTI %v, watching %v, ran %v", test.name, s.Multi, s.Watching, s.Ran)
		}
	}
}
