package txlock

import (
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
)

// A Fleet is Guarded among clients of another language. It writes what they
// write and, unlike most of them, never leaves a key without an end, nor deletes
// one that is not its own; to them that looks the same. The keys that they leave
// without an end it repairs, if they do. For the commands as they send them, use
// Classic with the same Options and TTLRepair.
type Fleet struct {
	Guarded
	TTLRepair

	// Wake names the list beside a key on which the fleet's waiters wait; a release pushes to it what
	// their own release pushes. "" or nil: they ask again by themselves.
	Wake func(key string) string
}

// Named returns the lock of a client in the field: "redis-py-2.10",
// "redis-in-action", "Beaker", … The error is ErrInvalid: no client has that
// name (it names the near ones), or it writes a time, not a token.
//
// The client's own name for the key is dialect.Format.Key's. Where it counts in
// milliseconds, so does the lock (Redis 2.6); set Options.Millis to false for an
// older server: clients never read each other's TTLs. Clients that write the same
// flag for every holder ("1") only ask whether the key is there; a
// release could not tell its own flag from its successor's, so what stands on
// the key for them is a random token.
func Named(name string) (Fleet, error) {
	f, err := dialect.Lookup(name)
	switch {
	case err != nil: // ErrUnknown, or ErrUnsupported: the locks of Redisson are hashes
		return Fleet{}, fmt.Errorf("%w: %w", compat.ErrInvalid, err)
	case f.Kind == dialect.TwoKeys:
		return Fleet{}, fmt.Errorf("%w: %s has its deadline on a second key: use getsetlock.TwoKeys", compat.ErrInvalid, f.Name)
	case f.Kind.Timed():
		return Fleet{}, fmt.Errorf("%w: %s writes a time, not a token: use getsetlock.Named", compat.ErrInvalid, f.Name)
	}
	fleet := Fleet{TTLRepair: RepairNever}
	fleet.Millis = f.TTL == dialect.TTLMillis
	fleet.Form = f.Token.Write
	if f.Signal != "" {
		fleet.Wake = f.Beside
	}
	if f.Repair {
		// Not RepairPublished: its fleet can't tell that we look twice (tx/ttl-repair).
		fleet.TTLRepair = RepairSeen
	}
	return fleet, nil
}

// wakeFor is how long a wake-up waits for a client that is about to listen: a second, as in
// python-redis-lock, which deletes the list first so that there is never more than one.
const wakeFor = 1

// Release deletes the key if it still holds our token, and wakes a waiter of the fleet in the same
// transaction.
func (f Fleet) Release(l compat.Lease) compat.Change {
	ch := f.Options.Release(l)
	if f.Wake == nil {
		return ch
	}
	if list := f.Wake(l.Key); list != "" {
		ch.If = compat.Watch
		ch.Do = []compat.Cmd{{"DEL", l.Key}, {"DEL", list}, {"LPUSH", list, 1}, {"EXPIRE", list, wakeFor}}
	}
	return ch
}

// Traits say that it checks the server, and repairs a key without a TTL.
func (f Fleet) Traits() compat.Traits {
	return compat.Traits{Rotates: true, Check: f.check, Repair: func(_ time.Time, s compat.State, ttl time.Duration) (compat.Change, error) {
		return f.TTLRepair.repair(f.Options, s, ttl)
	}}
}
