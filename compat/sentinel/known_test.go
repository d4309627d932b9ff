package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// acquainted makes each of all know the others.
func acquainted(all []*fakeSentinel) {
	for i, f := range all {
		f.mu.Lock()
		f.knows = nil
		for j, other := range all {
			if i != j {
				f.knows = append(f.knows, other.addr)
			}
		}
		f.mu.Unlock()
	}
}

// toLiving dials Sentinels, but those that say nothing: they are dead. Their ports stay theirs, so that no
// other test has one of them meanwhile.
func toLiving(addrs, say []string) func(context.Context, string) (redis.Conn, error) {
	return func(ctx context.Context, addr string) (redis.Conn, error) {
		if i := slices.Index(addrs, addr); i >= 0 && say[i] == "" {
			return nil, errRefused
		}
		return redis.DialContext(ctx, "tcp", addr)
	}
}

// A majority is one of all Sentinels that are known: of one that was given, and those it tells of.
func TestMajorityOfAllKnown(t *testing.T) {
	a, b := addr(0), addr(1)
	for _, c := range []struct {
		name   string
		say    []string // "": it is dead
		given  int
		master string
	}{
		{"one given, all agree", []string{a, a, a}, 1, a},
		{"one given, and the others name another", []string{a, b, b}, 1, b},
		{"one given, cut off with the old master", []string{a, "", ""}, 1, ""},
		{"two given of five", []string{a, a, "", "", ""}, 2, ""},
		{"two given of five, against the rest", []string{a, a, b, b, b}, 2, b},
		{"one given of two", []string{a, ""}, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n, _ := newNetwork(t, "2.6", "2.6")
			all, addrs := sentinels(t, c.say...)
			acquainted(all)
			s := source(t, addrs[:c.given], n, sentinel.Options{Patience: time.Nanosecond, DialSentinel: toLiving(addrs, c.say)})
			m, err := s.Master(t.Context())
			if m != c.master || (err == nil) != (m != "") {
				t.Errorf("%q, %v; want %q", m, err, c.master)
			}
			if err != nil && !errors.Is(err, compat.ErrElection) {
				t.Errorf("%v, want ErrElection: one answers", err)
			}
			if _, known := s.Watchers(); known != len(all) {
				t.Errorf("%d are known, want %d", known, len(all))
			}
		})
	}
}

// Sentinels that were given by other addresses than they announce are no more than they are,
// even when one of them, or of the addresses, never answers.
func TestTwoAddressesEach(t *testing.T) {
	for name, alive := range map[string]int{"all alive": 3, "one dead": 2, "announced where nobody can reach them": 0} {
		t.Run(name, func(t *testing.T) {
			n, _ := newNetwork(t, "2.6")
			all, addrs := sentinels(t, addr(0), addr(0), addr(0))
			acquainted(all)
			var given []string
			at := map[string]string{}
			for i, a := range addrs {
				name := fmt.Sprintf("sentinel-%d:26379", i)
				given, at[name] = append(given, name), a
			}
			dead := addrs[2]
			s := source(t, given, n, sentinel.Options{Patience: time.Nanosecond, DialSentinel: func(ctx context.Context, addr string) (redis.Conn, error) {
				real, byName := at[addr]
				if !byName {
					real = addr
				}
				if alive == 2 && real == dead || alive == 0 && !byName {
					return nil, errRefused
				}
				return redis.DialContext(ctx, "tcp", real)
			}})
			for range 3 {
				if m, err := s.Master(t.Context()); m != addr(0) || err != nil {
					t.Errorf("%q, %v", m, err)
				}
			}
			deadline := time.Now().Add(time.Minute)
			for known := 0; known != 3; _, known = s.Watchers() {
				if time.Now().After(deadline) {
					t.Fatalf("%d are known, want 3", known)
				}
				s.Master(t.Context()) //nolint:errcheck // it asks
			}
		})
	}
}

// master asks s for it; a source that is to wait before it asks anew, because Sentinels were slow
// on a busy machine, finds that the time has passed.
func master(t *testing.T, s *sentinel.Source, m *clock.Mock) (addr string, err error) {
	t.Helper()
	ended := make(chan bool)
	go func() {
		defer close(ended)
		addr, err = s.Master(t.Context())
	}()
	for {
		select {
		case <-ended:
			return addr, err
		case <-time.After(100 * time.Millisecond):
			m.Add(100 * time.Millisecond)
		}
	}
}

// Addresses that Sentinels had for a while, and that none of them tells of any more, are
// forgotten.
func TestUnknownAddressesAreForgotten(t *testing.T) {
	for given := 1; given <= 3; given += 2 {
		n, _ := newNetwork(t, "2.6")
		var names []string
		for range given {
			names = append(names, addr(0))
		}
		all, addrs := sentinels(t, names...)
		m := clock.NewMock()
		s := source(t, addrs, n, sentinel.Options{Clock: m, Agree: given/2 + 1})
		most := 0
		for i := range 200 {
			acquainted(all)
			for _, f := range all {
				f.mu.Lock()
				f.knows = append(f.knows, fmt.Sprintf("127.0.0.1:%d", i+1)) // where nobody is
				f.mu.Unlock()
			}
			m.Add(time.Second)
			must.Get(master(t, s, m))(t)
			addresses, _ := s.Watchers()
			most = max(most, addresses)
		}
		for _, f := range all {
			f.mu.Lock()
			f.knows = nil
			f.mu.Unlock()
		}
		acquainted(all)
		deadline := time.Now().Add(time.Minute)
		for addresses := 0; addresses != given; addresses, _ = s.Watchers() {
			if time.Now().After(deadline) {
				t.Fatalf("%d addresses are asked, want %d", addresses, given)
			}
			m.Add(time.Second)
			must.Get(master(t, s, m))(t)
		}
		if most > 50 {
			t.Errorf("of %d given, up to %d were asked", given, most)
		}
	}
}

// While the Sentinels agree on no master, or the one they name does not answer, Lock waits; when
// none of them answers it does not.
func TestLockWaitsForFailover(t *testing.T) {
	n, servers := newNetwork(t, "2.6", "2.6")
	all, addrs := sentinels(t, addr(7))
	s := source(t, addrs, n, sentinel.Options{Patience: time.Nanosecond})
	k := compat.NewOn(s.Source(), txlock.Renamed{}, compat.Options{NoRenew: true})
	if _, err := k.TryLock(t.Context(), "k", 10*time.Second); !errors.Is(err, compat.ErrElection) || !errors.Is(err, sentinel.ErrNoMaster) {
		t.Errorf("the master is not there: %v, want ErrElection", err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := k.Lock(t.Context(), "k", 10*time.Second)
		got <- err
	}()
	all[0].again(t)
	all[0].name(addr(0))
	if err := <-got; err != nil {
		t.Error(err)
	}
	servers[0].answer("EXISTS", nil)
	all[0].s.Close()
	dead := source(t, addrs, n, sentinel.Options{Patience: time.Nanosecond})
	_, err := compat.NewOn(dead.Source(), txlock.Renamed{}, compat.Options{NoRenew: true}).Lock(t.Context(), "k", time.Hour)
	if !errors.Is(err, sentinel.ErrNoMaster) || errors.Is(err, compat.ErrElection) {
		t.Errorf("no Sentinel answers: %v, want ErrNoMaster and no election", err)
	}
}
