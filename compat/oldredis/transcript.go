package oldredis

import (
	"fmt"
	"strings"
	"sync"
)

// A Transcript is what a server was asked and what it answered, one command a
// line: a test of a protocol reads as the protocol does.
//
//	SETNX k me → 1
//	EXPIRE k 10 → 1
type Transcript struct {
	mu    sync.Mutex
	lines strings.Builder
}

// Record returns a Transcript that grows from now on. It takes SetTrace's place.
func (s *Server) Record() *Transcript {
	t := new(Transcript)
	s.SetTrace(func(_ int, cmd []string, reply any) {
		t.mu.Lock()
		defer t.mu.Unlock()
		fmt.Fprintf(&t.lines, "%s → %s\n", strings.Join(cmd, " "), readable(reply))
	})
	return t
}

// String returns the lines so far.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines.String()
}

func readable(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nil"
	case []byte:
		return string(r)
	case []any:
		all := make([]string, len(r))
		for i := range r {
			all[i] = readable(r[i])
		}
		return "[" + strings.Join(all, " ") + "]"
	}
	return fmt.Sprint(reply)
}
