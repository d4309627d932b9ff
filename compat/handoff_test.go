package compat_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/txlock"
)

// A lock that a release passed on and that could not become the next holder's is taken off the
// server: nobody waits there for the rest of its lease.
func TestHandedOffInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "2.4")
		h := w.hall(fixed{txlock.Renamed{}}, compat.Options{NoRenew: true})
		l := try(t, h.k, "k")
		h.enter(0, 2, nil)
		w.clock.Add(ttl / 3) // so that the next holder has to extend it, and can't
		release(t, l)
		if took := w.until(inBackground(h.wg.Wait)); took > ttl/4 {
			t.Errorf("the next holders had it after %v", took)
		}
		h.inOrder(2)
		if hows := h.hows(); !slices.Equal(hows, []protocol.How{protocol.Free, protocol.Free, protocol.Free}) {
			t.Errorf("obtained %q", hows)
		}
	})
}

// One whose time runs out on its way to the next holder is not that one's, and is taken off the
// server while the key is still there.
func TestHandedOffTooLate(t *testing.T) {
	everywhere(t, func(t *testing.T, w *world, a protocol.Algorithm) {
		h := &hall{world: w, net: new(faulty.Network)}
		passed := false
		h.k = compat.NewOn(w.through(h.net), a, compat.Options{NoRenew: true, Clock: w.clock, Observer: func(e compat.Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.seen = append(h.seen, e); e.Kind == compat.EventReleased && !passed {
				passed = true
				w.clock.Set(e.Lease.Until) // before the next holder has it
			}
		}})
		l := try(t, h.k, "k")
		h.enter(0, 1, nil)
		release(t, l)
		done := inBackground(h.wg.Wait)
		synctest.Wait()
		select {
		case <-done:
		default:
			t.Error("the next holder waits for the end of what it was to have")
			w.until(done)
		}
		if hows := h.hows(); !slices.Equal(hows, []protocol.How{protocol.Free, protocol.Free}) || h.saw(compat.EventRefused) {
			t.Errorf("obtained %q; refused: %v", hows, h.saw(compat.EventRefused))
		}
	})
}
