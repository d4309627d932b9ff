package rwlock

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Inspect reads all holders and waiters of the key: one round trip. The key also counts as held while a reader must
// give way to a waiting writer.
func (r Read) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	v, err := r.look(c, now, key, queueOf(key), true)
	if err != nil {
		return protocol.State{Key: key, TTL: protocol.NoTTL}, err
	}
	s := r.state(v, key)
	until, shut := v.shutOut(r.Prefer)
	s.Open = !v.held && !shut || r.Prefer != WritersFirst && v.mustRenew() // to join the readers, or to renew its ticket
	if shut && s.Status != protocol.StatusHeld && s.Status != protocol.StatusPersistent {
		s.Status, s.Until = protocol.StatusHeld, until
	}
	return s, nil
}

// Inspect reads all holders and waiters of the key: one round trip. The key also counts as held while readers have
// their turn.
func (w Write) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	v, err := w.look(c, now, key, waitingOf(key), true)
	if err != nil {
		return protocol.State{Key: key, TTL: protocol.NoTTL}, err
	}
	s := w.state(v, key)
	s.Open = w.Prefer != ReadersFirst && v.mustRenew() // to renew its ticket
	until, yes := v.theirTurn(w.Prefer)
	if yes && s.Status != protocol.StatusHeld && s.Status != protocol.StatusPersistent {
		s.Status, s.Until, s.Format = protocol.StatusHeld, until, "the readers' turn"+waiters(v)
	}
	return s, nil
}

// state returns the key's state, as everybody sees it.
func (o Options) state(v view, key string) protocol.State {
	s := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL, Format: waiters(v)}
	if len(s.Format) > 0 {
		s.Format = s.Format[len(", "):]
	}
	living := 0
	for _, e := range v.readers {
		s.Holders = append(s.Holders, protocol.Holder{Value: e.name, Until: v.ours(e.until)})
		if v.live(e) {
			living++
		}
	}
	if len(s.Holders) > 0 {
		s.Value, s.Until = s.Holders[0].Value, s.Holders[0].Until
		s.Status, s.Clock = protocol.StatusDead, "clients"
		if o.ServerClock {
			s.Clock = "server"
		}
		s.Format = count(living, "reader") + waiters(v)
	}
	if living > 0 {
		s.Status = protocol.StatusHeld
	}
	if !v.held {
		return s
	}
	s.Status, s.Value, s.Format, s.Clock, s.TTL = protocol.StatusHeld, v.writer, "writer"+waiters(v), "server", v.ttl
	s.Until = time.Time{}
	if v.ttl == protocol.NoTTL {
		s.Status = protocol.StatusPersistent
	} else {
		s.Until = v.ours(v.now).Add(v.ttl)
	}
	s.Holders = append([]protocol.Holder{{Value: v.writer, Until: s.Until}}, s.Holders...)
	return s
}

// waiters counts the waiting writers, in words for the end of a sentence.
func waiters(v view) string {
	n := 0
	for _, e := range v.waiting {
		if v.counts(e.until) {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return ", " + count(n, "writer") + " waiting"
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
