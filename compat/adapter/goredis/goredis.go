// Package goredis runs the locks over the pool of a go-redis client, beside the program's other
// commands.
//
//	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", Protocol: 2, DisableIdentity: true})
//	locks := compat.NewOn(goredis.Source(client), txlock.Renamed{}, compat.Options{})
//
// go-redis begins a connection with HELLO, and goes on when a server does not know that command.
// This adapter was tested on Redis 1.3.6 and later, with Protocol 2 and without CLIENT SETINFO
// (DisableIdentity), and over RESP3, the client's default, on 7.0.
package goredis

import (
	"cmp"
	"context"
	"errors"
	"time"

	redigo "github.com/gomodule/redigo/redis"
	"github.com/redis/go-redis/v9"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Source returns a [compat.Source] of connections from client's pool. Each step of a lock borrows
// one: the pool (PoolSize) must have room for these and for the program's other commands. None is kept between two steps,
// unless you set the Source's Keep, which these connections bear. The client's hooks see nothing of the locks:
// package otel traces them.
//
// A command whose reply was lost may have run, so nothing is sent a second time: client's
// MaxRetries has no effect here. The engine's limit (compat.Options.Timeout) ends a step, or the
// client's ReadTimeout if that is shorter.
func Source(client *redis.Client) compat.Source {
	o := client.Options()
	client = client.WithTimeout(o.ReadTimeout) // a copy, with options of its own, on the same pool
	own := client.Options()
	own.WriteTimeout, own.MaxRetries, own.ContextTimeoutEnabled = o.WriteTimeout, 0, true
	return compat.Source{
		Bounded: true, // the client connects with the first command
		Get: func(context.Context, string) (redigo.Conn, error) {
			c := client.Conn()
			return adapter.New(exchange(c), func(broken bool) { end(c, broken) }), nil
		},
	}
}

func exchange(c *redis.Conn) adapter.Exchange {
	return func(ctx context.Context, cmds []protocol.Cmd) ([]any, error) {
		p := c.Pipeline()
		sent := make([]*redis.Cmd, len(cmds))
		for i, cmd := range cmds {
			sent[i] = p.Do(ctx, cmd...)
		}
		_, failed := p.Exec(ctx)
		replies := make([]any, len(cmds))
		for i, cmd := range sent {
			reply, err := cmd.Result()
			switch {
			case err != nil:
				reply = err
			case reply == nil: // not answered: a nil of the server's is the error redis.Nil
				return nil, notSent(cmp.Or(failed, errUnanswered))
			}
			if replies[i], err = value(reply); err != nil {
				return nil, notSent(err)
			}
		}
		return replies, nil
	}
}

var errUnanswered = errors.New("setnxlock: go-redis has no reply, and no error")

// value is a reply as redigo has it.
func value(reply any) (any, error) {
	switch reply := reply.(type) {
	case string:
		return adapter.Text(reply), nil
	case []any:
		for i, part := range reply {
			var err error
			if reply[i], err = value(part); err != nil {
				return nil, err
			}
		}
		return reply, nil
	case map[any]any: // RESP3's, which RESP2 has as an array
		var all []any
		for name, field := range reply {
			all = append(all, name, field)
		}
		return value(all)
	case error:
		var answer redis.Error
		switch {
		case errors.Is(reply, redis.Nil):
			return nil, nil
		case errors.As(reply, &answer):
			return redigo.Error(answer.Error()), nil
		}
		return nil, reply
	}
	return reply, nil
}

// notSent marks what the client says before it has a connection.
func notSent(err error) error {
	if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed) {
		return protocol.NotSent.Mark(err)
	}
	return err
}

// end returns the connection to the pool, or has the pool drop it, as it does one on which a write
// came too late.
func end(c *redis.Conn, broken bool) {
	if broken {
		c.Ping(over{context.Background()}) //nolint:errcheck // it is to fail
	}
	c.Close() //nolint:errcheck // nothing is lost by it
}

// over has a deadline that has passed, and has not ended: the client asks first whether it has, and
// would leave the connection as it is.
type over struct{ context.Context }

func (over) Deadline() (time.Time, bool) { return time.Unix(1, 0), true }
