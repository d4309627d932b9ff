// Package promises_test holds each promise of the locks against every kind of
// lock and every fault, from outside.
package promises_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"

	"github.com/benbjohnson/clock"
)

var background = context.Background()

// A kind is a lock, the versions of its servers, and how a client of it is made.
type kind struct {
	name     string
	versions []string
	key      string
	pinned   bool
	shared   bool // steps share connections
	make     func(servers []compat.Source, o compat.Options) *compat.Locker
}

// each are the single keys of what is locked, as locks of their own.
func (k kind) each() []string {
	keys, err := multilock.Split(k.key)
	if err != nil {
		return []string{k.key}
	}
	for i := range keys {
		keys[i] = multilock.Join(keys[i])
	}
	return keys
}

// on is where the value of a lock of key stands.
func (k kind) on(key string) string {
	if strings.HasPrefix(k.name, "semaphore") {
		return protocol.Aux(key, "1")
	}
	return key
}

// another is the n-th key beside the first, that has nothing to do with it.
func (k kind) another(n int) string {
	if _, err := multilock.Split(k.key); err != nil {
		return fmt.Sprint(k.key, n)
	}
	return multilock.Join(fmt.Sprint("d", n), fmt.Sprint("e", n))
}

// one is a kind of one server.
func one(name, version string, a protocol.Algorithm) kind {
	return kind{name: name, versions: []string{version}, key: "k",
		make: func(s []compat.Source, o compat.Options) *compat.Locker { return compat.NewOn(s[0], a, o) }}
}

// plain only forwards, as a user's own type that has an Algorithm in it.
type plain struct{ protocol.Algorithm }

// keeping is a user's own lock that can't change its value: an earlier extension may run after a later one.
type keeping struct{ protocol.Algorithm }

func (a keeping) Extend(now time.Time, l compat.Lease, ttl time.Duration, _ bool) (compat.Lease, protocol.Change, error) {
	return a.Algorithm.Extend(now, l, ttl, false)
}

func (a keeping) Traits() protocol.Traits {
	t := a.Algorithm.Traits()
	t.Rotates = false
	return t
}

// singles are the locks of one key on one server.
func singles(fence bool) []kind {
	stamp, token, set := getsetlock.Options{Fence: fence}, txlock.Options{Fence: fence}, setlock.Options{Fence: fence}
	listed := token
	listed.ListCAS = true
	return []kind{
		one("getset:classic", "2.0", getsetlock.Classic{Options: stamp}),
		one("getset:guarded", "2.2", getsetlock.Guarded{Options: stamp}),
		one("getset:listed", "2.0", getsetlock.ListCAS{Options: stamp}),
		one("tx:classic", "2.4", txlock.Classic{Options: token}),
		one("tx:guarded", "2.2", txlock.Guarded{Options: token}),
		one("tx:renamed", "2.4", txlock.Renamed{Options: token}),
		one("tx:renamed/listed", "2.4", txlock.Renamed{Options: listed}),
		one("set:lua", "2.6.12", setlock.Lua{Options: set}),
		one("set:script", "2.6", setlock.Script{Options: set}),
		one("set:watched", "2.6.12", setlock.Watched{Options: set}),
	}
}

// quorum is a redlock. In sequence, what it sends depends on the answers alone.
func quorum(name string, sequential bool, versions []string, a ...protocol.Algorithm) kind {
	return kind{name: name, versions: versions, key: "k",
		make: func(s []compat.Source, o compat.Options) *compat.Locker {
			backends := make([]compat.Backend, len(a))
			for i := range a {
				backends[i] = compat.NewBackend(s[i], a[i])
			}
			return compat.NewLocker(redlock.New(backends, redlock.Options{Sequential: sequential, Clock: o.Clock}), o)
		}}
}

// several is multilock.New.
func several(name, version string, a protocol.Algorithm) kind {
	return kind{name: name, versions: []string{version}, key: multilock.Join("a", "b", "c"),
		make: func(s []compat.Source, o compat.Options) *compat.Locker {
			return compat.NewLocker(multilock.New(s[0], a), o)
		}}
}

// composites are made of others.
func composites(fence bool) []kind {
	stamp, token, set := getsetlock.Options{Fence: fence}, txlock.Options{Fence: fence}, setlock.Options{Fence: fence}
	together := func(name, version string, a protocol.Algorithm) kind {
		k := one(name, version, a)
		k.key = multilock.Join("a", "b", "c")
		return k
	}
	pinned := func(name, version string, a protocol.Algorithm) kind {
		k := one(name, version, a)
		k.pinned = true
		one := k.make
		k.make = func(s []compat.Source, o compat.Options) *compat.Locker { return one(kept(2, s), o) }
		return k
	}
	return []kind{
		several("multilock.New(getset:guarded)", "2.2", getsetlock.Guarded{Options: stamp}),
		several("multilock.New(tx:renamed)", "2.4", txlock.Renamed{Options: token}),
		several("multilock.New(set:lua)", "7.0", setlock.Lua{Options: set}),
		together("multilock.Tx", "2.4", multilock.Tx{Options: token}),
		together("multilock.GetSet", "2.4", multilock.GetSet{Options: stamp}),
		quorum("redlock(getset:guarded)", true, []string{"2.2", "2.2", "2.2"}, getsetlock.Guarded{Options: stamp}, getsetlock.Guarded{Options: stamp}, getsetlock.Guarded{Options: stamp}),
		quorum("redlock(mixed)", true, []string{"2.0", "2.4", "7.0"}, getsetlock.ListCAS{Options: stamp}, txlock.Renamed{Options: token}, setlock.Lua{Options: set}),
		one("sentinel.Replicated(getset:guarded)", "5.0", sentinel.Replicated{Algorithm: getsetlock.Guarded{Options: stamp}}),
		one("sentinel.Replicated(tx:renamed)", "5.0", sentinel.Replicated{Algorithm: txlock.Renamed{Options: token}}),
		one("forwarding(getset:guarded)", "2.2", plain{getsetlock.Guarded{Options: stamp}}),
		one("forwarding(tx:renamed)", "2.4", plain{txlock.Renamed{Options: token}}),
		pinned("pinned getset:guarded", "2.2", getsetlock.Guarded{Options: stamp}),
		pinned("pinned tx:renamed", "2.4", txlock.Renamed{Options: token}),
		pinned("pinned set:watched", "2.6.12", setlock.Watched{Options: set}),
		one("rwlock.Write", "2.4", rwlock.Write{Options: rwlock.Options{Fence: fence}}),
		one("semaphore of 1", "2.2", semaphore.Lock{Options: semaphore.Options{N: 1, Fence: fence}}),
		one("semaphore of 1 over set:lua", "7.0", semaphore.Lock{Options: semaphore.Options{N: 1, Fence: fence, Millis: true, Slot: luaSlot}}),
	}
}

// seconds are the locks of times whose values are not unique: two clients can write the same one in one second.
func seconds() []kind {
	stamp := getsetlock.Options{Dialect: getsetlock.Seconds}
	sets := one("multilock.GetSet of seconds", "2.4", multilock.GetSet{Options: stamp})
	classic := one("multilock.GetSetClassic of seconds", "2.4", multilock.GetSetClassic{Options: stamp})
	sets.key, classic.key = multilock.Join("a", "b", "c"), multilock.Join("a", "b", "c")
	return []kind{
		one("getset:classic of seconds", "2.0", getsetlock.Classic{Options: stamp}),
		one("getset:guarded of seconds", "2.2", getsetlock.Guarded{Options: stamp}),
		one("getset:listed of seconds", "2.0", getsetlock.ListCAS{Options: stamp}),
		one("getset:patient of seconds", "2.2", getsetlock.Patient{Options: stamp, Lease: time.Hour}),
		one("bridge.OneKey of seconds", "2.4", bridge.OneKey{Options: stamp}),
		several("multilock.New(getset:guarded of seconds)", "2.2", getsetlock.Guarded{Options: stamp}),
		quorum("redlock(getset:guarded of seconds)", true, []string{"2.2", "2.2", "2.2"},
			getsetlock.Guarded{Options: stamp}, getsetlock.Guarded{Options: stamp}, getsetlock.Guarded{Options: stamp}),
		sets, classic,
	}
}

func luaSlot(token func() string) protocol.Algorithm {
	return setlock.Lua{Options: setlock.Options{Token: token}}
}

// keepers are the locks that can't change their values.
func keepers() []kind {
	k := keeping{setlock.Script{}}
	return []kind{
		one("keeping", "2.6", k), several("several(keeping)", "2.6", k),
		quorum("quorum(keeping)", true, []string{"2.6", "2.6", "2.6"}, k, k, k),
	}
}

// twoNames is the lock of two fleets that differ in the key's name alone.
func twoNames(fence bool) bridge.TwoNames {
	old, err := dialect.Lookup("redis-py-3")
	if err != nil {
		panic(err)
	}
	next := old
	old.KeyName, next.KeyName = "old:NAME", "new:NAME"
	return bridge.TwoNames{Old: old, New: next, Fence: fence, Millis: true}
}

// all are the kinds that exclude everybody else.
func all(fence bool) []kind { return append(singles(fence), composites(fence)...) }

// A world is the servers of one kind of lock, in a bubble of its own time: it
// passes when all goroutines wait for it, and then at once.
type world struct {
	*testing.T
	kind    kind
	servers []*oldredis.Server
}

func newWorld(t *testing.T, k kind) *world {
	w := &world{T: t, kind: k}
	for _, v := range k.versions {
		s, err := oldredis.New(v, oldredis.Options{Clock: clock.New()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		w.servers = append(w.servers, s)
	}
	return w
}

// inWorld runs f in a bubble, in a world of kind k.
func inWorld(t *testing.T, k kind, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(newWorld(t, k))
		time.Sleep(2 * time.Second) // the moment that a release may leave to others: not every client closes its Locker
	})
}

// client returns a client and the network that it alone has.
func (w *world) client(o compat.Options) (*compat.Locker, *faulty.Network) {
	n := new(faulty.Network)
	sources := make([]compat.Source, len(w.servers))
	for i, s := range w.servers {
		sources[i] = through(n, s)
	}
	if o.Clock == nil {
		o.Clock = clock.New()
	}
	if o.Rand == nil {
		o.Rand = func() float64 { return 0 }
	}
	return w.kind.make(sources, o), n
}

// through returns s behind n, and with a replica that has everything.
func through(n *faulty.Network, s compat.Pool) compat.Source {
	replica := new(faulty.Network)
	replica.Expect(faulty.Answer(int64(1)).Of("WAIT"))
	return compat.Pooled(n.Pool(replica.Pool(s)))
}

// clientOf is a client of a lock of its own kind on the first server, with a network of its own.
func (w *world) clientOf(a protocol.Algorithm, o compat.Options) (*compat.Locker, *faulty.Network) {
	n := new(faulty.Network)
	if o.Rand == nil {
		o.Rand = func() float64 { return 0 }
	}
	return compat.NewOn(through(n, w.servers[0]), a, o), n
}

// get is what an onlooker reads on the first server, "" for nothing.
func (w *world) get(key string) string {
	c := w.servers[0].Dial()
	defer c.Close()
	v, _ := redis.String(c.Do("GET", key))
	return v
}

// try takes the lock, which must be free.
func (w *world) try(k *compat.Locker, ttl time.Duration) *compat.Lock {
	w.Helper()
	l, err := k.TryLock(background, w.kind.key, ttl)
	if err != nil {
		w.Fatalf("a free lock: %v", err)
	}
	l.Context() // somebody works in it
	return l
}

// do sends one command of an onlooker to each server.
func (w *world) do(name string, args ...any) {
	w.Helper()
	for _, s := range w.servers {
		c := s.Dial()
		if _, err := c.Do(name, args...); err != nil {
			w.Fatalf("%s %v: %v", name, args, err)
		}
		c.Close()
	}
}

// integer is an onlooker's question to the first server.
func (w *world) integer(name string, args ...any) int64 {
	w.Helper()
	c := w.servers[0].Dial()
	defer c.Close()
	n, err := redis.Int64(c.Do(name, args...))
	if err != nil {
		w.Fatalf("%s %v: %v", name, args, err)
	}
	return n
}

// believes reports whether l's holder may work under it now.
func believes(l *compat.Lock) bool {
	return l.Context().Err() == nil && time.Now().Before(l.Until())
}

// pass lets time pass, and everything happen that it brings.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// within is a context that ends after a while, for what should have ended by itself.
func (w *world) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(background, d)
	w.Cleanup(cancel)
	return ctx
}

// A misfortune is what goes wrong at one command.
type misfortune struct {
	name string
	fate faulty.Fate
}

var misfortunes = []misfortune{
	{"reply lost", faulty.Fate{Loss: faulty.LostReply}},
	{"request lost", faulty.Fate{Loss: faulty.LostRequest}},
	{"reply lost, then cut off", faulty.Fate{Loss: faulty.LostReply, Cut: true}},
	{"request lost, then cut off", faulty.Fate{Loss: faulty.LostRequest, Cut: true}},
}

// everyFault runs f in a world of its own for each misfortune at each command, until f
// needs fewer commands than that; where not whole, at every fourth one, for another quarter
// of the misfortunes in each test. f strikes, and returns what is wrong, or "".
func everyFault(t *testing.T, k kind, f func(w *world, strike func(*faulty.Network)) string) {
	t.Helper()
	wrong, ran, stride := 0, 0, 4
	switch {
	case whole:
		stride = 1
	case realredis.UnderRace():
		stride = 5
	}
	for i, m := range misfortunes {
		for n, reached := 1+(i+len(t.Name()))%stride, true; reached && n < 100; n += stride {
			inWorld(t, k, func(w *world) {
				var struck *faulty.Network
				what := f(w, func(net *faulty.Network) { net.Expect(m.fate.At(n)); struck = net })
				reached = struck.Count() >= n
				ran++
				if what != "" {
					if wrong++; wrong <= 2 {
						t.Errorf("%s at command %d: %s", m.name, n, what)
					}
				}
			})
		}
	}
	if wrong > 0 {
		t.Logf("wrong in %d of %d runs", wrong, ran)
	}
}

// eachKind runs f in a subtest for each kind.
func eachKind(t *testing.T, kinds []kind, f func(t *testing.T, k kind)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			f(t, k)
		})
	}
}

func sprint(format string, args ...any) string { return fmt.Sprintf(format, args...) }
