package race

import (
	"strings"
	"time"
)

// What happens to a replayed run outside of the key's own server: a replica that
// answers, and a clock that is set.

// stale answers a read by what the server held before its last write, as a
// replica does that lags behind.
func (w *world) stale(d *deed, i int, r request) (answer, error) {
	switch name := strings.ToUpper(r.cmds[0][0]); name {
	case "GET", "EXISTS", "TTL", "PTTL":
	default:
		return answer{}, disabled("C%d sends %s, and a replica answers reads only", i+1, name)
	}
	now := w.s.Snapshot()
	w.s.Restore(w.before.At(now.Now()))
	defer w.s.Restore(now)
	c := w.s.Dial()
	defer c.Close()
	args := make([]any, len(r.cmds[0])-1)
	for n, a := range r.cmds[0][1:] {
		args[n] = a
	}
	reply, err := c.Do(r.cmds[0][0], args...)
	return answer{replies: []any{reply}}, err
}

// jump sets the server's clock and no client's.
func (w *world) jump(by time.Duration) {
	w.s.Advance(by)
	w.now += by.Milliseconds()
	for i := range w.players {
		w.judge.skew[i] -= by.Milliseconds()
	}
}
