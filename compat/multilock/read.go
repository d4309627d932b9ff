package multilock

import (
	"context"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Abilities returns the algorithm's: a set of readers is shared as each of them is.
func (b *inTurn) Abilities() compat.Abilities {
	one := b.one.Abilities()
	return compat.Abilities{Shared: one.Shared, Most: one.Most, Rotates: one.Rotates, Epoch: one.Epoch, Valid: func(key string, ttl time.Duration) error {
		keys, err := Split(key)
		if err == nil && one.Valid != nil {
			err = one.Valid(keys[0], ttl)
		}
		return err
	}}
}

// Inspect reads the keys in turn.
func (b *inTurn) Inspect(ctx context.Context, now func() time.Time, key string) (protocol.State, error) {
	keys, err := Split(key)
	if err != nil {
		return protocol.State{Key: key, TTL: protocol.NoTTL}, err
	}
	states := make([]protocol.State, len(keys))
	ours := make([]compat.Grant, len(keys))
	var until time.Time
	for i, k := range keys {
		if states[i], err = b.one.Inspect(ctx, now, k); err != nil {
			return protocol.State{Key: key, TTL: protocol.NoTTL}, err
		}
		ours[i].Value, until = states[i].Value, earliest(until, states[i].Until)
	}
	st := stateOfSet(key, states)
	if st.Status != protocol.StatusFree {
		all := protocol.Holder{Value: list(ours), Until: until}
		st.Holders = append(append([]protocol.Holder{all}, b.recognised(key, states)...), st.Holders...)
		if !repairable(st) { // Repair needs the value of that very key
			st.Value = all.Value
		}
	}
	return st, nil
}

// Find returns the lease with this value if any of its keys is still ours. Extend and Release then find that not all
// are, and release those that are.
func (b *inTurn) Find(ctx context.Context, now func() time.Time, key, value string) (compat.Grant, error) {
	l := compat.Grant{Lease: protocol.Lease{Key: key, Value: value, Ambiguous: true}}
	parts, err := b.split(l)
	if err != nil {
		return l, err
	}
	ours := 0
	for _, p := range parts {
		st, err := b.one.Inspect(ctx, now, p.Key)
		if err != nil {
			return l, err
		}
		if st.Ambiguous {
			b.ambiguous.Store(true)
		}
		if until, yes := heldBy(p, st); yes {
			ours++
			l.Until = earliest(l.Until, until)
		}
	}
	if ours == 0 {
		return l, fmt.Errorf("%w: %q does not hold this token", protocol.ErrLost, key)
	}
	return l, nil
}

// repairable reports whether the Locker may repair the key in state s.
func repairable(s protocol.State) bool { return s.Status == protocol.StatusPersistent || s.Watch > 0 }

// Repair repairs the key with st.Value, if it is still as it was seen.
func (b *inTurn) Repair(ctx context.Context, now func() time.Time, st protocol.State, ttl time.Duration) error {
	keys, err := Split(st.Key)
	if err != nil {
		return err
	}
	for _, k := range keys {
		one, err := b.one.Inspect(ctx, now, k)
		if err != nil {
			return err
		}
		if repairable(one) && one.Value == st.Value {
			return b.one.Repair(ctx, now, one, ttl)
		}
	}
	return protocol.ErrHeld
}
