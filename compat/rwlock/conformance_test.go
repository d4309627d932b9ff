package rwlock_test

import (
	"slices"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// TestConformance runs the suite over readers, with a writer for a rival, and over writers: as
// they are on every server, and with each kind of option on the oldest that has it, one that
// lacks it, and a real one.
func TestConformance(t *testing.T) {
	for _, s := range conformance.Servers(t) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			for _, o := range []struct {
				name string
				on   []string
				opts rwlock.Options
			}{
				{"", nil, rwlock.Options{}},
				{"/writers-first", []string{"oldredis-2.2.5", "real-redis-server"}, rwlock.Options{Prefer: rwlock.WritersFirst}},
				{"/readers-first", []string{"oldredis-2.2.5", "real-redis-server"}, rwlock.Options{Prefer: rwlock.ReadersFirst}},
				{"/server-clock", []string{"oldredis-2.4", "oldredis-2.6", "real-redis-server"}, rwlock.Options{ServerClock: true}},
				{"/millis", []string{"oldredis-2.4", "oldredis-2.6", "real-redis-server"}, rwlock.Options{Millis: true}},
				{"/over-getset", []string{"oldredis-2.2.5", "real-redis-server"}, rwlock.Options{Inner: getsetlock.Guarded{}}},
				{"/over-tx", []string{"oldredis-2.2", "oldredis-2.4", "real-redis-server"}, rwlock.Options{Inner: txlock.Renamed{}}},
				{"/over-set", []string{"oldredis-2.6", "oldredis-2.6.12", "real-redis-server"}, rwlock.Options{Inner: setlock.Watched{}}},
			} {
				if o.on != nil && !slices.Contains(o.on, s.Name) {
					continue
				}
				for _, l := range locks(s, o.name, o.opts) {
					t.Run(l.Name, func(t *testing.T) {
						t.Parallel()
						conformance.Run(t, l)
					})
				}
			}
		})
	}
}

// locks are both halves of one read-write lock on s.
func locks(s conformance.Server, name string, o rwlock.Options) []conformance.Lock {
	o.Fence = s.Transactions
	made := func(a protocol.Algorithm) func(func(compat.Source) compat.Source, compat.Options) *compat.Locker {
		return func(wrap func(compat.Source) compat.Source, lo compat.Options) *compat.Locker {
			return compat.NewOn(wrap(compat.Pooled(s.Source)), a, lo)
		}
	}
	read, write := made(rwlock.Read{Options: o}), made(rwlock.Write{Options: o})
	l := conformance.Lock{Server: s.Name, Version: s.Version, Sources: []compat.Source{compat.Pooled(s.Source)}, Fence: o.Fence, Turns: true, Keys: keys}
	readers, writers := l, l
	readers.Name, readers.New, readers.Rival, readers.Shared = "rw:read"+name, read, write, true
	writers.Name, writers.New = "rw:write"+name, write // a reader that was refused would have its turn
	return []conformance.Lock{readers, writers}
}

// keys is all that the lock of a key can leave.
func keys(prefix, key string) []string {
	key = prefix + key
	all := []string{key, protocol.Aux(key, "fence")}
	for _, name := range []string{"readers", "waiting", "queue", "next", "mutex"} {
		all = append(all, protocol.Aux(key, name))
	}
	return all
}
