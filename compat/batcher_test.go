package compat_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// crowded is a client that holds n locks on a server which is a millisecond away.
func crowded(t *testing.T, n int, o compat.Options) ([]*compat.Lock, *faulty.Network, *oldredis.Server) {
	s, net := still(t, "2.4"), new(faulty.Network)
	source := compat.Pooled(&redis.Pool{MaxIdle: n, Dial: func() (redis.Conn, error) { return net.Conn(s.Dial()), nil }})
	source.Listen = -1 // no release wakes anybody
	k := compat.NewOn(source, txlock.Renamed{}, o)
	t.Cleanup(func() { k.Close(background) }) //nolint:errcheck
	locks := make([]*compat.Lock, n)
	for i := range locks {
		locks[i] = try(t, k, fmt.Sprint("k", i))
	}
	time.Sleep(2 * time.Second) // none is pinned any more
	synctest.Wait()
	net.Expect(faulty.Fate{Before: time.Millisecond}.Always())
	return locks, net, s
}

// Releases that come at once travel together: the first ones by themselves, and those that come meanwhile in one transaction.
func TestACrowdIsReleasedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 64
		locks, net, s := crowded(t, many, compat.Options{})
		var all sync.WaitGroup
		for _, l := range locks {
			all.Go(func() { release(t, l) })
		}
		all.Wait()
		if n := net.Writes(); n > 8 {
			t.Errorf("%d locks were released in %d round trips", many, n)
		}
		empty(t, s)
	})
}

// Of those that travel together each has its own outcome: one that was lost, one whose key somebody touches, one whose
// caller gives up.
func TestEachOfACrowdHasItsOwnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, _, s := crowded(t, 16, compat.Options{})
		other := s.Dial()
		lost := func(i int) bool { return i%4 == 3 }
		for i := range locks {
			if lost(i) {
				other.Do("SET", fmt.Sprint("k", i), "another's") //nolint:errcheck
			}
		}
		other.Do("EXPIRE", "k4", 60) //nolint:errcheck
		errs := make([]error, len(locks))
		var all sync.WaitGroup
		for i, l := range locks {
			all.Go(func() {
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				if i == 5 {
					time.AfterFunc(1500*time.Microsecond, cancel)
				}
				errs[i] = l.Release(ctx)
			})
		}
		time.Sleep(2500 * time.Microsecond)
		other.Do("EXPIRE", "k6", 60) //nolint:errcheck // between WATCH and EXEC
		all.Wait()
		for i, err := range errs {
			switch {
			case lost(i) && errors.Is(err, compat.ErrLost), !lost(i) && err == nil:
			default:
				t.Errorf("lock %d: %v", i, err)
			}
		}
		if left, err := redis.Strings(other.Do("KEYS", "*")); err != nil || len(left) != 4 {
			t.Errorf("left are %q, %v; want those of others", left, err)
		}
	})
}

// inHalves aborts the first EXEC of a batch, and then lets the server be a replica for the second half. The result counts
// the transactions from that EXEC on.
func inHalves(net *faulty.Network, other redis.Conn) *int {
	execs := new(int)
	net.Expect(func(m faulty.Message) faulty.Fate {
		if m.Name == "EXEC" && (*execs > 0 || len(m.Write) > 8) {
			switch *execs++; *execs {
			case 1:
				return faulty.First(func() {
					for i := range 64 { // some may not be in the batch
						other.Do("EXPIRE", fmt.Sprint("k", i), 60) //nolint:errcheck // it touches the key
					}
				})
			case 3:
				return faulty.Answer(redis.Error("READONLY You can't write against a read only slave."))
			}
		}
		return faulty.Fate{Before: time.Millisecond}
	})
	return execs
}

// A batch may be carried out in parts. If its server changes its role in between, the parts that were done are not
// tried again: they would look lost.
func TestACrowdIsReleasedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, net, s := crowded(t, 64, compat.Options{})
		other := s.Dial()
		lost := func(i int) bool { return i%4 == 3 }
		for i := range locks {
			if lost(i) {
				other.Do("SET", fmt.Sprint("k", i), "another's") //nolint:errcheck
			}
		}
		execs := inHalves(net, other)
		var all sync.WaitGroup
		for i, l := range locks {
			all.Go(func() {
				if err := l.Release(background); errors.Is(err, compat.ErrLost) != lost(i) {
					t.Errorf("lock %d: %v, want ErrLost: %t", i, err, lost(i))
				}
			})
		}
		all.Wait()
		if *execs < 3 {
			t.Errorf("%d transactions, want a batch and its halves", *execs)
		}
	})
}

// The same goes for renewals: a value that changes with each renewal would look like another's.
func TestACrowdIsRenewedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, net := still(t, "2.4"), new(faulty.Network)
		source := compat.Pooled(&redis.Pool{MaxIdle: 16, Dial: func() (redis.Conn, error) { return net.Conn(s.Dial()), nil }})
		source.Listen = -1
		k := compat.NewOn(source, getsetlock.Guarded{}, compat.Options{})
		defer k.Close(background) //nolint:errcheck
		locks := make([]*compat.Lock, 16)
		for i := range locks {
			var err error
			if locks[i], err = k.TryLock(background, fmt.Sprint("k", i), 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		other := s.Dial()
		other.Do("SET", "k0", "another's") //nolint:errcheck
		execs := inHalves(net, other)
		time.Sleep(25 * time.Second)
		synctest.Wait()
		if *execs < 3 {
			t.Errorf("%d transactions, want a batch and its halves", *execs)
		}
		for i, l := range locks {
			if err := context.Cause(l.Context()); (err != nil) != (i == 0) {
				t.Errorf("lock %d: %v, want that the first only is lost", i, err)
			}
		}
	})
}
