package promises_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// Whoever is told of a loss is told why: which key, what was seen on it or since when nobody has answered, and whether
// anything was to renew it. The context's cause says it, an extension, a release and an Observer, and a log warns of it.
func TestALossSaysWhy(t *testing.T) {
	for name, lose := range map[string]func(w *world, net *faulty.Network){
		"deleted": func(w *world, _ *faulty.Network) {
			w.do("FLUSHALL")
		},
		"overwritten": func(w *world, _ *faulty.Network) {
			keys, err := multilock.Split(w.kind.key)
			if err != nil {
				keys = []string{w.kind.key}
			}
			for _, key := range keys {
				switch w.kind.name {
				case "getset:two-keys":
					key, _ = dialect.Pair(key)
				case "bridge.TwoNames":
					w.do("SET", "old:"+key, "another's")
					key = "new:" + key
				}
				w.do("SET", w.kind.on(key), "another's")
			}
		},
		"silent":   func(_ *world, net *faulty.Network) { net.Expect(faulty.Fate{Loss: faulty.LostReply}.Always()) },
		"run out":  func(*world, *faulty.Network) {},
		"released": func(w *world, _ *faulty.Network) { w.do("FLUSHALL") }, // which finds out
	} {
		t.Run(name, func(t *testing.T) {
			kinds := append(all(false), one("getset:two-keys", "2.2", getsetlock.TwoKeys{}), one("bridge.TwoNames", "2.6", twoNames(false)))
			eachKind(t, kinds, func(t *testing.T, k kind) {
				inWorld(t, k, func(w *world) {
					var told []error
					var log bytes.Buffer
					logged := compat.Slog(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
					renews := name != "run out" && name != "released"
					locker, net := w.client(compat.Options{NoRenew: !renews, Timeout: time.Second, Observer: func(e compat.Event) {
						logged(e)
						if e.Kind == compat.EventLost || e.Kind == compat.EventReleased {
							told = append(told, e.Err)
						}
					}})
					l := w.try(locker, long)
					pass(long / 2)
					if lose(w, net); name != "released" {
						pass(long)
						told = append(told, context.Cause(l.Context()), l.Extend(background, long))
					}
					told = append(told, l.Release(background))
					locker.Close(background) //nolint:errcheck // nothing is left

					for _, err := range told {
						var lost *compat.LostError
						if !errors.As(err, &lost) || !errors.Is(err, compat.ErrLost) {
							t.Errorf("told of it by %v", err)
							continue
						}
						text := err.Error()
						if lost.Key != k.key || lost.Renewed != renews {
							t.Errorf("key %q, renewed %v: %q", lost.Key, lost.Renewed, text)
						}
						switch seen := !strings.Contains(k.name, "listed") && len(k.each()) == 1 && len(k.versions) == 1; {
						case name == "silent" && (lost.Value != "" || lost.Gone || lost.Err == nil || lost.Confirmed.IsZero()),
							name == "run out" && (lost.Value != "" || lost.Gone && err != told[len(told)-1] || lost.Confirmed.IsZero()),
							seen && (name == "deleted" || name == "released") && (!lost.Gone || !strings.Contains(text, "is gone")),
							seen && name == "overwritten" && (lost.Value != "another's" || !strings.Contains(text, "another's")):
							t.Errorf("why: %#v: %s", lost, text)
						case len(text) < len("setnxlock: lease lost: ")+len(k.key)+10:
							t.Errorf("no reason: %s", text)
						}
					}
					if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "lease lost") {
						t.Errorf("no warning: %s", log.String())
					}
				})
			})
		})
	}
}

// A Lock whose time ran out tells who has the key, and whether it has an end, and is no refusal.
func TestWhoHeldItMeanwhile(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			holder, _ := w.client(compat.Options{NoRenew: true})
			l := w.try(holder, long)
			waiter, _ := w.client(compat.Options{NoRenew: true})
			_, err := waiter.Lock(w.within(time.Second), k.key, long)
			var held *compat.HeldError
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, compat.ErrHeld) || !errors.As(err, &held) || held.Persistent {
				t.Errorf("%v: held %+v", err, held)
			}
			l.Release(background) //nolint:errcheck // all is well
			if len(k.each()) > 1 || len(k.versions) > 1 || strings.Contains(k.name, "getset") || strings.Contains(k.name, "listed") {
				return
			}
			w.do("SET", k.on(k.key), "of nobody")
			_, err = waiter.Lock(w.within(time.Second), k.key, long)
			if !errors.As(err, &held) || !held.Persistent || held.Value != "of nobody" || !strings.Contains(err.Error(), "no end") {
				t.Errorf("of a key without an end: %v: %+v", err, held)
			}
		})
	})
}

// A release that begins in time and finds the lock ours is no loss, however long it takes: the work was over before.
func TestASlowReleaseIsNoLoss(t *testing.T) {
	eachKind(t, all(true), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			lost := 0
			locker, net := w.client(compat.Options{NoRenew: true, Observer: func(e compat.Event) {
				if e.Kind == compat.EventLost {
					lost++
				}
			}})
			next := make(chan error, 1)
			err := locker.Do(background, k.key, short, func(ctx context.Context) error {
				go func() {
					l, err := locker.Lock(w.within(time.Hour), k.key, long)
					if err == nil {
						err = l.Release(background)
					}
					next <- err
				}()
				pass(time.Until(compat.FromContext(ctx).Until()) - 105*time.Millisecond)
				net.Expect(faulty.Fate{After: 10 * time.Millisecond}.Always()) // the lock's context would end sooner
				return context.Cause(ctx)
			})
			if err != nil || lost > 0 {
				w.Errorf("Do: %v; told as lost: %d times", err, lost)
			}
			net.Clear()
			if err := <-next; err != nil {
				w.Errorf("who waits here: %v", err)
			}
		})
	})
}

// A function of Do that works on after its caller has gone keeps the lock, and a loss is told all the same.
func TestDoIsWatchedToItsEnd(t *testing.T) {
	eachKind(t, all(false), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			lost := 0
			locker, _ := w.client(compat.Options{Observer: func(e compat.Event) {
				if e.Kind == compat.EventLost {
					lost++
				}
			}})
			caller, cancel := context.WithCancel(background)
			err := locker.Do(caller, k.key, short, func(ctx context.Context) error {
				l := compat.FromContext(ctx)
				cancel()
				pass(3 * short)
				if !time.Now().Before(l.Until()) || lost > 0 {
					w.Error("it was not renewed")
				}
				flush(w)
				pass(short)
				return nil
			})
			if !errors.Is(err, compat.ErrLost) || lost != 1 {
				w.Errorf("Do: %v; told as lost: %d times", err, lost)
			}
		})
	})
}
