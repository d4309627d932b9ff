package compat_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
)

// unchecked is set:lua on a server that needs no check.
type unchecked struct{ setlock.Lua }

func (unchecked) Traits() protocol.Traits { return protocol.Traits{Rotates: true} }

// An echo answers every command at once with what says that it was done.
type echo struct{ sent int }

func (c *echo) Close() error                     { return nil }
func (c *echo) Err() error                       { return nil }
func (c *echo) Flush() error                     { return nil }
func (c *echo) Receive() (any, error)            { return "OK", nil }
func (c *echo) Send(name string, _ ...any) error { c.sent++; return nil }

func (c *echo) Do(name string, _ ...any) (any, error) {
	n := c.sent
	c.sent = 0
	switch {
	case name == "SET":
		return "OK", nil
	case name != "":
		return int64(1), nil
	case n == 1:
		return []any{any("OK")}, nil
	}
	return nil, nil
}

func (c *echo) DoWithTimeout(_ time.Duration, name string, args ...any) (any, error) {
	return c.Do(name, args...)
}
func (c *echo) ReceiveWithTimeout(time.Duration) (any, error) { return "OK", nil }

type echoes struct{ c echo }

func (p *echoes) GetContext(context.Context) (redis.Conn, error) { return &p.c, nil }

// BenchmarkOverhead is what an acquisition and its release cost in this process, without any
// network.
func BenchmarkOverhead(b *testing.B) {
	s := compat.Pooled(&echoes{})
	s.Bounded = true
	k := compat.NewOn(s, unchecked{}, compat.Options{NoRenew: true})
	b.ReportAllocs()
	for b.Loop() {
		pair(b, k.TryLock)
	}
}
