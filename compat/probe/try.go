package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Check asks a lock whether it is safe on the server that has key. The error is
// [compat.ErrUnsafeServer] if it is proven not to be; an [*UnansweredError] if the same command broke
// four connections in a row, while a GET worked before and after it; [compat.ErrDenied] if a permission
// or memory is lacking; otherwise the check's, or the connection's. A connection that breaks proves nothing
// about the server: the check runs again on another one. Scratch keys begin with key and are in its slot.
func Check(ctx context.Context, source compat.Source, a protocol.Algorithm, key string, o Options) error {
	check := a.Traits().Check
	if check == nil {
		return nil
	}
	s := newSession(ctx, source, o.timeout(), key)
	defer s.close()
	return s.try(key, patient, func(c *protocol.Conn) error { return check(c, key) })
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
	return fmt.Sprintf("%s, four times, on %s", string(e.Reply), e.Commands)
}

// patient is how many connections in a row a write must break until it is blamed, where a lock may depend on
// it: [UnansweredError] says so.
const patient = 4

// try asks over a connection on which a plain GET worked, and anew over another if it breaks: the rest of the first was
// tidied up. The breakage is blamed on a write only if it ends connections in a row, as many as patience says, and if a
// GET works afterwards. key is the lock's, for the refusal of a permission.
func (s *session) try(key string, patience int, ask func(c *protocol.Conn) error) error {
	blamed, row := "", 0
	for range 2 * patience {
		if s.err == nil && !s.sure {
			s.connect()
		}
		if s.err != nil {
			return s.err
		}
		c := &conn{session: s}
		on := protocol.NewConn(c)
		err := ask(on)
		switch {
		case err == nil:
			return nil
		case c.broke == nil:
			s.drop() // some servers keep a connection in the state of an EXEC that failed
			return on.Denied(key, err)
		case s.ctx.Err() != nil:
			s.fail(err)
			return s.err
		}
		if row++; c.commands() != blamed {
			blamed, row = c.commands(), 1
		}
		switch {
		case !s.connect():
			return s.err
		case row < patience:
		case !errors.Is(err, c.broke): // what it broke on did not decide
			return on.Denied(key, err)
		default:
			return c.unanswered()
		}
	}
	return fmt.Errorf("setnxlock: the connection to the server keeps breaking: %w", s.broke)
}

// A conn puts a check's commands to a session. Nothing is received from it.
type conn struct {
	redis.Conn // none
	session    *session

	sent  []protocol.Cmd // in one write
	broke error          // why the session's connection broke on them
}

func (c *conn) Err() error   { return c.broke }
func (c *conn) Close() error { return nil }
func (c *conn) Flush() error { return nil }

func (c *conn) Send(name string, args ...any) error {
	if c.broke == nil {
		c.sent = append(c.sent, append(protocol.Cmd{name}, args...))
	}
	return c.broke
}

func (c *conn) Do(name string, args ...any) (any, error) {
	if name != "" {
		c.Send(name, args...) //nolint:errcheck // it is broken then
	}
	if c.broke != nil {
		return nil, c.broke
	}
	replies, err := c.session.pipe(c.sent)
	if err != nil {
		c.broke, c.session.broke = err, err
		c.session.drop()
		return nil, err
	}
	if c.session.observe != nil {
		c.session.observe(c.sent, replies)
	}
	c.sent = nil
	return answer.Do(name, replies)
}

// commands names the commands sent in one write.
func (c *conn) commands() string {
	names := make([]string, len(c.sent))
	for i, cmd := range c.sent {
		names[i] = fmt.Sprint(cmd[0])
	}
	return strings.Join(names, " ")
}

// unanswered returns the error for the write that broke the connection.
func (c *conn) unanswered() error {
	all := locks.Preferred()
	e := &UnansweredError{Closed, c.commands(), all[len(all)-1].Go}
	if errors.Is(c.broke, limit.ErrTimeout) {
		e.Reply = silent
	}
	if c.session.observe != nil {
		c.session.observe(c.sent, []any{e.Reply})
	}
	return e
}
