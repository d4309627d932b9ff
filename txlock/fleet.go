package txlock

import (
	"fmt"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A Fleet is [Guarded] beside clients in another language. It writes what they write; unlike most
// of them, it never leaves a key without a TTL and never deletes another client's, and to them that
// looks the same. If they repair keys without a TTL, so does it. To send the commands that they
// send, use [Classic] with the same Options and NoRepair.
type Fleet struct {
	Guarded

	// NoRepair leaves a key without a TTL alone, as in [Classic].
	NoRepair bool

	// Wake returns the name of the list beside key on which the fleet's waiters wait; a release
	// pushes to it what their own release pushes. "" or nil: they poll.
	Wake func(key string) string
}

// Named returns the lock of a client in the field: "redis-py-2.10", "redis-in-action", "Beaker", …
// The error is [protocol.ErrInvalid]: no client has that name (the error lists similar names), or the
// client writes a time, not a token.
//
// The client's own name for the key is dialect.Format.Key's. Where the client counts in
// milliseconds, so does the lock (Redis 2.6). Set Options.Millis to false for an older server:
// clients never read each other's TTLs. Some clients write the same flag for every holder ("1") and
// only ask whether the key exists. A release could not tell its own flag from its successor's, so
// for them the lock writes a random token.
func Named(name string) (Fleet, error) {
	f, err := dialect.Lookup(name)
	switch {
	case err != nil: // ErrUnknown, or ErrUnsupported: the locks of Redisson are hashes
		return Fleet{}, fmt.Errorf("%w: %w", protocol.ErrInvalid, err)
	case f.Kind == dialect.TwoKeys:
		return Fleet{}, fmt.Errorf("%w: %s has its deadline on a second key: use getsetlock.TwoKeys", protocol.ErrInvalid, f.Name)
	case f.Kind.Timed():
		return Fleet{}, fmt.Errorf("%w: %s writes a time, not a token: use getsetlock.Named", protocol.ErrInvalid, f.Name)
	}
	fleet := Fleet{NoRepair: !f.Repair}
	fleet.Millis = f.TTL == dialect.TTLMillis
	fleet.Form = f.Token.Write
	if f.Signal != "" {
		fleet.Wake = f.Beside
	}
	return fleet, nil
}

// wakeFor is how long a wake-up waits for a client that is about to listen: a second, as in
// python-redis-lock, which deletes the list first so that there is never more than one.
const wakeFor = 1

// Release deletes the key if it still holds our token, and in the same transaction wakes a waiter
// of the fleet.
func (f Fleet) Release(l protocol.Lease) protocol.Change {
	ch := f.Options.Release(l)
	if f.Wake == nil {
		return ch
	}
	if list := f.Wake(l.Key); list != "" {
		ch.If = protocol.Watch
		ch.Do = []protocol.Cmd{{"DEL", l.Key}, {"DEL", list}, {"LPUSH", list, 1}, {"EXPIRE", list, wakeFor}}
	}
	return ch
}

// Traits make the Locker check the server, and repair a key without a TTL.
func (f Fleet) Traits() protocol.Traits {
	return protocol.Traits{Rotates: true, Check: f.check, Repair: Classic{Options: f.Options, NoRepair: f.NoRepair}.Repair}
}
