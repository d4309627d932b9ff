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
	compat.Source
	on     string
	chance *rand.Rand // one in ten
}

func (b *breaking) GetContext(ctx context.Context) (redis.Conn, error) {
	c, err := b.Source.GetContext(ctx)
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
		source := &breaking{Source: oldredis.Run(t, "2.4"), chance: rand.New(rand.NewPCG(seed, 0))}
		passed := 0
		for range 100 {
			err := server.Try(t.Context(), source, "k", server.Options{}, txlock.Renamed{}.Check)
			if errors.Is(err, compat.ErrUnsafeServer) {
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

// A server that breaks every connection on one command refuses that command.
func TestTryOnARefusal(t *testing.T) {
	source := &breaking{Source: oldredis.Run(t, "2.4"), on: "WATCH"}
	err := server.Try(t.Context(), source, "k", server.Options{}, txlock.Renamed{}.Check)
	if !errors.Is(err, compat.ErrUnsafeServer) || !strings.Contains(err.Error(), "as a proxy does") {
		t.Error(err)
	}
	source.on = "GET"
	if err := server.Try(t.Context(), source, "k", server.Options{}, txlock.Renamed{}.Check); err == nil || errors.Is(err, compat.ErrUnsafeServer) {
		t.Errorf("nothing works: %v", err)
	}
}

// A server that has what the check asks for passes, and one that has not fails.
func TestTry(t *testing.T) {
	for version, safe := range map[string]bool{"2.0": false, "2.2": false, "2.4": true, "7.0": true, "twemproxy": false} {
		err := server.Try(t.Context(), oldredis.Run(t, version), "k", server.Options{}, txlock.Renamed{}.Check)
		if (err == nil) != safe || err != nil && !errors.Is(err, compat.ErrUnsafeServer) {
			t.Errorf("%s: %v", version, err)
		}
	}
}
