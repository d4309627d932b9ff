package compat_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/setlock"
)

// A wait for 30 s ends as it would by itself, whoever waits before it in the same process and fails:
// a short ttl of that one proves nothing to it.
func TestWaitEndsForItsOwnReasons(t *testing.T) {
	const long = 30 * time.Second
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		ttl   time.Duration // of the one before it
		slow  time.Duration // each command
		down  error         // what the source says …
		from  time.Duration // … from then on …
		lasts time.Duration // … until it has said so for so long
		held  time.Duration // how long another process has the key
		fails bool          // whether it does by itself
	}{
		"a server too slow for a short ttl":                 {ttl: 40 * time.Millisecond, slow: 60 * time.Millisecond},
		"a server too slow for a ttl just longer":           {ttl: 100 * time.Millisecond, slow: 130 * time.Millisecond},
		"a server that is gone for a short ttl":             {ttl: time.Second, down: refused, from: 10 * time.Second, lasts: time.Second, held: 20 * time.Second},
		"an election that lasts for a short ttl":            {ttl: 6 * time.Second, down: compat.ErrElection, lasts: 9 * time.Second},
		"an election in a long wait, longer than the limit": {ttl: 6 * time.Second, down: compat.ErrElection, from: 10 * time.Second, lasts: 9 * time.Second, held: 20 * time.Second},
		"a server that is gone for good":                    {ttl: 6 * time.Second, down: refused, from: 10 * time.Second, lasts: time.Hour, held: time.Minute, fails: true},
		"a server that never answers":                       {ttl: 6 * time.Second, slow: time.Hour, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, alone := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					s, err := oldredis.New("7.0", oldredis.Options{Clock: clock.New()})
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					other := compat.New(s.Pool(), setlock.Lua{}, compat.Options{NoRenew: true})
					defer other.Close(background) //nolint:errcheck // it ends the moment that a release may leave to others
					var holder *compat.Lock
					if c.held > 0 {
						if holder, err = other.TryLock(background, "k", time.Hour); err != nil {
							t.Fatal(err)
						}
					}
					began := time.Now()
					slow, down, up := time.Duration(0), time.Time{}, false
					k := compat.NewOn(compat.Source{Get: func(ctx context.Context, _ string) (redis.Conn, error) {
						if c.down != nil && slow > 0 && time.Since(began) >= c.from && !up {
							if down.IsZero() {
								down = time.Now()
							}
							up = time.Since(down) >= c.lasts
							return nil, c.down
						}
						return faulty.Over(s.Dial(), distant(&slow)), nil
					}}, setlock.Lua{}, compat.Options{NoRenew: true})
					defer k.Close(background) //nolint:errcheck // it ends the moment that a release may leave to others
					if l, err := k.TryLock(background, "another", long); err != nil {
						t.Fatal(err)
					} else {
						release(t, l) // the server has been checked
					}
					slow = max(c.slow, time.Microsecond)
					before := inBackground(func() {
						if alone {
							return
						}
						if l, err := k.Lock(background, "k", c.ttl); err == nil {
							t.Error("the one before it got the lock")
							release(t, l)
						}
					})
					synctest.Wait()
					done := inBackground(func() {
						l, err := k.Lock(background, "k", long)
						if (err != nil) != c.fails {
							t.Errorf("alone %t: after %v: %v", alone, time.Since(began), err)
						}
						if err == nil {
							release(t, l)
						}
					})
					time.Sleep(c.held)
					if holder != nil && c.lasts < time.Hour {
						release(t, holder)
					}
					<-before
					<-done
				})
			}
		})
	}
}
