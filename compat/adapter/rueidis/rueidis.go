// Package rueidis runs the locks over dedicated connections of a rueidis client.
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{
//		InitAddress: []string{"127.0.0.1:6379"}, AlwaysRESP2: true, DisableCache: true,
//	})
//	locks := compat.NewOn(adapter.Source(client), txlock.Renamed{}, compat.Options{})
package rueidis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/redis/rueidis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Source returns a [compat.Source] of dedicated connections of client. Each step of a lock borrows
// one: the client's BlockingPoolSize must have room for all of them. None is kept between two steps, unless you set the
// Source's Keep, which these connections bear. Connections that the client shares between
// goroutines can't carry a lock: a WATCH on one would be shared as well.
//
// The client sends nothing of a lock a second time, whatever its DisableRetry says.
func Source(client rueidis.Client) compat.Source {
	return compat.Source{
		Get: func(context.Context, string) (redis.Conn, error) {
			c, release := client.Dedicate()
			return adapter.New(exchange(c), func(broken bool) {
				if !broken {
					release()
					return
				}
				go func() { // Close asks the server, for a second if it is silent, and nobody is to wait for that
					c.Close()
					release()
				}()
			}), nil
		},
	}
}

func exchange(c rueidis.DedicatedClient) adapter.Exchange {
	return func(ctx context.Context, cmds []protocol.Cmd) ([]any, error) {
		send := make([]rueidis.Completed, len(cmds))
		for i, cmd := range cmds {
			args := make([]string, len(cmd))
			for j, arg := range cmd {
				args[j] = text(arg)
			}
			send[i] = c.B().Arbitrary(args...).Build()
		}
		replies := make([]any, len(cmds))
		for i, r := range c.DoMulti(ctx, send...) {
			if err := r.NonRedisError(); err != nil {
				return nil, notSent(err)
			}
			m, err := r.ToMessage()
			if replies[i], err = value(&m, err); err != nil {
				return nil, err
			}
		}
		return replies, nil
	}
}

// text writes an argument as redigo does.
func text(arg any) string {
	switch arg := arg.(type) {
	case string:
		return arg
	case []byte:
		return string(arg)
	case bool:
		if arg {
			return "1"
		}
		return "0"
	case nil:
		return ""
	}
	return fmt.Sprint(arg)
}

// value turns a reply into redigo's.
func value(m *rueidis.RedisMessage, err error) (any, error) {
	if err == nil {
		err = m.Error()
	}
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	if e, answered := rueidis.IsRedisErr(err); answered {
		return refusal(e.Error()), nil
	}
	if err != nil {
		return nil, err
	}
	switch {
	case m.IsInt64():
		return m.ToInt64()
	case m.IsArray():
		parts, err := m.ToArray()
		if err != nil {
			return nil, err
		}
		all := make([]any, len(parts))
		for i := range parts {
			if all[i], err = value(&parts[i], nil); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	if m.IsMap() { // RESP3's, which RESP2 has as an array
		fields, err := m.ToMap()
		var all []any
		for name, field := range fields {
			v, wrong := value(&field, nil)
			all, err = append(all, []byte(name), v), errors.Join(err, wrong)
		}
		return all, err
	}
	s, err := m.ToString()
	if !m.IsString() {
		s = strings.TrimPrefix(s, "txt:") // INFO's, over RESP3
	}
	return adapter.Text(s), err
}

// refusal restores an error of the server: the client has taken ERR off, but no other word.
func refusal(text string) redis.Error {
	word, _, _ := strings.Cut(text, " ")
	if answer.Known(redis.Error(word)) == nil && word != "WRONGTYPE" {
		text = "ERR " + text
	}
	return redis.Error(text)
}

// notSent marks the client's errors from before it has a connection.
func notSent(err error) error {
	if errors.Is(err, rueidis.ErrClosing) || errors.Is(err, rueidis.ErrDedicatedClientRecycled) {
		return protocol.NotSent.Mark(err)
	}
	return err
}
