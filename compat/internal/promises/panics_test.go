package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A tripwire panics at the n-th call of one of a user's functions.
type tripwire struct {
	what string
	n    int
}

func (t *tripwire) step(what string) {
	if t.what != what {
		return
	}
	if t.n--; t.n == 0 {
		panic("the user's")
	}
}

// careless is a lock whose functions may panic.
type careless struct {
	protocol.Algorithm
	trip *tripwire
}

func (a careless) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	a.trip.step("Acquire")
	return a.Algorithm.Acquire(c, now, key, ttl)
}

func (a careless) Extend(now time.Time, l compat.Lease, ttl time.Duration, rotate bool) (compat.Lease, protocol.Change, error) {
	a.trip.step("Extend")
	next, ch, err := a.Algorithm.Extend(now, l, ttl, rotate)
	ch.After = func(*protocol.Conn) error { a.trip.step("After"); return nil }
	return next, ch, err
}

func (a careless) Inspect(c *protocol.Conn, now time.Time, key string) (compat.State, error) {
	a.trip.step("Inspect")
	return a.Algorithm.Inspect(c, now, key)
}

func (a careless) Traits() protocol.Traits {
	traits := a.Algorithm.Traits()
	check := traits.Check
	traits.Check = func(c *protocol.Conn, key string) error {
		a.trip.step("Check")
		return check(c, key)
	}
	return traits
}

// A user's function that panics takes no connection with it, and leaves no lock of ours on the server.
func TestPanicsLeaveNothingBehind(t *testing.T) {
	for _, what := range []string{"Acquire", "Extend", "After", "Inspect", "Check", "Dial", "Token", "Rand", "Observer", "f"} {
		for name, keep := range map[string]int{"": 0, "kept": 2} {
			t.Run(what+"/"+name, func(t *testing.T) {
				for n := 1; n <= 8; n++ {
					inWorld(t, one("tx:renamed", "2.4", nil), func(w *world) {
						trip, o := &tripwire{what, 0}, compat.Options{NoRenew: true}
						o.Observer = func(compat.Event) { trip.step("Observer") }
						o.Rand = func() float64 { trip.step("Rand"); return 0 }
						pool := &redis.Pool{MaxIdle: 9, Dial: func() (redis.Conn, error) { trip.step("Dial"); return w.servers[0].Dial(), nil }}
						a := careless{txlock.Renamed{Options: txlock.Options{Token: func() string { trip.step("Token"); return protocol.NewToken() }}}, trip}
						locker := compat.NewOn(kept(keep, []compat.Source{compat.Pooled(pool)})[0], a, o)
						rival, _ := w.clientOf(txlock.Renamed{}, compat.Options{NoRenew: true})
						caught := func(f func()) {
							defer func() { recover() }() //nolint:errcheck // the user's
							f()
						}
						held := must.Get(rival.TryLock(background, "held", time.Hour))(t)
						trip.n = n
						for _, call := range []func(){
							func() {
								if l, err := locker.TryLock(background, "k", long); err == nil {
									defer l.Release(background)
									l.Extend(background, long) //nolint:errcheck
								}
							},
							func() {
								locker.Do(background, "k", long, func(context.Context) error { trip.step("f"); return nil }) //nolint:errcheck
							},
							func() { locker.Inspect(background, "k") },                    //nolint:errcheck
							func() { locker.Lock(w.within(3*time.Second), "held", long) }, //nolint:errcheck
							func() {
								if l, err := locker.Lock(background, "k", long); err == nil {
									go caught(func() {
										if l, err := locker.Lock(background, "k", long); err == nil {
											l.Release(background) //nolint:errcheck
										}
									})
									pass(time.Millisecond)
									l.Token()             // it is extended when it is handed off
									l.Release(background) //nolint:errcheck
								}
							},
						} {
							caught(call)
							pass(5 * time.Second)
						}
						trip.n = 0
						if l, err := rival.TryLock(background, "k", long); err != nil {
							t.Errorf("the %d-th call: a lock of ours is left: %v", n, err)
						} else {
							l.Release(background) //nolint:errcheck
						}
						if active, idle := pool.ActiveCount(), pool.IdleCount(); active != idle && what != "Dial" { // redigo counts one whose Dial panics
							t.Errorf("the %d-th call: %d of %d connections are not returned", n, active-idle, active)
						}
						if err := locker.Close(w.within(time.Minute)); err != nil {
							t.Errorf("the %d-th call: Close: %v", n, err)
						}
						held.Release(background) //nolint:errcheck
						pool.Close()
					})
				}
			})
		}
	}
}
