package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// unknown: whatever single message of acquire, extend or release is lost, the
// caller learns the truth or that it is unknown, and afterwards the key is
// free, or ours, as it was told.
func (c *suite) unknown(t testing.TB) {
	busy <- struct{}{}
	defer func() { <-busy }()
	ctx := within(t, 60*time.Second)
	for n := 1; ; n++ {
		ran := 0
		for _, f := range []Fault{LostRequest, LostReply} {
			net := new(Network)
			key := c.key(fmt.Sprintf("unknown-%d-%d", n, f))
			k := c.New(net.Over, c.options())
			if _, err := k.Inspect(ctx, key); err != nil { // the network works
				t.Fatal(err)
			}
			if net.Count() == 0 {
				t.Fatal("New does not use its Sources through wrap, so that nothing can be lost")
			}
			net.Lose(func(i int, _ string) Fault {
				if i == n {
					return f
				}
				return None
			})
			c.told(t, ctx, k, key)
			ran = max(ran, net.Count())
		}
		if n > ran {
			return
		}
	}
}

// told runs acquire, extend and release over k and checks what each tells
// against what stands on the server.
func (c *suite) told(t testing.TB, ctx context.Context, k *compat.Locker, key string) {
	inspect := func() compat.State {
		st, err := c.client().Inspect(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	lock, err := k.TryLock(ctx, key, 20*time.Second)
	var unknown *compat.UnknownError
	switch {
	case errors.As(err, &unknown):
		if !c.Ambiguous {
			t.Errorf("TryLock: %v, although the key can be read", err)
		}
		if st := inspect(); st.Value != "" && !st.Holds(unknown.Lease.Value) {
			t.Errorf("an unknown outcome left %+v, its lease says %q", st, unknown.Lease.Value)
		}
		return
	case err != nil:
		if st := inspect(); st.Value != "" {
			t.Errorf("TryLock: %v, and yet the key is %+v", err, st)
		}
		return
	}
	if st := inspect(); !st.Holds(lock.Token()) {
		t.Errorf("held by the token %q, but the key is %+v", lock.Token(), st)
	}
	if c.Fence && lock.Fence() == 0 {
		t.Error("held without a fence, although the lock draws them")
	}
	if err := lock.Extend(ctx, 30*time.Second); errors.Is(err, compat.ErrLost) {
		t.Errorf("Extend: %v, although nobody took it", err)
	}
	err = lock.Release(ctx)
	switch st := inspect(); {
	case err == nil && st.Value != "":
		t.Errorf("released, and yet the key is %+v", st)
	case errors.Is(err, compat.ErrUnknown) && !c.Ambiguous:
		t.Errorf("Release: %v, although it can be repeated", err)
	case errors.Is(err, compat.ErrLost):
		t.Errorf("Release: %v, although nobody took it", err)
	}
}
