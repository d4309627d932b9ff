package rwlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Write is the writer's lock: it excludes readers and other writers. Two round
// trips to acquire, extend or release; a refusal that says that a writer waits
// costs two more. Its leases are in whole seconds, or in milliseconds with
// Options.Millis.
type Write struct{ Options }

// Acquire makes one attempt to hold key alone until now+ttl. A refused one counts
// as waiting, and keeps new readers out, unless the preference is ReadersFirst:
// for ttl, or until the readers that are in have to be out, whichever is longer.
// If it has died or given up, that ends a second after the last of them has gone.
func (w Write) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: w.token(writer), Until: compat.Until(now, ttl), How: compat.Free}
	setex, err := compat.SetEx(w.Millis, key, l.Value, ttl)
	if err != nil {
		return l, err
	}
	done, err := w.lockInner(c, now, key)
	if err != nil {
		return l, err
	}
	defer done()

	v, err := w.look(c, now, key, false, key, readersOf(key))
	if err != nil {
		return l, err
	}
	_, reading := v.reading()
	if v.held || reading || w.theirTurn(v) {
		compat.Unwatch(c)
		return l, w.refused(c, v, l, ttl)
	}
	// All readers that are left are dead, and none of them has been extended
	// since they were read: EXEC would not run.
	cmds := append([]compat.Cmd{setex, {"DEL", readersOf(key)}}, v.comeIn(key)...)
	if len(v.waiting) > 0 {
		// One writer less waits. Which of them it was does not matter.
		cmds = append(cmds, compat.Cmd{"ZREMRANGEBYRANK", waitingOf(key), 0, 0})
	}
	replies, err := compat.Exec(c, append(cmds, w.draw(l)...)...)
	if err != nil {
		return l, err
	}
	if replies == nil { // somebody came in since our look
		return l, w.refused(c, v, l, ttl)
	}
	if len(v.readers) > 0 {
		l.How = compat.TakenOver
	}
	return w.drawn(l, replies), nil
}

// theirTurn reports whether the readers have a turn before the next writer.
func (w Write) theirTurn(v view) bool { return w.Prefer != WritersFirst && v.turn != compat.NoTTL }

// refused is the error for a writer that may not come in. It leaves word that it
// waits: nothing but fairness depends on that, so whether it arrives does not
// matter.
func (w Write) refused(c redis.Conn, v view, l compat.Lease, ttl time.Duration) error {
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
		compat.Exec(c, compat.Cmd{"ZREMRANGEBYSCORE", waitingOf(l.Key), "-inf", at(v.now)}, //nolint:errcheck
			compat.Cmd{"ZADD", waitingOf(l.Key), at(patience.Add(time.Second)), l.Value},
			compat.Cmd{"EXPIRE", waitingOf(l.Key), int64(keep / time.Second)})
	}
	return held
}

// Extend sets the end of a lease that is still ours to now+ttl.
func (w Write) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	expire, err := compat.Expire(w.Millis, l.Key, ttl)
	if err != nil {
		return l, err
	}
	return compat.ExtendIfHolds(c, now, l, ttl, expire, len(w.draw(l)) > 0)
}

// Release deletes the key if it still holds our token. Readers that were
// refused meanwhile have their turn then, unless writers go first.
func (w Write) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	cmds := []compat.Cmd{{"DEL", l.Key}}
	if w.Prefer != ReadersFirst {
		cmds = append(cmds, compat.Cmd{"EXPIRE", waitingOf(l.Key), turn + grace})
	}
	if w.Prefer != WritersFirst {
		// SUNIONSTORE of one set is a RENAME that does not mind if there is none.
		cmds = append(cmds, compat.Cmd{"SUNIONSTORE", turnOf(l.Key), dueOf(l.Key)},
			compat.Cmd{"EXPIRE", turnOf(l.Key), turn}, compat.Cmd{"DEL", dueOf(l.Key)})
	}
	replies, err := compat.IfHolds(c, l, cmds...)
	if err == nil && replies[0] == int64(0) {
		return compat.ErrLost // had expired: [0] is not "released"
	}
	return err
}
