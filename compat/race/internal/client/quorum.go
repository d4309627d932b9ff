package client

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/broken"
)

// overServers is redlock over several servers, each with setlock.Lua, made an
// Algorithm so that it can be explored: the shipping Quorum, asking one server
// after the other. Each client begins with another one, so that votes can split.
// Real ones ask all at once, and their requests arrive in orders that are not
// explored here: one client's request to its second server before that to its first.
//
// A Quorum is made for each step. What it keeps from one to the next concerns
// values that an extension changes, and setlock's don't.
type overServers struct {
	a     *Agent
	token func() string
}

// Algorithm makes a client's algorithm for a, its values told apart from all others'.
func (a *Agent) Algorithm(client int) protocol.Algorithm {
	if algo := a.Setup.AlgorithmOf(client, a.token); algo != nil {
		return algo
	}
	return overServers{a, a.token}
}

// A steady backend is told the time at which the quorum began. Of the parts that
// it acquires only the whole's end counts: one reading of the clock less between any
// two servers.
type steady struct {
	compat.Backend
	now time.Time
}

func (s *steady) Acquire(ctx context.Context, _ func() time.Time, key string, ttl time.Duration) (compat.Grant, error) {
	return s.Backend.Acquire(ctx, stopped(s.now), key, ttl)
}

func (s *steady) Release(ctx context.Context, _ func() time.Time, g compat.Grant) error {
	return s.Backend.Release(ctx, stopped(s.now), g)
}

func (s *steady) Inspect(ctx context.Context, _ func() time.Time, key string) (compat.State, error) {
	return s.Backend.Inspect(ctx, stopped(s.now), key)
}

// quorum makes a Quorum over connections of the client's own, each breaking alone; or, without an
// engine, over the lent one.
func (o overServers) quorum(c redis.Conn, now time.Time) *redlock.Quorum {
	if o.a.Ask != nil {
		c = nil
	}
	var token string
	lua := setlock.Lua{Options: setlock.Options{Token: func() string {
		if token == "" {
			token = o.token()
		}
		return token
	}}}
	var servers []compat.Backend
	for n := range o.a.Setup.Servers() {
		one := compat.NewBackend(views{a: o.a, lent: c, server: n + 1}.source(), Unchecked{lua})
		servers = append(servers, &steady{one, now})
	}
	return redlock.New(servers, redlock.Options{Sequential: true, First: o.a.ID % o.a.Setup.Servers()})
}

// clock returns the client's own: time may pass while the servers answer. What is read off it after
// the last answer tells whether the lease lasts still, as the Locker's reading does after the answer
// of one server.
func (o overServers) clock(now time.Time) func() time.Time {
	a := o.a
	if a.Ask == nil {
		return stopped(now)
	}
	return func() time.Time {
		was := a.Got
		a.Got = true
		defer func() { a.Got = was }()
		return a.now()
	}
}

// stopped returns a clock without progress.
func stopped(now time.Time) func() time.Time { return func() time.Time { return now } }

func (o overServers) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	g, err := o.quorum(c, now).Acquire(context.Background(), o.clock(now), key, ttl)
	return g.Lease, err
}

// Extend keeps the values, as setlock.Lua does unless it is asked to rotate.
func (o overServers) Extend(now time.Time, l compat.Lease, ttl time.Duration, _ bool) (compat.Lease, protocol.Change, error) {
	next := l
	next.Until = protocol.Until(now, ttl)
	return next, broken.By(l, func(c *protocol.Conn) error {
		_, err := o.quorum(c, now).Extend(context.Background(), o.clock(now), compat.Grant{Lease: l}, ttl)
		return err
	}), nil
}

// Release looks at the time only to interpret a lost reply: it uses the client's last reading.
func (o overServers) Release(l compat.Lease) protocol.Change {
	now := plan.Instant(o.a.ms)
	return broken.By(l, func(c *protocol.Conn) error {
		return o.quorum(c, now).Release(context.Background(), stopped(now), compat.Grant{Lease: l})
	})
}

func (o overServers) Inspect(c *protocol.Conn, now time.Time, key string) (compat.State, error) {
	return o.quorum(c, now).Inspect(context.Background(), stopped(now), key)
}

// Traits check one server: the others are the same.
func (o overServers) Traits() protocol.Traits {
	return protocol.Traits{Check: setlock.Lua{}.Traits().Check}
}
