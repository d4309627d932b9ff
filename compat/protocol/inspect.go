package protocol

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

// InspectToken reads a lock with a token as its value and a TTL as its lease, in one round trip. It asks for
// the TTL in unit: a second or, since Redis 2.6, a millisecond.
func (c *Conn) InspectToken(now time.Time, key string, unit time.Duration) (State, error) {
	s := State{Key: key, Status: StatusFree, TTL: NoTTL}
	ttl := "TTL"
	if unit == time.Millisecond {
		ttl = "PTTL"
	}
	replies, err := c.Pipe(Cmd{"GET", key}, Cmd{ttl, key})
	if err != nil {
		return s, err
	}
	s.Value, err = redis.String(replies[0], nil)
	if errors.Is(err, redis.ErrNil) {
		return s, nil
	}
	if err != nil {
		return s, Foreign(key, err)
	}
	if Expired(replies[1]) {
		s.Value = ""
		return s, nil
	}
	s.TTL, err = ReadTTL(replies[1], unit)
	s.Status, s.Format, s.Clock = StatusHeld, "token", "server"
	switch {
	case err != nil:
		return s, err
	case s.TTL == NoTTL:
		s.Status = StatusPersistent
	default:
		s.Until = now.Add(s.TTL)
	}
	return s, nil
}
