package live

import (
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/client"
)

// What happens to a replayed run outside of the key's own server: a replica that
// answers, and a clock that is set.

// stale answers a read by what the server held before its last write, as a
// replica does that lags behind.
func (w *World) stale(d *Outcome, i int, r client.Request) (client.Answer, error) {
	switch name := strings.ToUpper(r.Cmds[0][0]); name {
	case "GET", "EXISTS", "TTL", "PTTL":
	default:
		return client.Answer{}, disabled("C%d sends %s, and a replica answers reads only", i+1, name)
	}
	now := w.Server.Snapshot()
	w.Server.Restore(w.Before.At(now.Now()))
	defer w.Server.Restore(now)
	c := w.Server.Dial()
	defer c.Close()
	args := make([]any, len(r.Cmds[0])-1)
	for n, a := range r.Cmds[0][1:] {
		args[n] = a
	}
	reply, err := c.Do(r.Cmds[0][0], args...)
	return client.Answer{Replies: []any{reply}}, err
}

// jump sets the server's clock and no client's.
func (w *World) jump(by time.Duration) {
	w.Server.Advance(by)
	w.Now += by.Milliseconds()
	for i := range w.Players {
		w.Judge.Skew[i] -= by.Milliseconds()
	}
}
