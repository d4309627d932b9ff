package cluster_test

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/conformance"
	slots "github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/semaphore"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

func TestMain(m *testing.M) { conformance.Main(m) }

// An algorithm is one of the module's, on one key.
type algorithm struct {
	name string
	new  func(fence bool) protocol.Algorithm
}

func algorithms() []algorithm {
	return []algorithm{
		{"getset:classic", func(fence bool) protocol.Algorithm {
			return getsetlock.Classic{Options: getsetlock.Options{Fence: fence}}
		}},
		{"getset:guarded", func(fence bool) protocol.Algorithm {
			return getsetlock.Guarded{Options: getsetlock.Options{Fence: fence}}
		}},
		{"tx:classic", func(fence bool) protocol.Algorithm {
			return txlock.Classic{Options: txlock.Options{Fence: fence}}
		}},
		{"tx:guarded", func(fence bool) protocol.Algorithm {
			return txlock.Guarded{Options: txlock.Options{Fence: fence, Millis: true}}
		}},
		{"tx:renamed", func(fence bool) protocol.Algorithm {
			return txlock.Renamed{Options: txlock.Options{Fence: fence, Millis: true}}
		}},
		{"set:lua", func(fence bool) protocol.Algorithm {
			return setlock.Lua{Options: setlock.Options{Fence: fence}}
		}},
		{"set:watch", func(fence bool) protocol.Algorithm {
			return setlock.Watched{Options: setlock.Options{Fence: fence}}
		}},
	}
}

// tag returns a hash tag whose slot is the n-th node's of a new cluster.
func tag(n int) string {
	for i := 0; ; i++ {
		t := fmt.Sprintf("{%d}", i)
		if slots.Of(t)*3/16384 == n {
			return t
		}
	}
}

// TestConformance runs the suite over every lock on a real cluster, with keys
// on each of its masters.
func TestConformance(t *testing.T) {
	t.Parallel()
	nodes := realredis.RunCluster(t)
	source := cluster.New(nodes.Addrs()[3:], cluster.Options{MaxIdle: 64}) // replicas tell the map too
	t.Cleanup(func() { source.Close() })
	tags := []string{tag(0), tag(1), tag(2)}
	lock := conformance.Lock{
		Server: "cluster",
		Key: func(name string) string {
			h := fnv.New32()
			h.Write([]byte(name))
			return tags[h.Sum32()%3] + name
		},
		Keys:    keys,
		Sources: []compat.Source{source.Source()},
		Fence:   true,
	}
	over := func(a protocol.Algorithm) func(func(compat.Source) compat.Source, compat.Options) *compat.Locker {
		return func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
			return compat.NewOn(wrap(source.Source()), a, o)
		}
	}
	var locks []conformance.Lock
	for _, a := range algorithms() {
		lock.Name, lock.New = a.name, over(a.new(true))
		locks = append(locks, lock)
	}
	of := func(n int) func(func(compat.Source) compat.Source, compat.Options) *compat.Locker {
		return over(semaphore.Lock{Options: semaphore.Options{N: n, Fence: true}})
	}
	shared := lock
	shared.Name, shared.New, shared.Rival, shared.Shared, shared.Most = "semaphore of 3", of(3), of(1), true, 3
	shared.Counter = func(prefix, key, token string) string {
		return protocol.Aux(protocol.Aux(prefix+key, strconv.Itoa(semaphore.Slot(token))), "fence")
	}
	shared.Keys = func(prefix, key string) []string {
		all := append(keys(prefix, key), protocol.Aux(prefix+key, "limit"))
		for n := range 3 {
			slot := protocol.Aux(prefix+key, strconv.Itoa(n+1))
			all = append(all, slot, protocol.Aux(slot, "fence"))
		}
		return all
	}
	locks = append(locks, shared)
	read, write := over(rwlock.Read{Options: rwlock.Options{Fence: true}}), over(rwlock.Write{Options: rwlock.Options{Fence: true}})
	lock.Name, lock.New, lock.Turns = "rw:write", write, true
	locks = append(locks, lock)
	lock.Name, lock.New, lock.Rival, lock.Shared = "rw:read", read, write, true
	locks = append(locks, lock)
	for _, l := range locks {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			conformance.Run(t, l)
		})
	}
}

// keys is all that any of the locks of a key can leave.
func keys(prefix, key string) []string {
	key = prefix + key
	all := []string{key, protocol.Aux(key, "fence")}
	for _, name := range []string{"readers", "waiting", "queue", "next", "mutex"} {
		all = append(all, protocol.Aux(key, name))
	}
	return all
}
