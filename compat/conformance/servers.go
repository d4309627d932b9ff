package conformance

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A Server is one that locks are run on.
type Server struct {
	Name    string // "oldredis-2.4", "real-redis-server", "at-10.0.0.1:6379"
	Source  *redis.Pool
	Version string // its own word; "" for a proxy, which has none to say

	Transactions bool // MULTI and EXEC

	anew func(t testing.TB) Server // another of its kind; nil: there is this one alone
}

// Older reports whether the server's version is before v; a proxy's is not.
func (s Server) Older(v string) bool {
	return s.Version != "" && ability.Older(s.Version, v)
}

// Servers returns the embedded Redis in all its versions and profiles, a real redis-server, one with a renamed EVAL,
// and the servers at the addresses in SETNXLOCK_TEST_REDIS (a comma-separated list). They are closed when the test
// ends.
func Servers(t testing.TB) []Server {
	t.Helper()
	var all []Server
	versions := slices.Concat(oldredis.Versions(), oldredis.Profiles())
	if realredis.UnderRace() {
		versions = []string{"1.2", "2.0", "2.4", "7.0", "twemproxy"}
	}
	for _, v := range versions {
		s := embedded(t, v)
		s.anew = func(t testing.TB) Server { return embedded(t, v) }
		all = append(all, s)
	}
	real := map[string][]string{
		"real-redis-server": nil,
		"real-without-EVAL": {"--rename-command", "EVAL", "", "--rename-command", "EVALSHA", ""},
	}
	if realredis.Embedded() {
		realredis.Skipped(t, "redis-server")
		real = nil
	}
	for name, args := range real {
		pool := Dial(t, realredis.Start(t, args...))
		all = append(all, Server{Name: name, Source: pool, Version: info(pool), Transactions: true})
	}
	for _, addr := range strings.Split(os.Getenv("SETNXLOCK_TEST_REDIS"), ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			all = append(all, at(Dial(t, addr), addr))
		}
	}
	return all
}

// Today returns the embedded servers of today, for locks that need one, and for all else to be run there too.
func Today(t testing.TB) []Server {
	t.Helper()
	var all []Server
	for _, v := range oldredis.Today() {
		s := embedded(t, v)
		s.anew = func(t testing.TB) Server { return embedded(t, v) }
		all = append(all, s)
	}
	return all
}

// embedded starts an embedded server.
func embedded(t testing.TB, version string) Server {
	t.Helper()
	s := must.Get(oldredis.New(version, oldredis.Options{Clock: clock.New()}))(t)
	t.Cleanup(func() { s.Close() })
	pool := s.Pool()
	pool.MaxIdle = idle
	t.Cleanup(func() { pool.Close() })
	known := Server{Name: "oldredis-" + version, Source: pool, Version: info(pool)}
	known.Transactions = version != "twemproxy"
	return known
}

// idle is as many connections as the suite's clients use at a time.
const idle = 64

// Dial returns a pool of connections to addr. It ends with the test.
func Dial(t testing.TB, addr string) *redis.Pool {
	p := &redis.Pool{MaxIdle: idle, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", addr, redis.DialReadTimeout(time.Minute))
	}}
	t.Cleanup(func() { p.Close() })
	return p
}

// at asks an unknown server for its abilities.
func at(pool *redis.Pool, addr string) Server {
	c := pool.Get()
	defer c.Close()
	scratch := "setnxlock-test:" + protocol.NewToken()
	err := ability.Check(protocol.NewConn(c), scratch, false, ability.Need{Ability: ability.Multi})
	return Server{Name: "at-" + addr, Source: pool, Version: info(pool), Transactions: err == nil}
}

func info(p *redis.Pool) string {
	c := p.Get()
	defer c.Close()
	text, err := redis.String(c.Do("INFO"))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(text, "redis_version:")
	v, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(v)
}

// An Algorithm is a lock on one server.
type Algorithm struct {
	Name string
	New  func(fence bool) protocol.Algorithm

	// Fenced says on which servers it can draw fences. nil: where there are transactions.
	Fenced func(Server) bool

	Ambiguous bool
	TTL       time.Duration
	Borrows   bool // its clients keep no connection between two steps
}

// On returns the algorithm's lock on s.
func (a Algorithm) On(s Server) Lock {
	l := a.on(s)
	if s.anew != nil {
		l.anew = func(t testing.TB) Lock { return a.on(s.anew(t)) }
	}
	return l
}

func (a Algorithm) on(s Server) Lock {
	fence := s.Transactions
	if a.Fenced != nil {
		fence = a.Fenced(s)
	}
	return Lock{
		Name: a.Name, Server: s.Name, Version: s.Version,
		New: func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
			return compat.NewOn(wrap(a.source(s)), a.New(fence), o)
		},
		Sources:   []compat.Source{a.source(s)},
		Fence:     fence,
		Ambiguous: a.Ambiguous,
		TTL:       a.TTL,
		algorithm: a.New(fence),
	}
}

func (a Algorithm) source(s Server) compat.Source {
	source := compat.Pooled(s.Source)
	if a.Borrows {
		source.Keep = 0
	}
	return source
}

// Everywhere runs the suite over each of algorithms on all [Servers].
func Everywhere(t *testing.T, algorithms ...Algorithm) {
	t.Helper()
	for _, s := range Servers(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, a := range algorithms {
				t.Run(a.Name, func(t *testing.T) {
					t.Parallel()
					Run(t, a.On(s))
				})
			}
		})
	}
}
