package oldredis

import (
	"fmt"
	"strings"
	"sync"
)

// A Transcript records the commands that a server received and its replies, one command per line,
// so that a test can compare them as text.
//
//	SETNX k me → 1
//	EXPIRE k 10 → 1
type Transcript struct {
	mu    sync.Mutex
	lines strings.Builder
}

// Record returns a Transcript of all commands from now on. It replaces the function set by
// SetTrace.
func (s *Server) Record() *Transcript {
	t := new(Transcript)
	s.SetTrace(func(_ int, cmd []string, reply any) {
		t.mu.Lock()
		defer t.mu.Unlock()
		fmt.Fprintf(&t.lines, "%s → %s\n", strings.Join(cmd, " "), Readable(reply))
	})
	return t
}

// String returns the lines so far.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines.String()
}

// Readable writes a reply on one line, for a transcript.
func Readable(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nil"
	case []byte:
		return string(r)
	case []any:
		all := make([]string, len(r))
		for i := range r {
			all[i] = Readable(r[i])
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return fmt.Sprint(reply)
}
