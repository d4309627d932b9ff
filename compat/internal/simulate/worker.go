package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/rwlock"
)

// A worker is one goroutine of a program: it takes locks, works under them, and calls the methods of
// a Lock in any order that the documentation allows.
type worker struct {
	*rand.Rand
	p     *process
	i     int // the index of its Locker
	name  string
	waits int // the calls of waitItself
}

// A given lock is a detached lock, or a handle that a program has passed on.
type given struct {
	handle compat.Handle
	key    string // without prefix
	half
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

// rest waits for up to d.
func (x *worker) rest(d time.Duration) { time.Sleep(time.Duration(x.Int64N(int64(d)))) }

// ttl draws a ttl between shortest and longest, half of them in whole seconds.
func (x *worker) ttl() time.Duration {
	d := shortest + time.Duration(x.Int64N(int64(longest-shortest)))
	if x.IntN(2) == 0 {
		d = d.Round(time.Second)
	}
	return d
}

// patience returns a caller's context: it has a deadline, or is cancelled at a random moment.
func (x *worker) patience() (context.Context, context.CancelFunc) {
	d := time.Duration(x.Int64N(int64(10 * time.Second)))
	switch x.IntN(6) {
	case 0:
		d = time.Duration(x.Int64N(int64(20 * time.Millisecond))) // within the first step
	case 1:
		ctx, cancel := context.WithCancel(context.Background())
		t := time.AfterFunc(d, cancel)
		return ctx, func() { t.Stop(); cancel() }
	}
	return context.WithTimeout(context.Background(), d)
}

// section runs one critical section, if it gets the lock.
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
	switch x.IntN(9) {
	case 0, 1:
		call := w.judge.call(x, c, "TryLock", key, ctx, ttl)
		l, err = c.TryLock(ctx, key, ttl)
		call.end(err)
	case 2:
		call := w.judge.call(x, c, "Do", key, ctx, ttl)
		var h *holding
		err := c.Do(ctx, key, ttl, func(ctx context.Context) error {
			l := compat.FromContext(ctx)
			w.judge.count("FromContext: a lock")
			h = w.judge.holds(x, c, l, key, nil)
			began := time.Now()
			x.rest(3 * time.Second)
			call.works = time.Since(began)
			w.judge.over(h, true)
			return ctx.Err()
		})
		call.endDo(err, h)
		return
	case 4:
		l, err = x.waitItself(ctx, c, key, ttl)
	case 3:
		if g, ok := w.take(); ok && g.half == c.half {
			key = g.key
			if x.IntN(3) == 0 {
				call := w.judge.call(x, c, "Adopt", key, ctx, ttl)
				l, err = c.Adopt(ctx, key, g.handle.Token, ttl)
				call.endAdopt(err, g)
				break
			}
			call := w.judge.call(x, c, "AdoptHandle", key, ctx, ttl)
			l, err = c.AdoptHandle(ctx, g.handle, ttl)
			call.endAdopt(err, g)
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

// waitItself waits for the key without Lock: it calls TryLock and Inspect, under the ticket of WaitingAs.
func (x *worker) waitItself(ctx context.Context, c client, key string, ttl time.Duration) (*compat.Lock, error) {
	j := x.p.w.judge
	x.waits++
	ctx = c.WaitingAs(ctx, fmt.Sprintf("%s-%d", x.name, x.waits))
	j.count("WaitingAs: a wait")
	for {
		call := j.call(x, c, "TryLock", key, ctx, ttl)
		l, err := c.TryLock(ctx, key, ttl)
		if call.end(err); !errors.Is(err, compat.ErrHeld) || ctx.Err() != nil {
			return l, err
		}
		for s := (compat.State{Status: compat.StatusHeld}); s.Status == compat.StatusHeld && !s.Open && ctx.Err() == nil; {
			x.rest(500 * time.Millisecond)
			call := j.call(x, c, "Inspect", key, ctx, ttl)
			s, err = c.Inspect(ctx, key)
			call.end(err)
		}
	}
}

// take takes the lock that was detached last.
func (w *world) take() (g given, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.mailbox); n > 0 {
		g, ok = w.mailbox[n-1], true
		w.mailbox = w.mailbox[:n-1]
	}
	return g, ok
}

// A tenure is a worker with a held lock.
type tenure struct {
	*worker
	w     *world
	c     client
	l     *compat.Lock
	h     *holding
	key   string
	ttl   time.Duration   // of the next action
	shown []compat.Handle // handles for a late release, when the lock is over
	over  bool            // the holder has given the lock up

	beside sync.WaitGroup // extensions in other goroutines
}

// inside draws actions on a held lock, and releases the lock.
func (x *worker) inside(c client, l *compat.Lock, key string, ttl time.Duration) {
	w := x.p.w
	t := &tenure{worker: x, w: w, c: c, l: l, h: w.judge.holds(x, c, l, key, nil), key: key}
	defer t.beside.Wait()
	if !w.Options.NoRenew && w.Keys > 2 && x.IntN(2) == 0 {
		x.several(c, key, ttl) // with more than two keys, others still find a free one
	}
	for range x.IntN(4) {
		x.rest(800 * time.Millisecond)
		ctx, cancel := x.patience()
		defer cancel()
		t.ttl = x.ttl()
		if actions[x.IntN(len(actions))](t, ctx); t.over {
			return
		}
	}
	x.rest(300 * time.Millisecond)
	x.release(t.c, t.l, t.h)
	w.show(t.shown, key, t.c.half)
}

// actions has the actions on a held lock, each entry as likely as another.
var actions = [...]func(t *tenure, ctx context.Context){
	(*tenure).extends, (*tenure).extends, (*tenure).extends, (*tenure).handsOff, (*tenure).detaches,
	func(t *tenure, _ context.Context) { t.w.judge.reads(t.h) },
	(*tenure).inspects, (*tenure).shows, (*tenure).mistakes, (*tenure).downgrades,
}

// begins registers a call of a method of the lock.
func (t *tenure) begins(ctx context.Context, name string) *call {
	return t.w.judge.on(t.worker, t.c, name, t.h, ctx, t.ttl)
}

// becomes replaces the lock by its successor.
func (t *tenure) becomes(c client, l *compat.Lock, from *holding) {
	h := t.w.judge.holds(t.worker, c, l, t.key, from)
	t.w.show(t.shown, t.key, t.c.half)
	t.c, t.l, t.h, t.shown = c, l, h, nil
}

func (t *tenure) extends(ctx context.Context) {
	on := longest/2 + time.Duration(t.Int64N(int64(longest/2)))
	if t.IntN(2) == 0 {
		t.ttl = shortest // most often less than the rest of the lease
	}
	c, l, h, ttl := t.c, t.l, t.h, t.ttl // t may have another lock when the goroutine runs
	extend := func() {
		call := t.w.judge.on(t.worker, c, "Extend", h, ctx, ttl)
		err := l.Extend(ctx, ttl)
		if call.end(err); errors.Is(err, compat.ErrUnknown) || errors.Is(err, compat.ErrTimeout) {
			time.Sleep(on) // the holder works on, under its belief
		}
	}
	if t.IntN(3) == 0 {
		t.beside.Go(extend)
	} else {
		extend()
	}
}

func (t *tenure) handsOff(ctx context.Context) {
	t.w.judge.over(t.h, true)
	call := t.begins(ctx, "Handoff")
	next, err := t.l.Handoff(ctx, t.ttl)
	if call.end(err); err == nil {
		t.becomes(t.c, next, nil)
	} else {
		t.w.judge.over(t.h, false)
	}
}

func (t *tenure) detaches(ctx context.Context) {
	t.w.judge.over(t.h, true)
	call := t.begins(ctx, "Detach")
	handle, err := t.l.Detach(ctx)
	if call.end(err); err != nil {
		t.w.judge.over(t.h, false)
		return
	}
	t.w.set(func() { t.w.mailbox = append(t.w.mailbox, given{sent(handle), t.key, t.c.half}) })
	t.over = true
}

func (t *tenure) inspects(ctx context.Context) {
	call := t.w.judge.call(t.worker, t.c, "Inspect", t.key, ctx, t.ttl)
	_, err := t.c.Inspect(ctx, t.key)
	call.end(err)
}

// shows passes the handle on: for a later release by another client, or for a release now.
func (t *tenure) shows(ctx context.Context) {
	if handle := t.l.Handle(); t.IntN(3) > 0 {
		t.shown = append(t.shown, handle)
	} else if other, ok := t.w.all[t.IntN(len(t.w.all))].client(0, t.c.shared); ok && other.half == t.c.half {
		t.w.judge.gives(t.h) // the other client releases the lock
		t.releases(ctx, other, given{handle, t.key, t.c.half})
	}
}

func (t *tenure) mistakes(ctx context.Context) {
	if t.IntN(2) == 0 {
		t.rest(2 * longest) // the holder overstays its lease
	} else if old, ok := t.w.stale(t.c.half); ok { // a release comes long after the end of its lock
		t.releases(ctx, t.c, old)
	} else {
		t.ttl = []time.Duration{0, -time.Second, 1, math.MaxInt64}[t.IntN(4)]
		call := t.begins(ctx, "Extend")
		call.end(t.l.Extend(ctx, t.ttl))
	}
}

// downgrades turns a writer into a reader.
func (t *tenure) downgrades(ctx context.Context) {
	readers, ok := t.p.client(t.i, true)
	if !ok || t.c.shared || !readers.shared || readers.life != t.c.life {
		return
	}
	t.w.judge.over(t.h, true)
	call := t.begins(ctx, "Downgrade")
	next, err := rwlock.Downgrade(ctx, t.l, readers.Locker, t.ttl)
	call.end(err)
	switch {
	case err == nil:
		t.becomes(readers, next, t.h)
	case t.l.Context().Err() != nil:
		t.over = true // neither a writer nor a reader
	default:
		t.w.judge.over(t.h, false)
	}
}

// sent returns the handle as another process reads it.
func sent(h compat.Handle) (there compat.Handle) {
	text, _ := h.MarshalText()
	if err := there.UnmarshalText(text); err != nil {
		panic(err)
	}
	return there
}

// releases releases a lock by its handle, or by the key and the token in the handle.
func (x *worker) releases(ctx context.Context, c client, g given) {
	if x.IntN(3) == 0 {
		call := x.p.w.judge.call(x, c, "ReleaseToken", g.key, ctx, shortest)
		call.end(c.ReleaseToken(ctx, g.key, g.handle.Token))
		return
	}
	call := x.p.w.judge.call(x, c, "ReleaseHandle", g.key, ctx, shortest)
	call.end(c.ReleaseHandle(ctx, sent(g.handle)))
}

// several holds other keys beside one for a while: the engine renews them together.
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
			h := w.judge.holds(x, c, l, key, nil)
			defer x.release(c, l, h)
		}
	}
	x.rest(2 * longest)
}

// release releases a lock, and again after an unknown outcome, or at random.
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

// show keeps handles of a lock that is over, for stale.
func (w *world) show(handles []compat.Handle, key string, of half) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range handles {
		w.old = append(w.old, given{h, key, of})
	}
}

// stale takes the oldest kept handle for the Lockers of a half.
func (w *world) stale(of half) (g given, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.old, func(g given) bool { return g.half == of })
	if i < 0 {
		return g, false
	}
	g = w.old[i]
	w.old = slices.Delete(w.old, i, i+1)
	return g, true
}
