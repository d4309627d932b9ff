package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Check asks a lock whether it is safe on the server that has key. The error is
// [compat.ErrUnsafeServer] if it is proven not to be; an [*UnansweredError] if the same command broke
// two connections in a row, while a GET worked before and after it; [compat.ErrDenied] if a permission
// or memory is lacking; otherwise the check's, or the connection's. A connection that breaks proves nothing
// about the server: the check runs again on another one. Scratch keys begin with key and are in its slot.
func Check(ctx context.Context, source compat.Source, a protocol.Algorithm, key string, o Options) error {
	check := a.Traits().Check
	if check == nil {
		return nil
	}
	s := newSession(ctx, source, o.timeout(), key)
	defer s.close()
	return s.try(key, func(c *protocol.Conn) error { return check(c, key) })
}

// An UnansweredError is [compat.ErrUnanswered] with what was seen: a proxy does that with a command that
// it lacks.
type UnansweredError struct {
	Reply    redis.Error // what stands for the reply: "closed the connection" or "no answer in time"
	Commands string      // that were sent in one write
	Use      string      // the lock that needs least of a server
}

func (e *UnansweredError) Error() string {
	return fmt.Sprintf("%v: %s; if it is a proxy that lacks the command, use %s", compat.ErrUnanswered, e.why(), e.Use)
}

func (e *UnansweredError) Is(target error) bool { return target == compat.ErrUnanswered }

func (e *UnansweredError) why() string {
	return fmt.Sprintf("%s, twice, on %s", string(e.Reply), e.Commands)
}

// try asks anew as long as the connection breaks in the middle: what had been done by then was tidied
// up. key is the lock's, for the refusal of a permission.
func (s *session) try(key string, ask func(c *protocol.Conn) error) error {
	const tries = 4
	blamed := ""
	for try := 1; ; try++ {
		before := s.lost
		c := &conn{session: s}
		on := protocol.NewConn(c)
		err := ask(on)
		broke := s.lost != before
		if err != nil && c.refused == "" { // some servers keep a connection in the state of an EXEC that failed
			s.drop()
		}
		switch {
		case s.err != nil:
			return s.err
		case err == nil:
			return nil
		case c.refused != "" && !errors.Is(err, compat.ErrUnsafeServer):
			if c.blamed == blamed || try == tries {
				all := locks.Preferred()
				return &UnansweredError{c.refused, c.blamed, all[len(all)-1].Go}
			}
			blamed = c.blamed
		case !broke || c.refused != "":
			return on.Denied(key, err)
		case try == tries:
			return fmt.Errorf("setnxlock: the connection to the server keeps breaking: %w", s.broke)
		}
	}
}

// A conn puts a check's commands to a session. Nothing is received from it.
type conn struct {
	redis.Conn // none
	session    *session

	sent    []protocol.Cmd
	refused redis.Error // Closed or silent, once a command broke the connection
	blamed  string      // that command, or the names of those in one write
}

func (c *conn) Err() error   { return c.session.err }
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
	replies := c.session.ask(cmds...)
	switch {
	case c.session.err != nil:
		return nil, c.session.err
	case lost(replies):
		c.refused, _ = replies[0].(redis.Error)
		names := make([]string, len(cmds))
		for i, cmd := range cmds {
			names[i] = fmt.Sprint(cmd[0])
		}
		c.blamed = strings.Join(names, " ")
		return nil, errors.New("setnxlock: the server " + string(c.refused)) // no redis.Error: the server did not reply
	}
	return answer.Do(name, replies)
}
