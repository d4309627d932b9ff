package rwlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Which waiter goes first: turns, as sync.RWMutex has them.
//
// A waiter has a ticket beside the key: its name (protocol.Conn.Waiter) in a sorted set, scored by
// the end of the ticket, a second later. The waiter renews its ticket while it waits, and removes it
// when it gives up, so a dead waiter keeps others out for a second at most.
//
//	a writer waits    ZADD waiting    readers that have no turn don't go in
//	a reader waits    ZADD queue      it has a turn after the writer that is in
//	a writer goes     ZUNIONSTORE next 1 queue; DEL queue
//	                                  the waiting readers have their turn, before the next writer
//	a waiter comes in ZREM            its ticket is gone
//
// Only fairness depends on tickets: exclusion does not, so no step watches them. Tickets end by the
// clients' clocks, or by the server's. Clients miss turns if their clocks are a second apart, or if a
// waiter looks less often than twice a second (compat.Options.Poll).
const life = time.Second

// ticketsTTL is the TTL of the sets of tickets, in seconds: no ticket is valid for longer.
const ticketsTTL = 2

// ticketEnd returns the end of a ticket that a waiter leaves now.
func (v view) ticketEnd() time.Time { return v.now.Add(life) }

// counts reports whether a ticket is still valid. An end further ahead comes from a wrong clock.
func (v view) counts(until time.Time) bool {
	return until.After(v.now) && !until.After(v.now.Add(2*life))
}

// mustRenew reports whether a waiter must renew its ticket, to be counted at the next look too: half a second later.
func (v view) mustRenew() bool { return v.waiter != "" && v.ticket.Sub(v.now) < life*3/4 }

// waitingWriter returns the end of the first waiting writer's ticket, if a writer waits.
func (v view) waitingWriter() (until time.Time, yes bool) { return v.firstTicket(v.waiting) }

// theirTurn returns the end of the readers' turn before the next writer, if they have one.
func (v view) theirTurn(p Preference) (until time.Time, yes bool) {
	if p == WritersFirst {
		return time.Time{}, false
	}
	return v.firstTicket(v.next)
}

func (v view) firstTicket(all []entry) (until time.Time, yes bool) {
	if len(all) == 0 || !v.counts(all[0].until) {
		return time.Time{}, false
	}
	return v.ours(all[0].until), true
}

// shutOut returns how long a reader must give way to a waiting writer, if it must.
func (v view) shutOut(p Preference) (until time.Time, yes bool) {
	if p == ReadersFirst || p == Fair && v.counts(v.turn) {
		return time.Time{}, false
	}
	return v.waitingWriter()
}

// leaveTicket leaves or renews the ticket of a refused waiter. A TryLock leaves none.
func (v view) leaveTicket(c *protocol.Conn, set string) {
	if v.waiter == "" {
		return
	}
	c.Exec(protocol.Cmd{"ZREMRANGEBYSCORE", set, "-inf", at(v.now)}, //nolint:errcheck
		protocol.Cmd{"ZADD", set, at(v.ticketEnd()), v.waiter}, protocol.Cmd{"EXPIRE", set, ticketsTTL})
}

// removeTickets returns the commands that remove the tickets of a waiter that comes in.
func (v view) removeTickets(sets ...string) []protocol.Cmd {
	if v.ticket.IsZero() && v.turn.IsZero() {
		return nil
	}
	return leave(v.waiter, sets...)
}

func leave(waiter string, sets ...string) []protocol.Cmd {
	cmds := make([]protocol.Cmd, len(sets))
	for i, set := range sets {
		cmds[i] = protocol.Cmd{"ZREM", set, waiter}
	}
	return cmds
}

// passesTurn returns the commands of a leaving writer: they give the waiting readers their turn.
func (o Options) passesTurn(key string) []protocol.Cmd {
	if o.Prefer == WritersFirst {
		return nil
	}
	return []protocol.Cmd{{"ZUNIONSTORE", nextOf(key), 1, queueOf(key)}, {"EXPIRE", nextOf(key), ticketsTTL}, {"DEL", queueOf(key)}}
}
