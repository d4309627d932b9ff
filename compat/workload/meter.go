package workload

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// A Meter counts what goes over the connections that were dialled through it:
// ours and, since it sits beneath every client library, anybody's. It is safe
// for concurrent use.
type Meter struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	*tally
}

type tally struct {
	commands, trips, writes, out, in atomic.Int64
	open, most                       atomic.Int64
}

// A Count is what a Meter has seen so far.
type Count struct {
	Commands int64 // requests, each of a MULTI by itself
	Trips    int64 // round trips: times that an answer was awaited, whatever was asked for at once
	Writes   int64 // system calls that sent something
	Out, In  int64 // bytes
}

// NewMeter returns a Meter of connections that dial makes. nil: a net.Dialer. What
// dial returns must be able to be read by anybody: TLS belongs into dial.
func NewMeter(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Meter {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Meter{dial, &tally{}}
}

// Over is m for connections that another dial makes: what goes over these is counted
// together with what m has.
func (m *Meter) Over(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Meter {
	return &Meter{dial, m.tally}
}

// Beside is a Meter that dials as m does, and counts for itself.
func (m *Meter) Beside() *Meter { return &Meter{m.dial, &tally{}} }

// Dial makes a connection that is counted.
func (m *Meter) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := m.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	for now, most := m.open.Add(1), m.most.Load(); now > most && !m.most.CompareAndSwap(most, now); {
		most = m.most.Load()
	}
	counted := &conn{Conn: c, m: m.tally}
	if s, ok := c.(syscall.Conn); ok {
		return &socket{counted, s}, nil
	}
	return counted, nil
}

// Count is what went over all connections so far, those that are closed included.
func (m *Meter) Count() Count {
	return Count{m.commands.Load(), m.trips.Load(), m.writes.Load(), m.out.Load(), m.in.Load()}
}

// Open is how many connections there are now, Most how many there were at once.
func (m *Meter) Open() int64 { return m.open.Load() }

// Most is the largest number of connections that were open at the same time.
func (m *Meter) Most() int64 { return m.most.Load() }

// sub is what happened since before.
func (c Count) sub(before Count) Count {
	return Count{c.Commands - before.Commands, c.Trips - before.Trips, c.Writes - before.Writes, c.Out - before.Out, c.In - before.In}
}

func (c Count) add(d Count) Count {
	return Count{c.Commands + d.Commands, c.Trips + d.Trips, c.Writes + d.Writes, c.Out + d.Out, c.In + d.In}
}

type conn struct {
	net.Conn
	m       *tally
	asked   atomic.Bool // something was sent since the last answer
	closed  atomic.Bool
	request request // of Write alone, which is nobody's at the same time
}

// A socket lets go-redis look, as it does before each use, whether the other
// side has hung up: without that it would do less here than in a program.
type socket struct {
	*conn
	syscall.Conn
}

func (c *conn) Write(b []byte) (int, error) {
	c.asked.Store(true)
	n, err := c.Conn.Write(b)
	c.m.writes.Add(1)
	c.m.out.Add(int64(n))
	c.m.commands.Add(int64(c.request.count(b[:n])))
	return n, err
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.m.in.Add(int64(n))
		if c.asked.CompareAndSwap(true, false) {
			c.m.trips.Add(1)
		}
	}
	return n, err
}

func (c *conn) Close() error {
	if !c.closed.Swap(true) {
		c.m.open.Add(-1)
	}
	return c.Conn.Close()
}

// A request is how far the parser of what a client sends has come. A command is
// an array of bulk strings, or a line ("inline").
type request struct {
	kind byte // of the line: '*', '$', or 'i' for inline; 0: at its start
	n    int  // the number in it
	args int  // of the command, still to come
	skip int  // bytes of the argument, still to come
}

// count returns how many commands begin in b.
func (r *request) count(b []byte) (commands int) {
	for len(b) > 0 {
		if r.skip > 0 {
			n := min(r.skip, len(b))
			r.skip -= n
			b = b[n:]
			continue
		}
		c := b[0]
		b = b[1:]
		switch {
		case r.kind == 0 && c != '*' && c != '$':
			r.kind = 'i'
		case r.kind == 0:
			r.kind, r.n = c, 0
		case c == '\n':
			commands += r.line()
		case c >= '0' && c <= '9':
			r.n = 10*r.n + int(c-'0')
		}
	}
	return commands
}

// line ends a line.
func (r *request) line() (commands int) {
	switch {
	case r.kind == '$' && r.args > 0:
		r.args--
		r.skip = r.n + len("\r\n")
	case r.kind == '*':
		r.args = r.n
		commands = 1
	case r.kind == 'i':
		commands = 1
	}
	r.kind = 0
	return commands
}
