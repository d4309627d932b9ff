package goredis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter/goredis"
	"github.com/setnxlock/setnxlock/compat/adapter/internal/adaptertest"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"go.uber.org/goleak"
)

// go-redis dials on for a second after its pool was closed.
func TestMain(m *testing.M) {
	conformance.Main(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// speaking opens clients of that protocol.
func speaking(protocol int) adaptertest.Open {
	return func(t testing.TB, addr string, size int) compat.Source {
		client := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, DisableIdentity: true, PoolSize: size, ReadTimeout: 20 * time.Second, MinRetryBackoff: -1})
		t.Cleanup(func() { client.Close() })
		return goredis.Source(client)
	}
}

func TestConformance(t *testing.T) { adaptertest.Conformance(t, speaking(2)) }

func TestConnections(t *testing.T) { adaptertest.Connections(t, speaking(2)) }

func TestRESP3(t *testing.T) { adaptertest.RESP3(t, speaking(3)) }

// A hook that lets no pipeline through does not stop a lock, whose commands it does not see.
func TestHooks(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: realredis.Start(t), DisableIdentity: true})
	defer client.Close()
	client.AddHook(closed{})
	ctx := context.Background()
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error { return p.Ping(ctx).Err() }); !errors.Is(err, errHook) {
		t.Fatalf("the hook lets a pipeline through: %v", err)
	}
	l := must.Get(compat.NewOn(goredis.Source(client), setlock.Lua{}, compat.Options{}).TryLock(ctx, "k", time.Minute))(t)
	must.Do(t, l.Release(ctx))
}

type closed struct{}

var errHook = errors.New("not sent")

func (closed) DialHook(next redis.DialHook) redis.DialHook { return next }

func (closed) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (closed) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return errHook }
}
