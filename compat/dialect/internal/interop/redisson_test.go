package interop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// Redisson's lock is a hash: it is recognised and refused by name. On one key with ours neither enters
// beside the other, but Redisson throws where it should wait, and we say that the key is foreign.
func TestInteropRedisson(t *testing.T) {
	t.Parallel()
	redisson.needs(t)
	s := realredis.Run(t)
	p := redisson.start(t, s.Addr, long)
	conn := must.Get(redis.Dial("tcp", s.Addr))(t)
	defer conn.Close()
	pool := &redis.Pool{MaxIdle: 1, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", s.Addr) }}
	defer pool.Close()

	p.acquire()
	fields := must.Get(redis.StringMap(conn.Do("HGETALL", "report")))(t)
	left := must.Get(redis.Int64(conn.Do("PTTL", "report")))(t)
	found := dialect.RecogniseHash("report", fields, time.Duration(left)*time.Millisecond, time.Now())
	if len(found) != 1 || found[0].Formats()[0] != dialect.Redisson || found[0].Status != dialect.Alive || found[0].Wrong != nil {
		t.Errorf("%v with a TTL of %d ms is recognised as %+v, want Redisson's, alive", fields, left, found)
	}
	for _, a := range []protocol.Algorithm{setlock.Lua{}, setlock.Watched{}, txlock.Guarded{}, txlock.Renamed{}} {
		l, err := compat.New(pool, a, compat.Options{}).TryLock(context.Background(), "report", long)
		if err == nil || !errors.Is(err, compat.ErrHeld) && !errors.Is(err, compat.ErrForeign) {
			t.Errorf("%T at Redisson's lock: %v, %v; want ErrHeld or ErrForeign", a, l, err)
		}
	}
	if got := p.do("release"); got != "released" {
		t.Errorf("Redisson says %q: we did not leave its lock alone", got)
	}

	l := must.Get(compat.New(pool, setlock.Lua{}, compat.Options{}).TryLock(context.Background(), "report", long))(t)
	if got := p.do("acquire"); !strings.HasPrefix(got, "threw ") || !strings.Contains(got, "WRONGTYPE") {
		t.Errorf("Redisson at our lock says %q, want its exception", got)
	}
	must.Do(t, l.Release(context.Background()))
	if _, err := txlock.Named(dialect.Redisson); !errors.Is(err, dialect.ErrUnsupported) {
		t.Errorf("Named: %v, want ErrUnsupported", err)
	}
}
