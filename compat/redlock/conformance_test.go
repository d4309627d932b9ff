package redlock_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// TestConformance runs the suite over quorums of embedded servers of several
// ages and over five real servers.
func TestConformance(t *testing.T) {
	modern := make([]member, 5)
	for i := range modern {
		modern[i] = member{"real", setlock.Lua{}}
	}
	for name, members := range map[string][]member{
		"of-five-ages": fleet,
		"of-three":     {fleet[4], fleet[2], fleet[2]},
		"of-two":       {fleet[4], fleet[3]},
		"of-one":       {fleet[4]},
		"of-today":     {{"8.6", setlock.IfEq{}}, {"valkey-9.1", setlock.IfEq{}}, {"valkey-8.1", setlock.Lua{}}},
		"of-five-real": modern,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sources []compat.Source
			for _, m := range members {
				if m.version == "real" {
					sources = append(sources, compat.Pooled(conformance.Dial(t, realredis.Start(t))))
					continue
				}
				s := must.Get(oldredis.New(m.version, oldredis.Options{Clock: clock.New()}))(t)
				t.Cleanup(func() { s.Close() })
				pool := s.Pool()
				pool.MaxIdle = 64
				sources = append(sources, compat.Pooled(pool))
			}
			conformance.Run(t, conformance.Lock{
				Name: "redlock", Server: name, Sources: sources,
				New: func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
					var servers []compat.Backend
					for i, m := range members {
						servers = append(servers, compat.NewBackend(wrap(sources[i]), m.algo))
					}
					q := redlock.Options{Timeout: time.Minute, Grace: time.Minute, Clock: o.Clock}
					o.Timeout = cmp.Or(o.Timeout, time.Minute) // others keep the processors busy
					return compat.NewLocker(redlock.New(servers, q), o)
				},
			})
		})
	}
}
