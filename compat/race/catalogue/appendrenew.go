package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// appendRenew extends and counts its renewals in the value, under WATCH. If the key
// expires unnoticed between the two, what it appends to is a new key without an end.
type appendRenew struct{ tokened }

func (appendRenew) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	replies, err := compat.IfHolds(c, l, compat.Cmd{"EXPIRE", l.Key, int64(ttl / time.Second)}, compat.Cmd{"APPEND", l.Key, "+"})
	if err != nil {
		return l, err
	}
	if replies[0] != int64(1) {
		return l, compat.ErrLost
	}
	l.Value, l.Until = l.Value+"+", now.Add(ttl)
	return l, nil
}
