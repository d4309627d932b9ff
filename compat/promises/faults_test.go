package promises_test

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A fate is what becomes of one command on its way.
type fate int

const (
	arrives     fate = iota
	requestLost      // it never arrives, and the connection is gone
	replyLost        // it runs, and the connection is gone before its reply
	requestLate      // the connection is gone, and what was sent arrives at network.deliverLate
)

// errRefused is what dialing a server says that is not there.
var errRefused = errors.New("dial tcp: connect: connection refused")

// A network is between one client and its servers. Commands are counted from
// 1 over all connections, one by one, so that a fault can cut a pipelined write
// in two. The zero value loses nothing.
type network struct {
	mu             sync.Mutex
	count          int
	writes         int
	dials          int
	fate           func(n int, name string) fate
	slow           func(n int, name string) (before, after time.Duration)
	ran            func(n int, name string)
	broken         error         // the error of a connection that is gone; nil: io.ErrUnexpectedEOF
	down           bool          // nothing arrives, nobody can connect
	hanging        chan struct{} // until it is closed, dialing ends with its context only; nil: it does not hang
	hung           error         // what it says then; nil: what the context does
	late           []func()
	opened, closed int
	all            []*conn
	answer         func(name string) redis.Error // "": the server's own
}

// expect makes the next commands fare as f says, counted from here; nil: all arrive.
func (n *network) expect(f func(n int, name string) fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count, n.writes, n.dials, n.fate = 0, 0, 0, f
}

// delay makes the commands from here on take as long as f says, before and after they run.
func (n *network) delay(f func(n int, name string) (before, after time.Duration)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.count, n.slow = 0, f
}

// set changes the network.
func (n *network) set(f func(n *network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n)
}

// hang makes dialing hang.
func (n *network) hang() { n.set(func(n *network) { n.hanging = make(chan struct{}) }) }

// clear ends all faults, as if nothing had ever been wrong.
func (n *network) clear() {
	n.set(func(n *network) {
		if n.hanging != nil {
			close(n.hanging)
		}
		n.fate, n.slow, n.down, n.hanging = nil, nil, false, nil
	})
}

// commands is how many were sent since expect.
func (n *network) commands() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count
}

// roundTrips is in how many writes.
func (n *network) roundTrips() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writes
}

// deliverLate delivers what was sent long ago.
func (n *network) deliverLate() {
	n.mu.Lock()
	late := n.late
	n.late = nil
	n.mu.Unlock()
	for _, f := range late {
		f()
	}
}

// to returns s behind the network.
func (n *network) to(s compat.Pool) compat.Source { return compat.Pooled(link{n, s}) }

type link struct {
	net *network
	s   compat.Pool
}

func (l link) GetContext(ctx context.Context) (redis.Conn, error) {
	l.net.mu.Lock()
	l.net.dials++
	down, hanging, hung := l.net.down, l.net.hanging, l.net.hung
	l.net.mu.Unlock()
	if hanging != nil {
		select {
		case <-ctx.Done():
			if hung == nil {
				hung = ctx.Err()
			}
			return nil, hung
		case <-hanging:
			return nil, errRefused
		}
	}
	if down {
		return nil, errRefused
	}
	c, err := l.s.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	through := &conn{net: l.net, to: c, cut: make(chan struct{})}
	l.net.set(func(n *network) { n.opened, n.all = n.opened+1, append(n.all, through) })
	return through, nil
}

// A conn is a connection through the network. One goroutine may send while another receives.
type conn struct {
	net     *network
	to      redis.Conn
	pending []compat.Cmd
	replies []any // an error among them is a redis.Error

	mu   sync.Mutex
	sent []compat.Cmd // flushed, and delivered when somebody waits for the replies
	dead error
	cut  chan struct{} // closed when it is dead
	gone bool
}

var (
	_ redis.ConnWithContext = (*conn)(nil)
	_ redis.ConnWithTimeout = (*conn)(nil)
)

func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return c.dead
	}
	return c.to.Err()
}

func (c *conn) Close() error {
	c.mu.Lock()
	gone := c.gone
	c.gone = true
	c.mu.Unlock()
	if !gone {
		c.net.set(func(n *network) { n.closed++ })
	}
	if c.end(errors.New("closed")) {
		return c.to.Close()
	}
	return nil
}

// end is the end of the connection for its client; false: it had ended before.
func (c *conn) end(why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead != nil {
		return false
	}
	c.dead = why
	close(c.cut)
	return true
}

// die ends the connection. One that is gone for its client already may have something to deliver yet.
func (c *conn) die(why error) error {
	if c.end(why) {
		c.to.Close()
	}
	return why
}

func (c *conn) Send(name string, args ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead == nil {
		c.pending = append(c.pending, append(compat.Cmd{name}, args...))
	}
	return c.dead
}

func (c *conn) Do(name string, args ...any) (any, error) {
	return c.do(context.Background(), 0, name, args)
}

func (c *conn) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.die(err)
	}
	return c.do(ctx, 0, name, args)
}

func (c *conn) DoWithTimeout(limit time.Duration, name string, args ...any) (any, error) {
	return c.do(context.Background(), limit, name, args)
}

func (c *conn) do(ctx context.Context, limit time.Duration, name string, args []any) (any, error) {
	if name != "" {
		c.Send(name, args...) //nolint:errcheck // Flush says the same
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	if err := c.flush(ctx, limit); err != nil {
		return nil, err
	}
	replies := c.replies
	c.replies = nil
	return answer.Do(name, replies)
}

func (c *conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.pending = append(c.sent, c.pending...), nil
	return c.dead
}

func (c *conn) Receive() (any, error) { return c.receive(context.Background(), 0) }
func (c *conn) ReceiveWithTimeout(limit time.Duration) (any, error) {
	return c.receive(context.Background(), limit)
}
func (c *conn) ReceiveContext(ctx context.Context) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.die(err)
	}
	return c.receive(ctx, 0)
}

func (c *conn) receive(ctx context.Context, limit time.Duration) (any, error) {
	if len(c.replies) == 0 {
		if err := c.flush(ctx, limit); err != nil {
			return nil, err
		}
	}
	if len(c.replies) == 0 {
		return nil, errors.New("nothing to receive")
	}
	r := c.replies[0]
	c.replies = c.replies[1:]
	return answer.Receive(r)
}

// flush delivers what was sent.
func (c *conn) flush(ctx context.Context, limit time.Duration) error {
	c.mu.Lock()
	cmds, dead := c.sent, c.dead
	c.sent = nil
	c.mu.Unlock()
	if dead != nil {
		return dead
	}
	if len(cmds) > 0 {
		c.net.set(func(n *network) { n.writes++ })
	}
	for i, m := range cmds {
		reply, err := c.deliver(ctx, limit, m, cmds[i:])
		if err != nil {
			return err
		}
		c.replies = append(c.replies, reply)
	}
	return nil
}

// deliver delivers one command, or what becomes of it; rest is it and what is behind it.
func (c *conn) deliver(ctx context.Context, limit time.Duration, m compat.Cmd, rest []compat.Cmd) (any, error) {
	name := m[0].(string)
	var what fate
	var before, after time.Duration
	c.net.mu.Lock()
	c.net.count++
	n := c.net.count
	if c.net.down {
		what = requestLost
	} else if c.net.fate != nil {
		c.net.mu.Unlock() // it may change the network
		what = c.net.fate(n, name)
		c.net.mu.Lock()
	}
	if c.net.slow != nil {
		before, after = c.net.slow(n, name)
	}
	broken, ran := c.net.broken, c.net.ran
	c.net.mu.Unlock()
	if broken == nil {
		broken = io.ErrUnexpectedEOF
	}
	switch what {
	case requestLost:
		return nil, c.die(broken)
	case requestLate:
		c.end(broken)
		to := c.to
		c.net.set(func(n *network) {
			n.late = append(n.late, func() {
				for _, m := range rest {
					if to.Do(m[0].(string), m[1:]...); to.Err() != nil { //nolint:errcheck // nobody reads the reply
						panic("what is late does not arrive: " + to.Err().Error())
					}
				}
				to.Close()
			})
		})
		return nil, broken
	}
	if err := c.pass(ctx, limit, before); err != nil {
		return nil, err
	}
	c.net.mu.Lock()
	answer := c.net.answer
	c.net.mu.Unlock()
	if answer != nil {
		if e := answer(name); e != "" {
			return e, nil
		}
	}
	var reply any = int64(1) // WAIT's: the one replica has it
	var err error
	if name != "WAIT" {
		reply, err = c.to.Do(name, m[1:]...)
	}
	if c.to.Err() != nil {
		return nil, c.die(c.to.Err())
	}
	if err != nil {
		reply = err
	}
	if ran != nil {
		ran(n, name)
	}
	if err := c.pass(ctx, limit, after); err != nil {
		return nil, err
	}
	if what == replyLost {
		return nil, c.die(broken)
	}
	return reply, nil
}

// pass lets time pass, until the client's patience ends.
func (c *conn) pass(ctx context.Context, limit, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	took := time.NewTimer(d)
	defer took.Stop()
	var over <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-took.C:
		return nil
	case <-over:
		return c.die(os.ErrDeadlineExceeded)
	case <-ctx.Done():
		return c.die(ctx.Err())
	case <-c.cut:
		return c.Err()
	}
}
