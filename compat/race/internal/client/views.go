package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A view is a connection to one of several servers.
type view struct {
	redis.Conn
	server int
	key    string
	lent   bool // it is another's, who closes it
	err    error
}

// A views makes a Source of views: over connections of the client that is explored,
// or over one that was handed in.
type views struct {
	a      *Agent
	lent   redis.Conn
	server int
}

func (v views) source() compat.Source { return compat.Source{Get: v.dial, Bounded: true} }

// dial finds out whether the server is gone where no engine does.
func (v views) dial(context.Context, string) (redis.Conn, error) {
	if v.lent != nil {
		if gone, _ := redis.Bool(v.lent.Do("EXISTS", plan.Nth(v.server)+plan.DownKey)); gone {
			return nil, errNoAnswer
		}
		return &view{Conn: v.lent, server: v.server, key: v.a.Setup.Key, lent: true}, nil
	}
	return &view{Conn: v.a.wire(), server: v.server, key: v.a.Setup.Key}, nil
}

// errNoAnswer is what a client knows of a server that is gone, and of a message
// to one of several that was lost: its patience with it was over.
var errNoAnswer = fmt.Errorf("race: no answer: %w", os.ErrDeadlineExceeded)

func (v *view) Err() error { return errors.Join(v.err, v.Conn.Err()) }

func (v *view) Close() error {
	if v.lent {
		return nil
	}
	return v.Conn.Close()
}

// on renames keys for this server.
func (v *view) on(args []any) []any {
	list := make([]any, len(args))
	for i, a := range args {
		if s, ok := a.(string); ok && strings.Contains(s, v.key) {
			a = plan.KeyOn(s, v.server)
		}
		list[i] = a
	}
	return list
}

func (v *view) Send(cmd string, args ...any) error {
	if err := v.Err(); err != nil {
		return err
	}
	return v.Conn.Send(cmd, v.on(args)...)
}

func (v *view) Do(cmd string, args ...any) (any, error) {
	if err := v.Err(); err != nil {
		return nil, err
	}
	return v.Conn.Do(cmd, v.on(args)...)
}

func (v *view) DoContext(ctx context.Context, cmd string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		v.err = err // as redigo does it to a healthy connection
		return nil, err
	}
	return v.Do(cmd, args...)
}

func (v *view) DoWithTimeout(_ time.Duration, cmd string, args ...any) (any, error) {
	return v.Do(cmd, args...)
}

func (v *view) ReceiveContext(context.Context) (any, error) { return nil, errNoReceive }

func (v *view) ReceiveWithTimeout(time.Duration) (any, error) { return nil, errNoReceive }
