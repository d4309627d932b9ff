package compat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// The token by which a lock was adopted is known: who gets the lock then has another.
func TestAdoptedAndHandedOff(t *testing.T) {
	w := newWorld(t, "2.4")
	k, _ := w.client(txlock.Renamed{})
	h := must.Get(try(t, k, "k").Detach(background))(t)
	l := must.Get(k.AdoptHandle(background, h, ttl))(t)
	next, err := l.Handoff(background, ttl)
	if err != nil || next.Token() == h.Token || w.value("k") != next.Token() {
		t.Errorf("%v, %q by the handle %q, and the key holds %q", err, next.Token(), h.Token, w.value("k"))
	}
}

// A handle survives its way through a string, whatever the key and the token are,
// and one that was cut or changed anywhere is not a handle.
func FuzzHandle(f *testing.F) {
	f.Add("nightly-report", "94213c24deadbeef94213c24deadbeef")
	f.Add("a}b\x00 ü", "1795238718.058123456789")
	f.Add("k", "x")
	f.Fuzz(func(t *testing.T, key, token string) {
		if key == "" || token == "" {
			return
		}
		h := compat.Handle{Key: key, Token: token}
		s := h.String()
		var got, cut compat.Handle
		if err := got.UnmarshalText([]byte(s)); err != nil || got != h {
			t.Fatalf("%q came back as %+v, %v", s, got, err)
		}
		for i := range s {
			if err := cut.UnmarshalText([]byte(s[:i])); !errors.Is(err, compat.ErrInvalid) {
				t.Errorf("%q, cut after %d: %v", s, i, err)
			}
		}
		b := []byte(s)
		for i := range b {
			was := b[i]
			b[i] = 'A'
			if was == 'A' {
				b[i] = 'B'
			}
			if err := cut.UnmarshalText(b); !errors.Is(err, compat.ErrInvalid) {
				t.Errorf("%q, changed at %d: %v", b, i, err)
			}
			b[i] = was
		}
	})
}

// A lock that is detached stays held, is renewed by nobody until it is
// adopted, and then is its new holder's alone.
func TestDetach(t *testing.T) {
	for name, a := range map[string]protocol.Algorithm{
		"tx:renamed": txlock.Renamed{Options: txlock.Options{Fence: true}}, "getset:guarded": getsetlock.Guarded{Options: getsetlock.Options{Fence: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := oldredis.Run(t, "2.4")
			ctx := t.Context()
			from := compat.New(s, a, compat.Options{Prefix: "p:"})
			to := compat.New(s, a, compat.Options{Prefix: "p:"})
			lock := must.Get(from.TryLock(ctx, "k", 10*time.Second))(t)
			h, err := lock.Detach(ctx)
			if err != nil || h.Key != "p:k" {
				t.Fatalf("%+v, %v", h, err)
			}
			if cause := context.Cause(lock.Context()); !errors.Is(cause, compat.ErrDetached) {
				t.Errorf("the context ended with %v", cause)
			}
			if err := lock.Release(ctx); !errors.Is(err, compat.ErrDetached) {
				t.Errorf("Release of a lock that was detached: %v", err)
			}
			if _, err := lock.Detach(ctx); !errors.Is(err, compat.ErrDetached) {
				t.Errorf("a second Detach: %v", err)
			}
			if _, err := to.TryLock(ctx, "k", 10*time.Second); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("between the two holders: %v, want ErrHeld", err)
			}
			must.Do(t, h.UnmarshalText([]byte(h.String())))
			if _, err := compat.New(s, a, compat.Options{NoRenew: true, Prefix: "q:"}).AdoptHandle(ctx, h, 10*time.Second); !errors.Is(err, compat.ErrInvalid) {
				t.Errorf("adopted under another prefix: %v", err)
			}
			adopted := must.Get(to.AdoptHandle(ctx, h, 20*time.Second))(t)
			if adopted.Fence() <= lock.Fence() {
				t.Errorf("adopted with fence %d, it was %d", adopted.Fence(), lock.Fence())
			}
			if err := from.ReleaseHandle(ctx, adopted.Handle()); err != nil {
				t.Errorf("ReleaseHandle: %v", err)
			}
			if err := adopted.Release(ctx); !errors.Is(err, compat.ErrLost) {
				t.Errorf("Release after ReleaseHandle: %v", err)
			}
			if _, err := to.AdoptHandle(ctx, h, 20*time.Second); !errors.Is(err, compat.ErrLost) {
				t.Errorf("adopted after the release: %v", err)
			}
		})
	}
}

// A release passes a lock on with a value that nobody knows, a lock of whole seconds in one and the same second too:
// else the handle of the holder before, late, would release the next one's lock.
func TestPassedOnUnknown(t *testing.T) {
	mock := clock.NewMock()
	mock.Set(time.Unix(1_600_000_000, 0))
	k := compat.New(oldredis.Run(t, "2.4"), getsetlock.Classic{Options: getsetlock.Options{Dialect: getsetlock.Seconds}}, compat.Options{NoRenew: true, Clock: mock})
	lock := try(t, k, "k")
	late := lock.Handle()
	var next *compat.Lock
	var err error
	got := inBackground(func() { next, err = k.Lock(t.Context(), "k", ttl) })
	eventually(t, "it waits", func() bool { return k.Waiting("k") == 1 })
	must.Do(t, lock.Release(background))
	if <-got; err != nil {
		t.Fatal(err)
	}
	if how := next.Lease().How; how != protocol.HandedOff {
		t.Errorf("the next holder got it %s", how)
	}
	if err := k.ReleaseHandle(background, late); !errors.Is(err, compat.ErrLost) {
		t.Errorf("ReleaseHandle with the handle from before: %v, want ErrLost", err)
	}
	if err := next.Release(background); err != nil {
		t.Errorf("Release by the next holder: %v", err)
	}
}
