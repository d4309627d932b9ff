package getsetlock

import (
	"cmp"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// TwoKeys is the lock of mlanett's redis-lock, a Ruby gem: the owner is on one key, and the
// deadline, in whole seconds, on another, so that clients can compare the owner and read when a
// dead one's lease ended. Redis 2.2 and later. One round trip when both keys are free, three for a
// takeover or a refusal, two for an extension or a release.
//
//	MSETNX lock:owner:K O lock:expire:K T       1: ours
//	WATCH both; GET both                        an unexpired timestamp: UNWATCH, held
//	MULTI; MSET both; EXEC                      nil: another was faster, and nothing was written
//
// To take over, the gem deletes both keys and asks again, and a third client may come in between.
// To the gem, our takeover looks the same. The gem treats one key without the other as dead; here
// it counts as held, as everything that can't be read does.
//
// A lease's Value is the owner, which an extension does not change. Clocks must agree, as for the
// other locks here. On a cluster both keys must hash to one slot: K needs a hash tag, "{report}".
type TwoKeys struct {
	// Fence draws a fence by INCR in the transaction that takes the keys. A refused attempt may use
	// up a number.
	Fence bool

	// Margin is how long after its deadline we wait before we take over another client's lock.
	Margin time.Duration

	// Owner returns the next acquisition's owner, unique to it. nil: host-RANDOM:pid, to the gem a host:pid.
	Owner func() string
}

// Acquire makes one attempt to hold key until now+ttl. A stale now is safe, as for Classic.
func (t TwoKeys) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, until, err := t.lease(key, now, ttl)
	if err != nil {
		return l, err
	}
	owner, deadline := dialect.Pair(key)
	for try := 0; try < 2; try++ {
		w, err := c.Write(key, protocol.Write{Do: []protocol.Cmd{{"MSETNX", owner, l.Value, deadline, until}}, TakeFence: t.Fence})
		if w.Done == nil || err != nil {
			return l, cmp.Or(err, protocol.ErrAborted) // a WATCH from before: EXEC ran nothing
		}
		if w.Done[0] == int64(1) {
			l.Fence = w.Fence // the number of a refused attempt is older than that of the next client
			return l, nil
		}
		held, err := readPair(c, key, true)
		if err != nil {
			return l, err
		}
		if held.free() {
			c.Unwatch()
			continue // released since the MSETNX: ask again, once (getset/vanished-key)
		}
		if !t.dead(held, now) {
			c.Unwatch()
			return l, t.held(key, held)
		}
		w, err = c.Write(key, protocol.Write{Do: []protocol.Cmd{{"MSET", owner, l.Value, deadline, until}}, Exec: true, TakeFence: t.Fence})
		if err == nil && w.Done == nil {
			return l, t.held(key, pair{})
		}
		l.Fence, l.How = w.Fence, protocol.TakenOver
		return l, err
	}
	return l, &protocol.HeldError{Key: key}
}

// lease returns the lease for ttl from now, and the deadline to write.
func (t TwoKeys) lease(key string, now time.Time, ttl time.Duration) (l protocol.Lease, until string, err error) {
	l = protocol.Lease{Key: key, Until: protocol.Until(now, ttl), How: protocol.Free}
	if ttl < time.Second {
		return l, "", fmt.Errorf("%w: a ttl of %v is shorter than the second that this lock counts in", protocol.ErrInvalid, ttl)
	}
	if t.Owner != nil {
		l.Value = t.Owner()
	} else {
		l.Value = dialect.TokenHostPID.Write(key, now, dialect.Random())
	}
	return l, t.deadline().Format(now.Add(ttl), nil), nil
}

// Extend moves the end of l to now+ttl.
func (t TwoKeys) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	_, until, err := t.lease(l.Key, now, ttl)
	_, deadline := dialect.Pair(l.Key)
	ch := t.change(l, protocol.Cmd{"SET", deadline, until}, t.Fence && l.Fence == 0) // adopted, or its number was lost with the reply
	ch.Final = true                                                                  // it writes to what an earlier one watches
	l.Until = protocol.Until(now, ttl)
	return l, ch, err
}

// Release deletes both keys if the owner is still ours. It may come late.
func (t TwoKeys) Release(l protocol.Lease) protocol.Change {
	owner, deadline := dialect.Pair(l.Key)
	return t.change(l, protocol.Cmd{"DEL", owner, deadline}, false)
}

// Traits make the Locker check the server.
func (t TwoKeys) Traits() protocol.Traits { return protocol.Traits{Check: t.check} }

// check returns ErrUnsafeServer without WATCH or MULTI. The fleet's own clients need both, too.
func (t TwoKeys) check(c *protocol.Conn, key string) error {
	const use = "a server that has both, as the other clients of these keys do"
	err := ability.Check(c, key, false, ability.Need{Ability: ability.Multi, Use: use}, ability.Need{Ability: ability.Watch, Use: use})
	if err == nil { // an extension sends SET
		scratch := protocol.Aux(key, "check:"+protocol.NewToken())
		_, err = c.Exec(protocol.Cmd{"SET", scratch, "x"}, protocol.Cmd{"DEL", scratch})
	}
	return err
}
