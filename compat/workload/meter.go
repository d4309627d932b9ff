package workload

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
)

// A Meter counts the traffic of the connections that were dialled through it. It sits beneath the
// client library, so it works with any library. It is safe for concurrent use.
type Meter struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	*tally
}

type tally struct {
	commands, trips, writes, out, in atomic.Int64
	open, most                       atomic.Int64
}

// A Count is what a Meter has counted so far.
type Count struct {
	Commands int64 // requests; each command of a MULTI counts
	Trips    int64 // round trips: how often the client waited for an answer, however many commands it had sent
	Writes   int64 // system calls that sent data
	Out, In  int64 // bytes
}

// NewMeter returns a Meter for connections made by dial; nil means a net.Dialer. The Meter must see
// plain text, so dial must do TLS itself.
func NewMeter(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Meter {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &Meter{dial, &tally{}}
}

// Over returns a Meter for connections made by another dial; its counts are added to m's.
func (m *Meter) Over(dial func(ctx context.Context, network, address string) (net.Conn, error)) *Meter {
	return &Meter{dial, m.tally}
}

// Beside returns a Meter that dials as m does and counts separately.
func (m *Meter) Beside() *Meter { return &Meter{m.dial, &tally{}} }

// Dial makes a counted connection.
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

// Count returns the counts of all connections so far, closed ones included.
func (m *Meter) Count() Count {
	return Count{m.commands.Load(), m.trips.Load(), m.writes.Load(), m.out.Load(), m.in.Load()}
}

// Open returns the number of open connections.
func (m *Meter) Open() int64 { return m.open.Load() }

// Most returns the largest number of connections that were open at the same time.
func (m *Meter) Most() int64 { return m.most.Load() }

// sub returns the counts since before.
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
	request request // used by Write only, which is not called concurrently
}

// A socket lets go-redis check, as it does before each use, whether the other side has closed the
// connection: without it, go-redis would do less work here than in a program.
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

// A request is the state of the parser of what a client sends. A command is an array of bulk
// strings, or a line ("inline").
type request struct {
	kind byte // of the line: '*', '$', or 'i' for inline; 0: at its start
	n    int  // the number in it
	args int  // of the command, not yet read
	skip int  // bytes of the argument, not yet read
}

// count returns the number of commands that begin in b.
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
