package rueidis_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/adapter/internal/adaptertest"
	adapter "github.com/setnxlock/setnxlock/compat/adapter/rueidis"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/internal/must"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// speaking opens clients of one protocol.
func speaking(resp2 bool) adaptertest.Open {
	return func(t testing.TB, addr string, size int) compat.Source {
		client := must.Get(rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{addr}, AlwaysRESP2: resp2, DisableCache: true, ForceSingleClient: true, BlockingPoolSize: size, ConnWriteTimeout: 20 * time.Second,
		}))(t)
		t.Cleanup(client.Close)
		return adapter.Source(client)
	}
}

func TestConformance(t *testing.T) { adaptertest.Conformance(t, speaking(true)) }

func TestConnections(t *testing.T) { adaptertest.Connections(t, speaking(true)) }

func TestRESP3(t *testing.T) { adaptertest.RESP3(t, speaking(false)) }
