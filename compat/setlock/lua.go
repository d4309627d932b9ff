package setlock

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Lua is the lock that the page of SET recommends: the server compares and acts
// in one script. One round trip for each step, Redis 2.6.12 and later where
// scripts are allowed.
//
//	SET key token NX PX ttl               OK: ours; nil: held
//	EVALSHA extend 1 key token ttl        nil: not ours any more
//	EVALSHA release 1 key token           nil: not ours any more
//
// A server that does not know a script yet, or has forgotten it (a restart, a
// failover, SCRIPT FLUSH), answers NOSCRIPT without having run anything, and
// gets the script itself.
//
// With a fence a script acquires too, so that a refused attempt burns no number.
type Lua struct{ Options }

// Acquire makes one attempt to hold key until now+ttl.
func (k Lua) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	if k.Fence {
		return Script(k).Acquire(c, now, key, ttl)
	}
	return k.set(c, now, key, ttl)
}

// Each script gets the key and, where a number is to be drawn, the fence. A
// false is a nil on the wire. redigo's Script falls back from EVALSHA to EVAL.
var (
	extend = redis.NewScript(-1, `
if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('PEXPIRE', KEYS[1], ARGV[2]) == 0 then
	return false
end
return KEYS[2] and redis.call('INCR', KEYS[2]) or 0
`)

	release = redis.NewScript(-1, `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
	return false
end
return redis.call('DEL', KEYS[1])
`)
)

// keys are those of a script for l, their number first.
func (o Options) keys(l compat.Lease) []any {
	if o.draws(l) {
		return []any{2, l.Key, compat.FenceKey(l.Key)}
	}
	return []any{1, l.Key}
}

// Extend sets the end of a lease that is still ours to now+ttl.
func (k Lua) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	return k.extend(c, now, l, ttl, extend)
}

// extend extends by a script that gets the key, the fence if a number is to be
// drawn, the token and the milliseconds.
func (o Options) extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration, by *redis.Script) (compat.Lease, error) {
	ms, err := compat.WholeMillis(ttl)
	if err != nil {
		return l, err
	}
	if !now.Before(l.Until) {
		return l, compat.ErrLost
	}
	drawn, err := redis.Int64(by.Do(c, append(o.keys(l), l.Value, ms)...))
	if err != nil {
		return l, lost(l, err)
	}
	if o.draws(l) {
		l.Fence = drawn
	}
	l.Until = compat.Until(now, ttl)
	return l, nil
}

// ExtendAll extends many leases in one round trip.
func (k Lua) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	next, errs := slices.Clone(leases), make([]error, len(leases))
	var sent []int
	for i, l := range leases {
		ms, err := compat.WholeMillis(ttls[i])
		if err == nil && !now.Before(l.Until) {
			err = compat.ErrLost
		}
		if err == nil {
			err = extend.SendHash(c, append(k.keys(l), l.Value, ms)...)
			sent = append(sent, i)
		}
		errs[i] = err
	}
	replies, err := redis.Values(c.Do(""))
	if err == nil && len(replies) != len(sent) {
		err = fmt.Errorf("setnxlock: %d replies to %d scripts", len(replies), len(sent))
	}
	for n, i := range sent {
		switch {
		case err != nil:
			errs[i] = err
			continue
		case noScript(replies[n]):
			next[i], errs[i] = k.Extend(c, now, leases[i], ttls[i]) // it did not run; the first of these teaches the server
			continue
		}
		drawn, e := redis.Int64(replies[n], nil)
		if errs[i] = lost(leases[i], e); e != nil {
			continue
		}
		if k.draws(leases[i]) {
			next[i].Fence = drawn
		}
		next[i].Until = compat.Until(now, ttls[i])
	}
	return next, errs
}

func noScript(reply any) bool {
	e, ok := reply.(redis.Error)
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}

// Release deletes the key if it still holds our token.
func (k Lua) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	deleted, err := redis.Bool(release.Do(c, 1, l.Key, l.Value))
	if err == nil && !deleted {
		return compat.ErrLost // before 2.8 a key can expire while a script runs
	}
	return lost(l, err)
}

// lost is the error of a script that compares: nil is its word that the key
// does not hold l's value.
func lost(l compat.Lease, err error) error {
	if err == redis.ErrNil {
		return compat.ErrLost
	}
	return compat.Foreign(l.Key, err)
}

// Check returns ErrUnsafeServer if the server has no SET … NX PX, or does not
// let us run scripts.
func (k Lua) Check(c redis.Conn, key string) error {
	l, err := k.checkSet(c, key)
	if err != nil {
		return err
	}
	return k.checkScripts(c, k, l, "setlock.Watched")
}

const noScripts = "it does not let us run scripts (they came with 2.6)"

// checkScripts finds out whether the server lets us run scripts on as many keys
// as a's have. It gives the scratch lease l back.
func (o Options) checkScripts(c redis.Conn, a compat.Algorithm, l compat.Lease, use string) error {
	undrawn := l
	undrawn.Fence = 0
	if _, err := release.Do(c, append(o.keys(undrawn), "another's")...); err != nil { // nil is no error here
		drop(c, l)
		if compat.UnknownCommand(err) {
			return compat.Refuse(c, noScripts, use)
		}
		return err
	}
	return rehearse(c, a, l, noScripts, use)
}
