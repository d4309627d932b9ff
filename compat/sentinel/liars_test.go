package sentinel_test

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/sentinel"
)

// Sentinels that lie, fewer than half of those given, never choose the master, whatever others they invent, whoever
// they say they are, and whoever else is away. No Sentinel is connected to, with its password, because they tell of it.
func TestAMinorityOfLiars(t *testing.T) {
	honest, evil := addr(0), addr(1)
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		n, _ := newNetwork(t, "2.6", "2.6")
		given := 3 + 2*r.IntN(2)
		liars := 1 + r.IntN(given/2)
		var names []string
		for i := range given + 2*liars { // first the liars, then the honest, then the invented
			names = append(names, evil)
			if i >= liars && i < given {
				names[i] = honest
			}
		}
		all, addrs := sentinels(t, names...)
		invented := addrs[given:]
		for i, f := range all {
			f.knows = slices.Clone(addrs[:given])
			if i < liars || i >= given {
				f.knows = slices.Clone(addrs)
			}
			f.knows = slices.DeleteFunc(f.knows, func(a string) bool { return a == f.addr })
			if i >= liars {
				continue
			}
			switch seed % 4 {
			case 0:
				f.knows = nil
			case 1:
				f.id = all[liars+i].id
			case 2:
				f.id = ""
			}
		}
		var mu sync.Mutex
		away := map[string]bool{}
		asked := map[string]bool{}
		dial := func(ctx context.Context, at string) (redis.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[at] = true
			if away[at] {
				return nil, errRefused
			}
			return redis.DialContext(ctx, "tcp", at)
		}
		o := sentinel.Options{Patience: time.Nanosecond, Recheck: time.Nanosecond, DialSentinel: dial}
		s := source(t, addrs[:given], n, o)
		for round := range 8 {
			mu.Lock()
			clear(away)
			for _, at := range addrs[liars:given] {
				away[at] = round%2 == 1 && r.IntN(2) == 0
			}
			mu.Unlock()
			says := []string{honest, evil}[round%2] // in some rounds they agree with the others, to be taken for them
			for _, f := range all[:liars] {
				f.name(says)
			}
			if m, err := s.Master(t.Context()); m == evil {
				t.Errorf("seed %d, round %d: %d liars of %d given chose (%v)", seed, round, liars, given, err)
			}
			mu.Lock()
			for _, at := range invented {
				if asked[at] {
					t.Errorf("seed %d, round %d: %d liars of %d given: an invented one was asked", seed, round, liars, given)
					break
				}
			}
			mu.Unlock()
		}
		s.Close()
		for _, f := range all {
			f.s.Close()
		}
	}
}

// A Sentinel that says neither by INFO nor by SENTINEL MYID who it is has one vote, and so have several of them.
func TestUnidentifiedSentinelsHaveOneVote(t *testing.T) {
	for _, unknown := range []int{1, 2, 3} {
		n, _ := newNetwork(t, "2.6")
		all, addrs := sentinels(t, addr(0), addr(0), addr(0))
		for _, f := range all[:unknown] {
			f.id = ""
		}
		_, port, _ := net.SplitHostPort(addrs[0])
		s := source(t, append([]string{"localhost:" + port}, addrs...), n, sentinel.Options{Patience: time.Nanosecond})
		m, err := s.Master(t.Context())
		if most := 1 + len(all) - unknown; (m != "") != (most >= 3) { // of four addresses
			t.Errorf("%d of 3 say not who they are: %q, %v", unknown, m, err)
		}
	}
}
