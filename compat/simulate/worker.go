package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// A worker is one goroutine of a program: it takes locks, works under them, and does with them
// what the documentation allows, in any order.
type worker struct {
	*rand.Rand
	p    *process
	i    int // of its Locker
	name string
}

// given is a lock that was detached, for anybody to adopt.
type given struct {
	handle compat.Handle
	key    string // without prefix
	by     *process
	shared bool // it is a reader's
}

func newWorker(p *process, locker, n int) *worker {
	return &worker{Rand: rand.New(rand.NewPCG(p.w.Seed+13, uint64(p.id*100+n))), p: p, i: locker, name: fmt.Sprintf("P%d.%d", p.id, n)}
}

func (x *worker) work() {
	for range x.p.w.Sections {
		x.rest(500 * time.Millisecond)
		x.section()
	}
}

// rest lets up to d pass.
func (x *worker) rest(d time.Duration) { time.Sleep(time.Duration(x.Int64N(int64(d)))) }

// ttl is of any length, and of any part of a second where the lock can keep that.
func (x *worker) ttl() time.Duration {
	d := shortest + time.Duration(x.Int64N(int64(longest-shortest)))
	if x.IntN(2) == 0 {
		d = d.Round(time.Second)
	}
	return d
}

// patience is a caller's context: it has a deadline, or is cancelled at any moment.
func (x *worker) patience() (context.Context, context.CancelFunc) {
	d := time.Duration(x.Int64N(int64(10 * time.Second)))
	switch x.IntN(6) {
	case 0:
		d = time.Duration(x.Int64N(int64(20 * time.Millisecond))) // in the middle of something
	case 1:
		ctx, cancel := context.WithCancel(context.Background())
		t := time.AfterFunc(d, cancel)
		return ctx, func() { t.Stop(); cancel() }
	}
	return context.WithTimeout(context.Background(), d)
}

// section is one critical section, if the lock is to be had.
func (x *worker) section() {
	w := x.p.w
	c, ok := x.p.client(x.i, x.IntN(3) > 0)
	if !ok {
		return
	}
	keys := w.keys()
	key, ttl := keys[x.IntN(len(keys))], x.ttl()
	ctx, cancel := x.patience()
	defer cancel()
	var l *compat.Lock
	var err error
	switch x.IntN(8) {
	case 0, 1:
		call := w.judge.call(x, c, "TryLock", key, ctx, ttl)
		l, err = c.TryLock(ctx, key, ttl)
		call.end(err)
	case 2:
		call := w.judge.call(x, c, "Do", key, ctx, ttl)
		var in error
		err := c.Do(ctx, key, ttl, func(ctx context.Context) error {
			h := w.judge.holds(x, c, compat.FromContext(ctx), key)
			began := time.Now()
			x.rest(3 * time.Second)
			call.works = time.Since(began)
			in = context.Cause(ctx)
			w.judge.over(h, true)
			return ctx.Err()
		})
		call.endDo(err, in)
		return
	case 3:
		if g, ok := w.take(); ok && g.shared == c.shared {
			call := w.judge.call(x, c, "Adopt", g.key, ctx, ttl)
			l, err = c.AdoptHandle(ctx, g.handle, ttl)
			call.endAdopt(err, g)
			key = g.key
			break
		}
		fallthrough
	default:
		l, err = x.lockWaits(ctx, c, key, ttl)
	}
	if err != nil {
		return
	}
	x.inside(c, l, key, ttl)
}

// take takes what was detached last.
func (w *world) take() (g given, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.mailbox); n > 0 {
		g, ok = w.mailbox[n-1], true
		w.mailbox = w.mailbox[:n-1]
	}
	return g, ok
}

// inside is what is done with a lock that is held.
func (x *worker) inside(c client, l *compat.Lock, key string, ttl time.Duration) {
	w := x.p.w
	h := w.judge.holds(x, c, l, key)
	var beside sync.WaitGroup
	defer beside.Wait()
	var shown []compat.Handle // to be released by somebody, when the lock is over
	if w.Options.Renew && w.Keys > 2 && x.IntN(2) == 0 {
		// There are enough for everybody.
		x.several(c, key, ttl)
	}
	for range x.IntN(4) {
		x.rest(800 * time.Millisecond)
		ctx, cancel := x.patience()
		defer cancel()
		ttl := x.ttl()
		switch x.IntN(9) {
		case 0, 1, 2:
			on := time.Duration(x.Int64N(int64(longest)))
			extend := func() {
				call := w.judge.on(x, c, "Extend", h, ctx, ttl)
				err := l.Extend(ctx, ttl)
				if call.end(err); errors.Is(err, compat.ErrUnknown) || errors.Is(err, compat.ErrTimeout) {
					time.Sleep(on) // and works on, under what it may believe
				}
			}
			if x.IntN(3) == 0 {
				beside.Go(extend)
			} else {
				extend()
			}
		case 3:
			w.judge.over(h, true)
			call := w.judge.on(x, c, "Handoff", h, ctx, ttl)
			next, err := l.Handoff(ctx, ttl)
			call.end(err)
			if err != nil {
				w.judge.over(h, false)
				break
			}
			l, h = next, w.judge.holds(x, c, next, key)
			w.show(shown, key)
			shown = nil
		case 4:
			w.judge.over(h, true)
			call := w.judge.on(x, c, "Detach", h, ctx, ttl)
			handle, err := l.Detach(ctx)
			call.end(err)
			if err != nil {
				w.judge.over(h, false)
				break
			}
			w.mu.Lock()
			w.mailbox = append(w.mailbox, given{handle, key, x.p, c.shared})
			w.mu.Unlock()
			return
		case 5:
			l.Token()
		case 6:
			call := w.judge.call(x, c, "Inspect", key, ctx, ttl)
			_, err := c.Inspect(ctx, key)
			call.end(err)
		case 7:
			if handle := l.Handle(); x.IntN(3) > 0 {
				shown = append(shown, handle)
			} else if other, ok := w.all[x.IntN(len(w.all))].client(0, c.shared); ok {
				w.judge.gives(h) // whoever gives its handle to be released relies on it no more
				call := w.judge.call(x, other, "ReleaseHandle", key, ctx, ttl)
				call.end(other.ReleaseHandle(ctx, handle))
			}
		case 8:
			if x.IntN(2) == 0 {
				x.rest(2 * longest) // it forgets the time
			} else if h2, ok := w.stale(); ok { // somebody is late with what was released long ago
				call := w.judge.call(x, c, "ReleaseHandle", h2.key, ctx, ttl)
				call.end(c.ReleaseHandle(ctx, h2.handle))
			} else {
				ttl = []time.Duration{0, -time.Second, 1, math.MaxInt64}[x.IntN(4)]
				call := w.judge.on(x, c, "Extend", h, ctx, ttl)
				call.end(l.Extend(ctx, ttl))
			}
		}
	}
	x.rest(300 * time.Millisecond)
	x.release(c, l, h)
	w.show(shown, key)
}

// several holds others beside a key for a while: they are renewed together.
func (x *worker) several(c client, but string, ttl time.Duration) {
	w := x.p.w
	for _, key := range w.keys() {
		if key == but || x.IntN(2) == 0 {
			continue
		}
		ctx, cancel := x.patience()
		call := w.judge.call(x, c, "TryLock", key, ctx, ttl)
		l, err := c.TryLock(ctx, key, ttl)
		call.end(err)
		cancel()
		if err == nil {
			h := w.judge.holds(x, c, l, key)
			defer x.release(c, l, h)
		}
	}
	x.rest(2 * longest)
}

// release gives a lock up, again where that is of use, or for no reason.
func (x *worker) release(c client, l *compat.Lock, h *holding) {
	ctx, cancel := x.patience()
	defer cancel()
	for range 3 {
		x.p.w.judge.over(h, true)
		call := x.p.w.judge.on(x, c, "Release", h, ctx, 0)
		err := l.Release(ctx)
		call.end(err)
		if again := errors.Is(err, compat.ErrUnknown) || errors.Is(err, compat.ErrAborted) || x.IntN(4) == 0; !again {
			return
		}
		x.rest(time.Second)
	}
}

// show keeps handles of locks that are over: whoever has them may release by them, at any time.
func (w *world) show(handles []compat.Handle, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range handles {
		w.old = append(w.old, given{handle: h, key: key})
	}
}

// stale takes the oldest of them.
func (w *world) stale() (g given, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.old) > 0 {
		g, ok, w.old = w.old[0], true, w.old[1:]
	}
	return g, ok
}
