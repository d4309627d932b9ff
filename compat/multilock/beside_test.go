package multilock_test

import (
	"errors"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// Tx keeps SET NX PX out of its keys, and is kept out by it.
func TestTxBesideSetlock(t *testing.T) {
	pool := conformance.Dial(t, realredis.Start(t))
	sets, singles := compat.New(pool, multilock.Tx{}, compat.Options{NoRenew: true}), compat.New(pool, setlock.Lua{}, compat.Options{NoRenew: true})
	set, err := sets.TryLock(background, multilock.Join("a", "b"), ttl)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := singles.TryLock(background, "b", ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("SET b NX PX beside a set with it: %v, want ErrHeld", err)
	}
	if err := set.Release(background); err != nil {
		t.Error(err)
	}
	single, err := singles.TryLock(background, "b", ttl)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sets.TryLock(background, multilock.Join("a", "b"), ttl); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("a set with b beside SET b NX PX: %v, want ErrHeld", err)
	}
	if err := single.Release(background); err != nil {
		t.Error(err)
	}
}
