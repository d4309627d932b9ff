package getsetlock

import (
	"fmt"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Named returns the dialect of a client in the field: "redis-py-2.9", "jedis-lock", "redis-mutex",
// … With it [Classic] and [Guarded] write and read as that client does, and take over when it does.
// They compare before they release, where most clients simply delete; to those clients it looks the
// same. The error is [protocol.ErrInvalid]: no client has that name (the error lists similar names),
// or the client writes no time.
//
// The client's own name for the key is dialect.Format.Key's:
//
//	f, err := dialect.Lookup("npm-redis-lock-0.0")
//	err = locks.Do(ctx, f.Key("report"), …)         // lock.report
//
// Without an owner, two clients can write the same value: such leases are Ambiguous. A fleet that
// reads floats accepts any number of digits: set Nonce, and each value is unique.
func Named(name string) (Dialect, error) {
	f, err := dialect.Lookup(name)
	switch {
	case err != nil:
		return Dialect{}, fmt.Errorf("%w: %w", protocol.ErrInvalid, err)
	case f.Kind == dialect.TwoKeys:
		return Dialect{}, fmt.Errorf("%w: %s has its time on a second key: use getsetlock.TwoKeys", protocol.ErrInvalid, f.Name)
	case !f.Kind.Timed():
		return Dialect{}, fmt.Errorf("%w: %s writes a token, not a time: use txlock.Named", protocol.ErrInvalid, f.Name)
	}
	return Dialect{
		Name:      f.Name,
		Unit:      f.Stamp.Unit,
		Float:     f.Stamp.Float,
		Decimals:  f.Stamp.Decimals,
		Owner:     f.Stamp.Owner,
		Binary:    f.Stamp.Binary,
		Nonce:     f.Stamp.Owner != dialect.OwnerNone,
		Plus:      f.Plus,
		Inclusive: f.Inclusive,
		Whole:     !f.Stamp.Float,
		Margin:    f.Grace,
		Equal:     f.Win == dialect.WinEqual,
	}, nil
}
