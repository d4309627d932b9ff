package promises_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/bridge"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

// fenced are the kinds that draw a fence.
func fenced() []kind {
	var kinds []kind
	for _, k := range all(true) {
		if !strings.HasPrefix(k.name, "redlock") {
			kinds = append(kinds, k)
		}
	}
	return append(append(kinds, inSeconds(true)...), one("rwlock.Read", "2.4", rwlock.Read{Options: rwlock.Options{Fence: true}}),
		one("getset:two-keys", "2.2", getsetlock.TwoKeys{Fence: true}), one("bridge.TwoNames", "2.6", twoNames(true)),
		one("bridge.OneKey", "2.6", bridge.OneKey{Options: getsetlock.Options{Fence: true}, Millis: true}))
}

// inSeconds are the locks in a dialect in which others can write the same value.
func inSeconds(fence bool) []kind {
	seconds := getsetlock.Options{Fence: fence, Dialect: getsetlock.Seconds}
	return []kind{
		one("getset:classic in seconds", "2.0", getsetlock.Classic{Options: seconds}),
		one("getset:guarded in seconds", "2.2", getsetlock.Guarded{Options: seconds}),
		one("getset:listed in seconds", "2.0", getsetlock.ListCAS{Options: seconds}),
		one("getset:patient in seconds", "2.2", getsetlock.Patient{Options: seconds, Lease: time.Hour}),
		one("bridge.OneKey in seconds", "2.6", bridge.OneKey{Options: seconds, Millis: true}),
	}
}

// counters are the keys that count k's fences.
func (w *world) counters() []string {
	var names []string
	keys, err := multilock.Split(w.kind.key)
	if err != nil {
		keys = []string{w.kind.key}
	}
	for _, key := range keys {
		if strings.HasPrefix(w.kind.name, "bridge.TwoNames") {
			key = "new:" + key
		}
		names = append(names, protocol.Aux(w.kind.on(key), "fence"))
	}
	return names
}

// A fence is the counter's number, to the last one that the counter has.
func TestFencesAreExact(t *testing.T) {
	eachKind(t, withShared(fenced()), func(t *testing.T, k kind) {
		nanos := time.Date(2026, 1, 2, 3, 4, 5, 678901237, time.UTC).UnixNano()
		for _, from := range []int64{0, 1<<53 - 2, 1<<53 + 1, nanos, math.MaxInt64 - 9} {
			inWorld(t, k, func(w *world) {
				locker, _ := w.client(compat.Options{NoRenew: true})
				defer locker.Close(background) //nolint:errcheck // that it ends is enough
				for _, counter := range w.counters() {
					w.do("SET", counter, from)
				}
				last := from
				drew := func(how string, l *compat.Lock, err error) {
					if err != nil {
						w.Fatalf("after %d: %s: %v", last, how, err)
					}
					for _, counter := range w.counters() {
						if is := w.get(counter); is != strconv.FormatInt(l.Fence(), 10) || l.Fence() <= last {
							w.Fatalf("after %d: %s: fence %d, the counter is at %s", last, how, l.Fence(), is)
						}
					}
					last = l.Fence()
				}
				for range 2 {
					l, err := locker.TryLock(background, k.key, long)
					drew("TryLock", l, err)
					l, err = l.Handoff(background, long)
					drew("Handoff", l, err)
					h, err := l.Detach(background)
					if err != nil {
						w.Fatal(err)
					}
					l, err = locker.AdoptHandle(background, h, long)
					drew("AdoptHandle", l, err)
					must.Do(t, l.Release(background))
				}
			})
		}
	})
}

// A counter that has no number left, or is none, says so. What was taken with it is given back, or stays with its holder.
func TestTheLastFence(t *testing.T) {
	eachKind(t, withShared(fenced()), func(t *testing.T, k kind) {
		for _, at := range []any{int64(math.MaxInt64), int64(math.MinInt64), -100, "none", nil} {
			says := func(err error) bool { // of several counters, or beside other keys, a list is not known for one
				return strings.Contains(err.Error(), "no fence can be drawn") || at == nil && (len(k.each()) > 1 || strings.HasPrefix(k.name, "rwlock.Read"))
			}
			spoil := func(w *world) {
				for _, counter := range w.counters() {
					if w.do("DEL", counter); at == nil {
						w.do("LPUSH", counter, "x")
					} else {
						w.do("SET", counter, at)
					}
				}
			}
			inWorld(t, k, func(w *world) {
				locker, _ := w.client(compat.Options{NoRenew: true})
				defer locker.Close(background) //nolint:errcheck // that it ends is enough
				spoil(w)
				l, err := locker.TryLock(background, k.key, long)
				if err == nil || !says(err) || errors.Is(err, compat.ErrForeign) {
					t.Errorf("at %v: %v, %v", at, l, err)
				}
				if st, err := locker.Inspect(background, k.key); err != nil || st.Status != compat.StatusFree {
					t.Errorf("at %v: then the lock is %s: %v", at, st.Status, err)
				}
			})
			inWorld(t, k, func(w *world) {
				locker, _ := w.client(compat.Options{NoRenew: true})
				defer locker.Close(background) //nolint:errcheck // that it ends is enough
				h := must.Get(w.try(locker, long).Detach(background))(t)
				spoil(w)
				_, err := locker.AdoptHandle(background, h, long)
				if err == nil || !says(err) || errors.Is(err, compat.ErrForeign) || errors.Is(err, compat.ErrLost) {
					t.Errorf("at %v, adopted: %v", at, err)
				}
				token := h.Token
				if unknown := (*compat.UnknownError)(nil); errors.As(err, &unknown) {
					token = unknown.Lease.Value
				}
				if err := locker.ReleaseToken(background, h.Key, token); errors.Is(err, compat.ErrLost) {
					err = locker.ReleaseToken(background, h.Key, h.Token)
					if err != nil {
						t.Errorf("at %v, adopted and released: %v", at, err)
					}
				}
			})
		}
	})
}
