package goredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter/goredis"
	"github.com/setnxlock/setnxlock/compat/adapter/internal/adaptertest"
	"github.com/setnxlock/setnxlock/compat/conformance"
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
