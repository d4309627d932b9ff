package sentinel

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	answers "github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A conn is a connection to a server that was named master. It believes no
// reply that came later than Recheck after that, unless the Sentinels name the
// same server once more: a server that stood still answers, when it goes on,
// what was asked of it before it was replaced (any/failover).
type conn struct {
	redis.Conn
	s         *Source
	m         *master
	confirmed time.Time // when the server last said that it is a master

	broke atomic.Bool // it was seen that it did

	mu  sync.Mutex
	err error // not nil: it is closed
}

// dial returns a connection to m, unless m denies to be a master.
func (s *Source) dial(ctx context.Context, m *master) (redis.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	c, err := s.o.Dial(ctx, m.addr)
	if err != nil {
		return nil, limit.Dialled(err)
	}
	n := &conn{Conn: c, s: s, m: m}
	if err := n.ask(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return n, nil
}

// fit returns nil if an idle connection still leads to the master.
func (c *conn) fit(ctx context.Context) error {
	c.s.mu.Lock()
	doubted := c.m.doubted
	c.s.mu.Unlock()
	if c.confirmed.After(doubted) && c.s.o.Clock.Since(c.confirmed) < c.s.o.Recheck {
		return nil
	}
	return c.ask(ctx)
}

// ask asks the server for its role and for any other answer: ROLE alone is answered by one that still loads its data.
// One that tells neither ROLE (2.8.12) nor INFO is what the Sentinels say it is, until it refuses a write.
func (c *conn) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.s.o.Timeout)
	defer cancel()
	asked := c.s.o.Clock.Now()
	b := bounded{c.Conn, ctx}
	replies, err := protocol.NewConn(b).Pipe(protocol.Cmd{"ROLE"}, protocol.Cmd{"EXISTS", c.s.name})
	if err != nil {
		return err
	}
	if e, ok := replies[1].(redis.Error); ok && passing(e) {
		return fmt.Errorf("%s: %w", c.m.addr, e)
	}
	role := ""
	switch r := replies[0].(type) {
	case redis.Error:
		if !untold(r) {
			return fmt.Errorf("%s: %w", c.m.addr, r)
		}
		info, err := redis.String(b.Do("INFO"))
		if err != nil && !untold(err) {
			return fmt.Errorf("%s: %w", c.m.addr, err)
		}
		role = answers.Info(info, "role")
	default:
		all, err := redis.Values(r, nil)
		if err == nil && len(all) > 0 {
			role, err = redis.String(all[0], nil)
		}
		if err != nil || role == "" { // perhaps another question's answer
			return fmt.Errorf("%s: ROLE answers %.80q", c.m.addr, fmt.Sprint(r))
		}
	}
	if role != "master" && role != "" {
		return &notMaster{c.m.addr, "is a " + role}
	}
	c.confirmed = asked
	return nil
}

// untold reports whether the server lacks the command, or an ACL or a proxy forbids it.
func untold(err error) bool {
	e, _ := err.(redis.Error)
	s := strings.ToLower(string(e))
	return slices.ContainsFunc([]string{"unknown command", "noperm", "not supported", "not allowed", "unsupported command", "disabled command"},
		func(words string) bool { return strings.Contains(s, words) })
}

func (c *conn) Do(name string, args ...any) (any, error) {
	reply, err := c.Conn.Do(name, args...)
	return c.believe(context.Background(), name, reply, err)
}

func (c *conn) DoContext(ctx context.Context, name string, args ...any) (any, error) {
	reply, err := redis.DoContext(c.Conn, ctx, name, args...)
	return c.believe(ctx, name, reply, err)
}

func (c *conn) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	reply, err := redis.DoWithTimeout(c.Conn, d, name, args...)
	return c.believe(context.Background(), name, reply, err)
}

func (c *conn) Receive() (any, error) {
	reply, err := c.Conn.Receive()
	return c.believe(context.Background(), "Receive", reply, err)
}

func (c *conn) ReceiveContext(ctx context.Context) (any, error) {
	reply, err := redis.ReceiveContext(c.Conn, ctx)
	return c.believe(ctx, "Receive", reply, err)
}

func (c *conn) ReceiveWithTimeout(d time.Duration) (any, error) {
	reply, err := redis.ReceiveWithTimeout(c.Conn, d)
	return c.believe(context.Background(), "Receive", reply, err)
}

// believe returns a reply from the master. It closes the connection over any other.
func (c *conn) believe(ctx context.Context, name string, reply any, err error) (any, error) {
	if c.Err() != nil {
		if !c.broke.Swap(true) && !limit.Cancelled(ctx) {
			c.s.doubt(c.m)
		}
		return reply, err
	}
	if e, ok := refusal(reply, err); ok {
		c.s.doubt(c.m)
		return nil, c.disown("answers " + string(e))
	}
	if name == "" && reply == nil { // a pool's Do(""), with nothing to be answered
		return reply, err
	}
	switch m, asked := c.s.master(ctx); {
	case asked != nil:
		return nil, c.disown("can't be told to be the master: " + asked.Error())
	case m != c.m:
		return nil, c.disown("was replaced by " + m.addr)
	}
	return reply, err
}

// disown closes the connection and says why.
func (c *conn) disown(why string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = &notMaster{c.m.addr, why}
	c.Conn.Close()
	return c.err
}

func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	return c.Conn.Err()
}

// refusal finds, in a reply or in those of a pipeline or an EXEC, the words of a server that is no master. The command
// was not run.
func refusal(reply any, err error) (redis.Error, bool) {
	if e, ok := err.(redis.Error); ok && passing(e) {
		return e, true
	}
	switch r := reply.(type) {
	case redis.Error:
		return r, passing(r)
	case []any:
		for _, one := range r {
			if e, ok := refusal(one, nil); ok {
				return e, true
			}
		}
	}
	return "", false
}

// passing reports whether another server is the master, or the same a little later. A Sentinel that has not seen the
// master yet says IDONTKNOW.
func passing(e redis.Error) bool {
	r := answers.Known(e)
	return r != nil && r.CannotServe && r.Passes || strings.HasPrefix(string(e), "IDONTKNOW ")
}
