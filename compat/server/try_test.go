package server_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/server"
	"github.com/setnxlock/setnxlock/txlock"
)

// A breaking is a source whose connections break: on a command, or by chance.
type breaking struct {
	compat.Pool
	on     string
	chance *rand.Rand // one in ten
}

func (b *breaking) GetContext(ctx context.Context) (redis.Conn, error) {
	c, err := b.Pool.GetContext(ctx)
	return &breaks{Conn: c, b: b}, err
}

type breaks struct {
	redis.Conn
	b      *breaking
	queued []string
	gone   bool
}

func (c *breaks) Send(name string, args ...any) error {
	c.queued = append(c.queued, name)
	return c.Conn.Send(name, args...)
}

func (c *breaks) DoContext(_ context.Context, name string, args ...any) (any, error) {
	return c.Do(name, args...)
}

func (c *breaks) ReceiveContext(context.Context) (any, error) { return c.Receive() }

func (c *breaks) Do(name string, args ...any) (any, error) {
	names := append(c.queued, name)
	c.queued = nil
	for _, n := range names {
		c.gone = c.gone || n != "" && n == c.b.on
	}
	if c.gone = c.gone || c.b.chance != nil && c.b.chance.IntN(10) == 0; c.gone {
		return nil, errors.New("connection reset by peer")
	}
	return c.Conn.Do(name, args...)
}

// A connection that breaks now and then says nothing about the server.
func TestTryOnABreakingNetwork(t *testing.T) {
	for seed := range uint64(10) {
		source := &breaking{Pool: oldredis.Run(t, "2.4"), chance: rand.New(rand.NewPCG(seed, 0))}
		passed := 0
		for range 100 {
			err := server.Try(t.Context(), compat.Pooled(source), "k", server.Options{}, txlock.Renamed{}.Traits().Check)
			if errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrUnanswered) {
				t.Errorf("seed %d: %v", seed, err)
			}
			if err == nil {
				passed++
			}
		}
		if passed < 50 {
			t.Errorf("seed %d: only %d of 100 passed", seed, passed)
		}
	}
}

// A server that breaks every connection on one command may lack that command: what
// was seen is told, and nothing is called proven.
func TestTryOnARefusal(t *testing.T) {
	source := &breaking{Pool: oldredis.Run(t, "2.4"), on: "WATCH"}
	err := server.Try(t.Context(), compat.Pooled(source), "k", server.Options{}, txlock.Renamed{}.Traits().Check)
	if !errors.Is(err, compat.ErrUnanswered) || errors.Is(err, compat.ErrUnsafeServer) || !strings.HasSuffix(err.Error(), "closed the connection, twice, on WATCH UNWATCH WATCH DEL MULTI GET EXEC") {
		t.Error(err)
	}
	source.on = "GET"
	if err := server.Try(t.Context(), compat.Pooled(source), "k", server.Options{}, txlock.Renamed{}.Traits().Check); err == nil || errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrUnanswered) {
		t.Errorf("nothing works: %v", err)
	}
}

// A server that has what the check asks for passes, and one that has not fails.
func TestTry(t *testing.T) {
	for version, want := range map[string]error{
		"2.0": compat.ErrUnsafeServer, "2.2": compat.ErrUnsafeServer, "2.4": nil, "7.0": nil, "twemproxy": compat.ErrUnanswered,
	} {
		err := server.Try(t.Context(), compat.Pooled(oldredis.Run(t, version)), "k", server.Options{}, txlock.Renamed{}.Traits().Check)
		if !errors.Is(err, want) || errors.Is(err, compat.ErrUnsafeServer) && want != compat.ErrUnsafeServer {
			t.Errorf("%s: %v, want %v", version, err, want)
		}
	}
}
