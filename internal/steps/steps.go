// Package steps runs a lock's steps over one connection, without a Locker. Tests only.
package steps

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Dial returns a new connection to s.
func Dial(s *oldredis.Server) *protocol.Conn { return protocol.NewConn(s.Dial()) }

// Extend carries out an extension of l over c.
func Extend(a protocol.Algorithm, c *protocol.Conn, now time.Time, l protocol.Lease, ttl time.Duration) (protocol.Lease, error) {
	next, ch, err := a.Extend(now, l, ttl, false)
	if err == nil {
		_, err = c.Run(ch)
	}
	return next, err
}

// Release carries out a release of l over c.
func Release(a protocol.Algorithm, c *protocol.Conn, l protocol.Lease) error {
	_, err := c.Run(a.Release(l))
	return err
}

// Instead returns c, on which serve answers each command of a name. It may have the server run it.
func Instead(c redis.Conn, name string, serve func(run func(...any) any) any) *protocol.Conn {
	net := new(conformance.Network)
	net.Expect(conformance.Fate{Serve: serve}.Of(name))
	return protocol.NewConn(net.Conn(c))
}
