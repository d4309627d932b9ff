package probe_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/txlock"
)

// A connection that breaks now and then says nothing about the server.
func TestTryOnABreakingNetwork(t *testing.T) {
	for seed := range uint64(10) {
		net, chance := new(faulty.Network), rand.New(rand.NewPCG(seed, 0))
		net.Expect(func(m faulty.Message) faulty.Fate {
			if m.At == 0 && chance.IntN(10) == 0 {
				return faulty.Fate{Loss: faulty.LostRequest}
			}
			return faulty.Fate{}
		})
		source := net.Pool(oldredis.Run(t, "2.4"))
		passed := 0
		for range 100 {
			err := probe.Check(t.Context(), compat.Pooled(source), txlock.Renamed{}, "k", probe.Options{})
			if errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrUnanswered) {
				t.Errorf("seed %d: %v", seed, err)
			}
			if err == nil {
				passed++
			}
		}
		if passed < 50 {
			t.Errorf("seed %d: only %d of 100 passed", seed, passed)
		}
	}
}

// A server that breaks every connection on one command may lack that command: what
// was seen is told, and nothing is called proven.
func TestTryOnARefusal(t *testing.T) {
	net := new(faulty.Network)
	source := net.Pool(oldredis.Run(t, "2.4"))
	net.Expect(faulty.Fate{Loss: faulty.LostRequest}.Of("WATCH"))
	err := probe.Check(t.Context(), compat.Pooled(source), txlock.Renamed{}, "k", probe.Options{})
	var broke *probe.UnansweredError
	if !errors.As(err, &broke) || !errors.Is(err, compat.ErrUnanswered) || errors.Is(err, compat.ErrUnsafeServer) ||
		broke.Reply != "closed the connection" || broke.Commands != "WATCH UNWATCH WATCH DEL MULTI GET EXEC" || broke.Use != "getsetlock.Classic" {
		t.Error(err)
	}
	net.Expect(faulty.Fate{Loss: faulty.LostRequest}.Of("GET"))
	if err := probe.Check(t.Context(), compat.Pooled(source), txlock.Renamed{}, "k", probe.Options{}); err == nil || errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrUnanswered) {
		t.Errorf("nothing works: %v", err)
	}
}
