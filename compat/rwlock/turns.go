package rwlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Who goes first: turns of those that wait, as sync.RWMutex has them.
//
// Who waits has given its word beside the key: a name (protocol.Conn.Waiter) in a sorted set,
// scored by the moment until which the word counts, a second later. It gives its word anew as
// long as it really waits, and takes it back when it gives up, so that one who died keeps nobody
// out for longer than that second.
//
//	a writer waits    ZADD waiting    readers that have no turn don't go in
//	a reader waits    ZADD queue      it has a turn after the writer that is in
//	a writer goes     ZUNIONSTORE next 1 queue; DEL queue
//	                                  those that wait now have theirs: before the next writer,
//	                                  whoever waits
//	they come in      ZREM            it waits no more
//
// Nothing but fairness depends on it, and nothing of it is watched: whether a word arrives does
// not matter to who excludes whom. It is counted by the clients' clocks, or by the server's: where
// they are a second apart, or a waiter looks less often than twice a second
// (compat.Options.Poll), turns are missed.
const life = time.Second

// wordsTTL is the TTL of the sets of words, in seconds: none counts for longer.
const wordsTTL = 2

// word returns the end of a word given now by a waiter.
func (v view) word() time.Time { return v.now.Add(life) }

// counts reports whether a word still counts. One from further ahead is of a clock that is wrong.
func (v view) counts(until time.Time) bool {
	return until.After(v.now) && !until.After(v.now.Add(2*life))
}

// fades reports whether a waiter must give its word anew, to count at the next look too: half a second later.
func (v view) fades() bool { return v.waiter != "" && v.said.Sub(v.now) < life*3/4 }

// announced returns the end of the first waiting writer's word, if one waits.
func (v view) announced() (until time.Time, yes bool) { return v.firstWord(v.waiting) }

// theirTurn returns the end of the readers' turn before the next writer, if they have one.
func (v view) theirTurn(p Preference) (until time.Time, yes bool) {
	if p == WritersFirst {
		return time.Time{}, false
	}
	return v.firstWord(v.next)
}

func (v view) firstWord(all []entry) (until time.Time, yes bool) {
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
	return v.announced()
}

// waits gives the word of a refused waiter. Who asks once has none to give.
func (v view) waits(c *protocol.Conn, set string) {
	if v.waiter == "" {
		return
	}
	c.Exec(protocol.Cmd{"ZREMRANGEBYSCORE", set, "-inf", at(v.now)}, //nolint:errcheck
		protocol.Cmd{"ZADD", set, at(v.word()), v.waiter}, protocol.Cmd{"EXPIRE", set, wordsTTL})
}

// comesIn returns the commands by which a waiter takes its word back.
func (v view) comesIn(sets ...string) []protocol.Cmd {
	if v.said.IsZero() && v.turn.IsZero() {
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
	return []protocol.Cmd{{"ZUNIONSTORE", nextOf(key), 1, queueOf(key)}, {"EXPIRE", nextOf(key), wordsTTL}, {"DEL", queueOf(key)}}
}
