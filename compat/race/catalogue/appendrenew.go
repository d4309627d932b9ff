package catalogue

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// appendRenew extends and counts its renewals in the value, under WATCH. If the key
// expires unnoticed between the two, what it appends to is a new key without an end.
type appendRenew struct{ tokened }

func (appendRenew) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	ch := compat.Change{Key: l.Key, Value: l.Value, Do: []compat.Cmd{{"EXPIRE", l.Key, int64(ttl / time.Second)}, {"APPEND", l.Key, "+"}}}
	l.Value, l.Until = l.Value+"+", now.Add(ttl)
	return l, ch, nil
}
