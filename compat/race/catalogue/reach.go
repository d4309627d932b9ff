package catalogue

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// clock reads the client's clock where the code of another client reads it: in
// the midst of an attempt, or of a release. The locks of this module are told the time and
// do not. It is now on a connection that has no clock: the one that asks whether a lock
// that was left can be had again.
func clock(c *protocol.Conn, now time.Time) time.Time {
	if k, ok := c.Conn.(interface{ Now() time.Time }); ok {
		return k.Now()
	}
	return now
}

// redial makes another connection behind its user's back when one has broken.
func redial(c *protocol.Conn) *protocol.Conn {
	if k, ok := c.Conn.(interface{ Redial() redis.Conn }); ok {
		return protocol.NewConn(k.Redial())
	}
	return c
}
