package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Try runs check, an algorithm's own, on the server that has key. A connection that breaks proves
// nothing about the server: the check runs again on another one. If the same command breaks two
// connections in a row, while a GET works before and after it, Try returns [compat.ErrUnanswered]
// and says what was seen: a proxy does that with a command that it lacks. A refusal because of a
// permission or memory is [compat.ErrDenied]. Other errors are check's, or the connection's.
func Try(ctx context.Context, source compat.Source, key string, o Options, check func(c *protocol.Conn, key string) error) error {
	s := newSession(ctx, source, o.timeout(), key)
	defer s.close()
	const tries = 4
	blamed := ""
	for try := 1; ; try++ {
		lost := s.lost
		c := &conn{ask: s.ask, failed: func() error { return s.err }}
		err := check(c.over(), key)
		broke := s.lost != lost
		if err != nil && c.refused == "" { // some servers keep a connection in the state of an EXEC that failed
			s.drop()
		}
		switch {
		case s.err != nil:
			return s.err
		case err == nil:
			return nil
		case c.refused != "" && !errors.Is(err, compat.ErrUnsafeServer):
			if c.blamed != blamed && try < tries {
				blamed = c.blamed
				continue
			}
			return fmt.Errorf("%w: %s, twice, on %s", compat.ErrUnanswered, string(c.refused), strings.TrimSpace(c.blamed))
		case !broke || c.refused != "":
			return c.denied(key, err)
		case try == tries:
			return fmt.Errorf("setnxlock: the connection to the server keeps breaking: %w", s.broke)
		}
	}
}

// A conn puts a check's commands to a session. Nothing is received from it.
type conn struct {
	redis.Conn // none
	ask        func(...protocol.Cmd) (replies []any, lost bool)
	failed     func() error

	on      *protocol.Conn // over it
	sent    []protocol.Cmd
	refused redis.Error // errClosed or errSilent, once a command broke the connection
	blamed  string      // that command, or the names of those in one write
}

// over is the Conn that asks over c.
func (c *conn) over() *protocol.Conn {
	c.on = protocol.NewConn(c)
	return c.on
}

// denied is protocol.Conn.Denied's.
func (c *conn) denied(key string, err error) error {
	if c.on == nil {
		c.over()
	}
	return c.on.Denied(key, err)
}

func (c *conn) Err() error   { return c.failed() }
func (c *conn) Close() error { return nil }
func (c *conn) Flush() error { return nil }

func (c *conn) Send(name string, args ...any) error {
	c.sent = append(c.sent, append(protocol.Cmd{name}, args...))
	return nil
}

func (c *conn) Do(name string, args ...any) (any, error) {
	cmds := c.sent
	c.sent = nil
	if name != "" {
		cmds = append(cmds, append(protocol.Cmd{name}, args...))
	}
	replies, lost := c.ask(cmds...)
	if lost {
		c.refused, _ = replies[0].(redis.Error)
		c.blamed = ""
		for _, cmd := range cmds {
			c.blamed += fmt.Sprint(cmd[0], " ")
		}
		return nil, errors.New("setnxlock: the server " + string(c.refused)) // no redis.Error: the server did not reply
	}
	if name == "" {
		return replies, c.failed()
	}
	err := c.failed()
	for _, r := range replies { // as redigo: the first error, whichever command it is of
		if refused, ok := r.(redis.Error); ok && err == nil {
			err = refused
		}
	}
	return replies[len(replies)-1], err
}
