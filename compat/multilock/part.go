package multilock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// list makes one value of those of the keys of a set, in their order.
func list(values []string) string {
	escaped := make([]string, len(values))
	for i, v := range values {
		escaped[i] = escape.Replace(v)
	}
	return strings.Join(escaped, ",")
}

// whole makes one lease of those of the keys of a set. It ends with the first of them.
func whole(key string, parts []compat.Lease) compat.Lease {
	l := compat.Lease{Key: key, How: compat.Free, Ambiguous: true}
	values := make([]string, len(parts))
	for i, p := range parts {
		values[i] = p.Value
		l.Until = earliest(l.Until, p.Until)
		if p.How != compat.Free && p.How != "" {
			l.How = p.How
		}
	}
	l.Value = list(values)
	return l
}

// split makes of a lease those of its keys. A value that is not one of as many
// keys is nobody's.
func split(l compat.Lease) ([]compat.Lease, error) {
	keys, err := Split(l.Key)
	if err != nil {
		return nil, err
	}
	values := strings.Split(l.Value, ",")
	if len(values) != len(keys) {
		return nil, compat.ErrLost
	}
	parts := make([]compat.Lease, len(keys))
	for i, k := range keys {
		parts[i] = compat.Lease{Key: k, Value: unescape.Replace(values[i]), Until: l.Until, Fence: l.Fence, How: l.How}
	}
	return parts, nil
}

// fenced is the lease of parts with its fence, for which it raises the counters
// that are behind. If one could not be drawn there is none, and an extension draws again.
func (b *inTurn) fenced(ctx context.Context, now func() time.Time, key string, parts []compat.Lease, ttl time.Duration) (compat.Lease, error) {
	l := whole(key, parts)
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

// counter adds a lease's Fence to the fence of its key, in the place of an
// extension: so that it has a connection and a time limit as every step has.
type counter struct{ compat.Algorithm }

func (counter) Extend(c redis.Conn, _ time.Time, l compat.Lease, _ time.Duration) (compat.Lease, error) {
	_, err := redis.Int64(c.Do("INCRBY", compat.FenceKey(l.Key), l.Fence))
	return l, err
}

// certain reports that err tells the outcome: done, or not done.
func certain(err error) bool {
	_, known := compat.Settled(err)
	return err == nil || known
}

// vague is an error of one key that must not be read as the set's: the key was
// held, or nothing was sent for it, and others are not what they were. That a context ended
// is said.
type vague struct{ error }

func (v vague) Is(target error) bool {
	return (target == context.Canceled || target == context.DeadlineExceeded) && errors.Is(v.error, target)
}
