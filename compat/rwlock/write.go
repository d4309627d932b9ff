package rwlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// Write is the writer's lock: it excludes readers and other writers. Two round trips to acquire,
// extend or release; a refusal that announces the writer costs two more. Its leases are in whole
// seconds, or in milliseconds with Options.Millis.
type Write struct{ Options }

// Traits say that it checks the server.
func (w Write) Traits() compat.Traits { return compat.Traits{Check: w.check} }

// Acquire makes one attempt to hold key alone until now+ttl. A refused one counts as waiting,
// and keeps new readers out, unless the preference is ReadersFirst: for ttl, or until the
// readers that are in have to be out, whichever is longer. If it has died or given up, that
// ends a second after the last of them has gone.
func (w Write) Acquire(c *compat.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: w.token(writer), Until: compat.Until(now, ttl), How: compat.Free}
	setex, err := compat.SetEx(w.Millis, key, l.Value, ttl)
	if err != nil {
		return l, err
	}
	unlock, err := w.lockInner(c, now, key)
	if err != nil {
		return l, err
	}
	defer unlock()

	v, err := w.look(c, now, key, false, key, readersOf(key))
	if err != nil {
		return l, err
	}
	_, reading := v.reading()
	if v.held || reading || w.theirTurn(v) {
		c.Unwatch()
		return l, w.refused(c, v, l, ttl)
	}
	// All readers that are left are dead, and none of them has been extended since they were
	// read: EXEC would not run.
	cmds := append([]compat.Cmd{setex, {"DEL", readersOf(key)}}, v.comeIn(key)...)
	if len(v.waiting) > 0 {
		// One writer less waits. Which of them it was does not matter.
		cmds = append(cmds, compat.Cmd{"ZREMRANGEBYRANK", waitingOf(key), 0, 0})
	}
	written, err := c.Write(key, compat.Write{Do: cmds, Exec: true, Draw: w.Fence})
	if err != nil {
		return l, err
	}
	if written.Done == nil { // somebody came in since our look
		return l, w.refused(c, v, l, ttl)
	}
	if len(v.readers) > 0 {
		l.How = compat.TakenOver
	}
	l.Fence = written.Fence
	return l, nil
}

// theirTurn reports whether the readers have a turn before the next writer.
func (w Write) theirTurn(v view) bool { return w.Prefer != WritersFirst && v.turn != compat.NoTTL }

// refused is the error for a writer that may not come in. It announces that the writer waits:
// nothing but fairness depends on that, so whether it arrives does not matter.
func (w Write) refused(c *compat.Conn, v view, l compat.Lease, ttl time.Duration) error {
	for _, e := range v.readers {
		if v.live(e) && w.mine(reader, e.token) {
			return ErrUpgrade
		}
	}
	patience := v.now.Add(ttl)
	held := &compat.HeldError{Key: l.Key}
	r, reading := v.reading()
	switch {
	case v.held:
		held = v.writes(l.Key)
	case reading:
		held.Value, held.Until = r.token, v.ours(r.until)
		if r.until.After(patience) {
			patience = r.until
		}
	case w.theirTurn(v):
		held.Until = v.ours(v.now).Add(v.turn)
	}
	if w.Prefer != ReadersFirst {
		c.Exec(compat.Cmd{"ZREMRANGEBYSCORE", waitingOf(l.Key), "-inf", at(v.now)}, //nolint:errcheck
			compat.Cmd{"ZADD", waitingOf(l.Key), at(patience.Add(time.Second)), l.Value},
			compat.Cmd{"EXPIRE", waitingOf(l.Key), int64(setTTL / time.Second)})
	}
	return held
}

// Extend moves the end of l to now+ttl. It keeps its token, whatever l.Rotate says: a SETEX
// would make the key anew if it expired unnoticed in between (before Redis 6.0.9), and readers
// that came in meanwhile have not touched it (tx/extend-resurrects).
func (w Write) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	ch := compat.Change{Key: l.Key, Value: l.Value, Draw: w.draws(l)}
	cmd, err := compat.Expire(w.Millis, l.Key, ttl)
	ch.Do = []compat.Cmd{cmd}
	l.Until = compat.Until(now, ttl)
	return l, ch, err
}

// Release deletes the key if it still holds our token. Readers that were refused meanwhile have
// their turn then, unless writers go first.
func (w Write) Release(l compat.Lease) compat.Change {
	cmds := []compat.Cmd{{"DEL", l.Key}}
	if w.Prefer != ReadersFirst {
		cmds = append(cmds, compat.Cmd{"EXPIRE", waitingOf(l.Key), turn + grace})
	}
	if w.Prefer != WritersFirst {
		// SUNIONSTORE of one set is a RENAME that does not mind if there is none.
		cmds = append(cmds, compat.Cmd{"SUNIONSTORE", turnOf(l.Key), dueOf(l.Key)},
			compat.Cmd{"EXPIRE", turnOf(l.Key), turn}, compat.Cmd{"DEL", dueOf(l.Key)})
	}
	return compat.Change{Key: l.Key, Value: l.Value, Do: cmds}
}
