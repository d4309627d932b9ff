package multilock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// possible returns the values that a key may hold as ours, the likeliest first.
func possible(part compat.Grant) []string { return append([]string{part.Value}, part.OtherValues...) }

// heldBy reports whether st shows one of them, and until when.
func heldBy(part compat.Grant, st protocol.State) (until time.Time, yes bool) {
	for _, v := range possible(part) {
		if v != "" && st.Holds(v) {
			return st.End(v), true
		}
	}
	return time.Time{}, false
}

var (
	escapeValue   = strings.NewReplacer("%", "%25", ",", "%2C", "(", "%28", ")", "%29", "|", "%7C")
	unescapeValue = strings.NewReplacer("%25", "%", "%2C", ",", "%28", "(", "%29", ")", "%7C", "|")
)

// list makes one value of the values of a set's keys, in their order: "x,y", or "x,y|z" where the second key may hold y
// or z.
func list(parts []compat.Grant) string {
	all := make([]string, len(parts))
	for i, p := range parts {
		of := possible(p)
		for n, v := range of {
			of[n] = escapeValue.Replace(v)
		}
		all[i] = strings.Join(of, "|")
	}
	return strings.Join(all, ",")
}

// joined makes one lease of the leases of a set's keys. It ends with the first of them. What a lease carries for the
// engine is the first key's: that is asked for before the others.
func joined(key string, parts []compat.Grant) compat.Grant {
	l := parts[0]
	l.Key, l.Until, l.Fence, l.How, l.Ambiguous, l.OtherValues, l.Rotate = key, time.Time{}, 0, protocol.Free, true, nil, false
	for _, p := range parts {
		l.Until = earliest(l.Until, p.Until)
		if p.How != protocol.Free && p.How != "" {
			l.How = p.How
		}
	}
	l.Value = list(parts)
	return l
}

// split returns the leases of the keys of l. A value of another number of keys is nobody's.
func (b *inTurn) split(l compat.Grant) ([]compat.Grant, error) {
	keys, err := Split(l.Key)
	if err != nil {
		return nil, err
	}
	all := strings.Split(l.Value, ",")
	if len(all) != len(keys) {
		return nil, protocol.ErrLost
	}
	parts := make([]compat.Grant, len(keys))
	for i, k := range keys {
		of := strings.Split(all[i], "|")
		for n, v := range of {
			of[n] = unescapeValue.Replace(v)
		}
		parts[i] = l
		parts[i].Key, parts[i].Value, parts[i].OtherValues, parts[i].Ambiguous = k, of[0], of[1:], b.ambiguous.Load()
	}
	return parts, nil
}

// fenced returns the lease of parts with its fence, and raises the counters that are behind. If one could not be raised
// there is none, and an extension draws again.
func (b *inTurn) fenced(ctx context.Context, now func() time.Time, key string, parts []compat.Grant, ttl time.Duration) (compat.Grant, error) {
	l := joined(key, parts)
	var high int64
	for _, p := range parts {
		if p.Fence == 0 {
			return l, nil
		}
		high = max(high, p.Fence)
	}
	for _, p := range parts {
		if p.Fence == high {
			continue
		}
		p.Fence = high - p.Fence
		if _, err := b.counters.Extend(ctx, now, p, ttl); err != nil {
			return l, err
		}
	}
	l.Fence = high
	return l, nil
}

// counter adds a lease's Fence to the fence of its key, in the place of an extension: so that
// it has a connection and a time limit as every step has.
type counter struct{ protocol.Algorithm }

func (counter) Traits() protocol.Traits { return protocol.Traits{} }

func (counter) Extend(_ time.Time, l protocol.Lease, _ time.Duration, _ bool) (protocol.Lease, protocol.Change, error) {
	return l, protocol.Change{Key: l.Key, Custom: func(c *protocol.Conn) ([]any, error) {
		n, err := redis.Int64(c.Do("INCRBY", protocol.Aux(l.Key, "fence"), l.Fence))
		return []any{n}, err
	}}, nil
}

// lostOne reports whether one key is not ours any more, by err.
func lostOne(err error) bool {
	return protocol.OutcomeOf(err) == protocol.Refused && (errors.Is(err, protocol.ErrLost) || errors.Is(err, protocol.ErrForeign))
}

// lostPart returns the error of a set that has lost key.
func lostPart(key string, err error) error {
	if err == protocol.ErrLost { // no more than that
		return fmt.Errorf("%w: %q", err, key)
	}
	return fmt.Errorf("%w: %q: %w", protocol.ErrLost, key, inPart{err})
}

// inPart is an error of one key that must not be read as the set's: the key was held, or nothing
// was sent for it, and others are not what they were. Only that a context ended, or a time limit,
// can be told from it.
type inPart struct{ error }

func (e inPart) Is(target error) bool {
	switch target {
	case context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, protocol.ErrTimeout:
		return errors.Is(e.error, target)
	}
	return false
}
