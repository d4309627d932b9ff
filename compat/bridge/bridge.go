// Package bridge has locks that two fleets of clients both respect, and plans by which a fleet
// moves from an old lock to a newer one while it runs, with no moment at which two clients hold the
// lock.
//
// A fleet is updated one client after another, so for a while its clients take two kinds of lock on
// the same keys. If those two can't be mixed, both can be mixed with a third, the bridge. The fleet
// then moves in two steps: all clients to the bridge, and then all clients to the new lock.
//
//	OneKey     a timestamp in the old fleet's dialect, on a key that has a TTL:
//	           clients of timestamps read it, clients of tokens see only that
//	           the key exists, and the server ends it
//	TwoNames   the old name and the new one, each in its fleet's format, taken
//	           and released in one transaction
//	(none)     fleets of tokens need no bridge: a client that makes the key with SETNX,
//	           SET NX or under WATCH, and reads no others' values, excludes the rest.
//	           redis-py's and setlock's locks are the same bytes
//
// A bridge excludes each of the two fleets, but they do not exclude each other: while old clients
// are left, no new one may start. [NewPlan] tells the order, why no step can be left out, and when
// a step is done:
//
//	p, err := bridge.NewPlan("redis-py-2.9", "set")
//
// A bridge promises what [getsetlock.Guarded] promises in the old fleet's dialect: it takes over
// and releases under WATCH. The harm that old clients can do to each other (a DEL without a
// comparison, a GETSET that comes second) they can do to the bridge, too, as long as they run.
// Redis 2.2 and later: before that no token lock is safe either.
package bridge

import (
	"errors"
	"fmt"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// ErrDrain means that no lock is safe beside the old fleet's: stop all its clients, wait for a
// lease, and start the new ones. The error that wraps it says why.
var ErrDrain = errors.New("setnxlock: no bridge: stop the old clients, wait for a lease, start the new ones")

// Named returns the bridge between the fleet of a client in the field ("redis-py-2.9",
// "jedis-lock", …) and token clients on the same key. It writes what the locks of
// [getsetlock.Named] write; a fraction is followed by a nonce of ours.
//
// The error is [ErrDrain] if no lock is safe beside these clients, and [protocol.ErrInvalid] if they
// need no bridge or another one ([TwoNames]), or if no client has that name.
func Named(name string) (OneKey, error) {
	f, err := dialect.Lookup(name)
	if err != nil {
		return OneKey{}, fmt.Errorf("%w: %w", protocol.ErrInvalid, err)
	}
	if err := drain(f); err != nil {
		return OneKey{}, err
	}
	if f.Kind.Timed() {
		d, err := timeOf(f)
		return OneKey{Options: getsetlock.Options{Dialect: d}}, err
	}
	if f.Kind == dialect.TwoKeys {
		return OneKey{}, fmt.Errorf("%w: %s has its time on a second key: use bridge.TwoNames", protocol.ErrInvalid, f.Name)
	}
	return OneKey{}, fmt.Errorf("%w: %s writes tokens, as txlock and setlock do: it needs no bridge", protocol.ErrInvalid, f.Name)
}

// timeOf returns the dialect of f's clients. Each time of ours is unique if they read as many digits as there are.
func timeOf(f dialect.Format) (getsetlock.Dialect, error) {
	d, err := getsetlock.Named(f.Name)
	d.Nonce = d.Nonce || d.Float
	return d, err
}

// lawless returns the reason why no lock is safe beside f's clients; "" if there is one.
func lawless(f dialect.Format) string {
	switch {
	case f.Win != dialect.WinAlways:
		return ""
	case f.TTL == dialect.TTLAtomic:
		return "looks whether the key is free and then sets it, even if another client has taken it in between"
	}
	return "sets a key that it has read as dead, even if another client has taken it over in between"
}

// drain returns ErrDrain if no lock is safe beside f's clients.
func drain(f dialect.Format) error {
	if why := lawless(f); why != "" {
		return drainError{f.Name + " " + why}
	}
	return nil
}

// A drainError is ErrDrain, and ErrUnsafeServer as well, after which a Locker does
// not try again.
type drainError struct{ why string }

func (e drainError) Error() string { return ErrDrain.Error() + ": " + e.why }

func (e drainError) Is(target error) bool {
	return target == ErrDrain || target == protocol.ErrUnsafeServer
}
