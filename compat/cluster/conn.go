package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A conn is one connection to its user, and has one to each server that one of its
// keys took it to. Commands are kept until their replies are asked for, so that
// those of one write can be followed together.
type conn struct {
	s      *Source
	slot   int    // noSlot: that of the first key to be redirected
	number uint64 // the map's that led here

	home *leg   // the slot's master, as far as we know
	legs []*leg // home, and where we were redirected to

	out  []protocol.Cmd // sent, but not written yet
	in   []any          // replies that nobody has received
	open *leg           // where a MULTI stands that was not sent together with its EXEC
	err  error

	cancelled bool // by the caller, who broke the legs: no server is suspected for that
}

// A leg is a connection to one server.
type leg struct {
	redis.Conn
	addr    string
	asking  bool  // the slot is on its way there
	watched []any // the keys under WATCH there
}

func (c *conn) leg(ctx context.Context, addr string) (*leg, error) {
	for _, l := range c.legs {
		if l.addr == addr {
			return l, nil
		}
	}
	if ctx.Err() != nil {
		return nil, limit.Cause(ctx) // says nothing about addr
	}
	conn, err := c.s.borrow(ctx, addr)
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		if !limit.Cancelled(ctx) { // the time of a step can be shorter than a dead server's silence
			c.s.suspect(addr, c.number)
		}
		return nil, err
	}
	l := &leg{Conn: conn, addr: addr}
	c.legs = append(c.legs, l)
	return l, nil
}

// Close returns the connections.
func (c *conn) Close() error {
	for _, l := range c.legs {
		if l.Err() != nil && !c.cancelled {
			c.s.suspect(l.addr, c.number)
		}
		wire.Close(l.Conn)
	}
	c.legs, c.home, c.open = nil, nil, nil
	if c.err == nil {
		c.err = errReturned
	}
	return nil
}

func (c *conn) Err() error {
	if c.err != nil {
		return c.err
	}
	for _, l := range c.legs {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) Send(name string, args ...any) error {
	if c.err != nil {
		return c.err
	}
	c.out = append(c.out, append(protocol.Cmd{name}, args...))
	return nil
}

func (c *conn) Flush() error { return c.flush(via{}) }

func (c *conn) Receive() (any, error) { return c.receive(via{}) }

func (c *conn) ReceiveContext(ctx context.Context) (any, error) { return c.receive(via{ctx: ctx}) }

func (c *conn) ReceiveWithTimeout(d time.Duration) (any, error) { return c.receive(via{limit: d}) }

func (c *conn) Do(name string, args ...any) (any, error) { return c.do(via{}, name, args) }

func (c *conn) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	return c.do(via{ctx: ctx}, name, args)
}

func (c *conn) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return c.do(via{limit: d}, name, args)
}

// do returns all replies to "", else the last of them with the first error, as redigo's Do does.
func (c *conn) do(v via, name string, args []any) (any, error) {
	if name != "" {
		c.out = append(c.out, append(protocol.Cmd{name}, args...))
	}
	if err := c.flush(v); err != nil {
		return nil, err
	}
	replies := c.in
	c.in = nil
	if len(replies) == 0 {
		return nil, nil
	}
	return answer.Do(name, replies)
}

func (c *conn) receive(v via) (any, error) {
	if len(c.in) == 0 {
		if err := c.flush(v); err != nil {
			return nil, err
		}
	}
	if len(c.in) == 0 {
		return nil, errNothingSent
	}
	reply := c.in[0]
	c.in = c.in[1:]
	return answer.Receive(reply)
}

// flush writes all commands sent, and follows them until it has every reply. An error is a connection's, and then any
// of the commands may have run.
func (c *conn) flush(v via) error {
	cmds := c.out
	c.out = nil
	if c.err != nil {
		return c.err
	}
	if v.ctx != nil && v.ctx.Err() != nil {
		return c.fail(v)
	}
	for units := c.split(cmds); len(units) > 0; {
		n := c.unitsInOneWrite(units)
		replies, err := c.write(v, units[:n])
		if err != nil {
			c.err, c.cancelled = err, v.ctx != nil && limit.Cancelled(v.ctx)
			return err
		}
		for _, r := range replies {
			c.in = append(c.in, r...)
		}
		units = units[n:]
	}
	return nil
}

// fail ends the connection for a context that ended before its use. compat ends so a connection that must not return to
// a pool.
func (c *conn) fail(v via) error {
	if c.err = c.Err(); c.err != nil {
		return c.err // Close drops what is dead
	}
	c.err, c.cancelled = limit.Cause(v.ctx), limit.Cancelled(v.ctx)
	for _, l := range c.legs {
		wire.Drop(l.Conn)
	}
	return c.err
}

// A unit is what one server must do as a whole: a command, or a transaction.
type unit struct {
	cmds  []protocol.Cmd
	multi bool // MULTI … EXEC, both in it
}

// split makes units of cmds. A MULTI whose EXEC is not there opens a
// transaction that c goes on with; it stays where it began, and is not followed.
func (c *conn) split(cmds []protocol.Cmd) []unit {
	var units []unit
	open := c.open != nil
	for i := 0; i < len(cmds); i++ {
		end := i + 1
		multi := false
		if !open && is(cmds[i], "MULTI") {
			for end < len(cmds) && !multi {
				multi = is(cmds[end], "EXEC") || is(cmds[end], "DISCARD")
				end++
			}
			if !multi {
				open, end = true, i+1
			}
		} else if is(cmds[i], "EXEC") || is(cmds[i], "DISCARD") {
			open = false
		}
		units = append(units, unit{cmds[i:end], multi})
		i = end - 1
	}
	return units
}

func is(m protocol.Cmd, name string) bool { return strings.EqualFold(m[0].(string), name) }

// unitsInOneWrite counts the units that go out in one write: all, but where one of them may have to be done by another server
// than its neighbour.
func (c *conn) unitsInOneWrite(units []unit) int {
	if len(c.legs) > 1 || c.s.isMoving(c.slot) {
		return 1
	}
	return len(units)
}

// to returns the first leg for u. A transaction goes to where its WATCH stands, and what belongs to an open one to
// where that is.
func (c *conn) to(u unit) *leg {
	if c.open != nil {
		return c.open
	}
	if u.multi || is(u.cmds[0], "MULTI") || is(u.cmds[0], "UNWATCH") {
		if w := c.watching(); len(w) > 0 {
			return w[0]
		}
	}
	return c.home // of several units that go out together all go there: it is the only leg
}

// watching returns the legs under WATCH.
func (c *conn) watching() []*leg {
	var all []*leg
	for _, l := range c.legs {
		if len(l.watched) > 0 {
			all = append(all, l)
		}
	}
	return all
}

// watched returns the keys under WATCH, wherever.
func (c *conn) watched() []any {
	var keys []any
	for _, l := range c.legs {
		keys = append(keys, l.watched...)
	}
	return keys
}

// via is how one reply is waited for: until ctx ends or for limit, but no longer than
// silence; or as long as the connection itself allows.
type via struct {
	ctx   context.Context
	limit time.Duration
}

func (v via) do(c redis.Conn, name string, args ...any) (any, error) {
	var reply any
	err := errUnsupported
	switch {
	case v.ctx != nil:
		ctx, cancel := context.WithTimeout(v.ctx, silence)
		reply, err = redis.DoContext(c, ctx, name, args...)
		if err != nil && ctx.Err() != nil && v.ctx.Err() == nil {
			err = fmt.Errorf("%w: no reply for %v", protocol.ErrTimeout, silence)
		}
		cancel()
	case v.limit > 0:
		reply, err = redis.DoWithTimeout(c, min(v.limit, silence), name, args...)
	}
	if err != nil && strings.HasPrefix(err.Error(), unsupported) { // not redigo's own: nothing was sent
		return c.Do(name, args...)
	}
	return reply, err
}

// context returns a context to connect in.
func (v via) context() (context.Context, context.CancelFunc) {
	switch {
	case v.ctx != nil:
		return v.ctx, func() {}
	case v.limit > 0:
		return context.WithTimeout(context.Background(), v.limit)
	}
	return context.Background(), func() {}
}
