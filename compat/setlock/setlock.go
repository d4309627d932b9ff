// Package setlock is the lock of SET: one command puts a random token and a TTL on the key, and
// only the holder of the token removes it. It needs Redis 2.6.12; [Script], which does without SET
// … NX PX, needs 2.6 with scripts.
//
//	acquire   SET key token NX PX ttl      OK: ours; nil: held
//	extend    on the condition that the key holds our token: PEXPIRE key ttl
//	release   on the condition that the key holds our token: DEL key
//
// The variants differ in how they make sure that the condition still holds when the command runs.
// Each has its own page:
//
//	IfEq      the server compares by itself: one round trip; Redis 8.4, Valkey 9.0
//	Lua       a script compares and deletes: one round trip
//	Watched   WATCH, GET, MULTI, DEL, EXEC: two, where scripts are forbidden
//	Script    as Lua, and a script acquires too: 2.6.0–2.6.11
//
// All write the same bytes on the same key as txlock does, so they exclude each other, txlock's
// clients, and every other client that takes a token lock with SET … NX PX or with SETNX and
// EXPIRE. Clocks need not agree: only the server's decides. Like every lock with a lease, they
// can't stop a holder that pauses past the end of its lease and then writes (any/paused-holder):
// the fence is for that.
//
// Before Redis 5.0 the AOF and the replicas get SET … PX and the scripts as they were sent. After a
// restart from the AOF each lease begins again, so a dead holder's lock may last for one more ttl;
// none ends early.
//
// Sources: the page of SET ("a simple locking pattern"), the Redlock page
// ("correct implementation with a single instance"); redis-py's Lock since 3.0.
package setlock

import (
	"errors"
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/session"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Options are the same for each variant. The zero value works.
type Options struct {
	// Fence draws a fence by INCR in the transaction or script that takes the key. It grows with
	// every acquisition.
	Fence bool

	// Token returns the value of the next acquisition, unique to it. nil: [protocol.NewToken].
	Token func() string
}

// lease returns the lease to ask for, and its ttl in milliseconds, rounded up.
func (o Options) lease(now time.Time, key string, ttl time.Duration) (protocol.Lease, int64, error) {
	ms, err := protocol.Whole(ttl, time.Millisecond)
	return protocol.Lease{Key: key, Value: o.token(), Until: protocol.Until(now, ttl), How: protocol.Free}, ms, err
}

// got reads the answers to a SET … NX PX, with a fence in MULTI. A refused attempt then skips a number.
func got(l protocol.Lease, w protocol.Written, err error) (protocol.Lease, error) {
	switch {
	case err != nil:
		return l, err
	case w.Done == nil: // nothing was watched; but if EXEC says so, it did not run
		return l, protocol.ErrAborted
	case w.Done[0] == nil && w.Reading.Watches():
		return l, w.Reading.Refused(l.Key)
	case w.Done[0] == nil:
		return l, &protocol.HeldError{Key: l.Key}
	case w.Done[0] != "OK":
		return l, session.Unfit("SET … NX", w.Done[0])
	}
	l.Fence = w.Fence
	return l, nil
}

// extend returns the longer lease, with a new token if rotate is set, and the change for it. A lease without a fence
// draws one: it was adopted, or its number was lost with the reply.
func (o Options) extend(by protocol.Condition, now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	ch := protocol.Change{If: by, Key: l.Key, Value: l.Value, TTL: ttl, TakeFence: o.draws(l)}
	_, err := protocol.Whole(ttl, time.Millisecond)
	if rotate {
		l.Value = o.token()
	}
	ch.Next, l.Until = l.Value, protocol.Until(now, ttl)
	return l, ch, err
}

// release returns the change that removes the key.
func release(by protocol.Condition, l protocol.Lease) protocol.Change {
	return protocol.Change{If: by, Key: l.Key, Value: l.Value}
}

func (o Options) token() string {
	if o.Token != nil {
		return o.Token()
	}
	return protocol.NewToken()
}

// draws reports whether l lacks the fence it ought to have: it is being acquired, was adopted, or its number was lost
// with the reply.
func (o Options) draws(l protocol.Lease) bool { return o.Fence && l.Fence == 0 }

// Inspect reads the token and the TTL: one round trip.
func (o Options) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	return c.InspectToken(now, key, time.Millisecond)
}

// older are the locks to use on a server that is too old for this one.
const older = "txlock.Renamed, or before 2.2 getsetlock.Classic"

// sets lists the abilities that take a free key with a TTL and leave a held one alone.
func sets() []ability.Need {
	return []ability.Need{{Ability: ability.SetNXPX, Use: older}, {Ability: ability.Milliseconds, Use: older}}
}

// checkScripts finds out whether the server has needs, and lets us run scripts, on two keys if o draws
// fences: some proxies let through but one.
func (o Options) checkScripts(c *protocol.Conn, key, use string, needs ...ability.Need) error {
	err := ability.Check(c, key, true, append(needs, ability.Need{Ability: ability.Scripts, Use: use})...)
	if err != nil || !o.Fence {
		return err
	}
	nobodys := protocol.Lease{Key: protocol.Aux(key, "check:"+protocol.NewToken()), Value: "nobody's"} // nothing is drawn for it
	_, ch, err := o.extend(protocol.Script, time.Time{}, nobodys, 20*time.Second, false)
	if err == nil {
		_, err = c.Run(ch)
	}
	if errors.Is(err, protocol.ErrLost) {
		return nil
	}
	return c.Lacks(err, "it does not let us run scripts on two keys, which the fence needs", "no fence")
}
