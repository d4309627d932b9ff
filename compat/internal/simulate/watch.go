package simulate

import (
	"context"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/history"
)

// idle is the longest time for a key to be free while a client waits for it: a poll, a slow step, and a
// wait for a pool's connection.
const idle = 8 * time.Second

// lockWaits calls Lock, and registers the wait with the judge.
func (x *worker) lockWaits(ctx context.Context, c client, key string, ttl time.Duration) (*compat.Lock, error) {
	j := x.p.w.judge
	call := j.call(x, c, "Lock", key, ctx, ttl)
	j.mu.Lock()
	j.waiting[call] = true
	j.mu.Unlock()
	l, err := c.Lock(ctx, key, ttl)
	j.mu.Lock()
	delete(j.waiting, call)
	j.mu.Unlock()
	call.end(err)
	return l, err
}

// watch looks at the keys and the waiters each second, until stop is closed. Without watch, the judge
// would miss a violation while no client sends a command.
func (j *judge) watch(stop <-chan struct{}) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			j.mu.Lock()
			j.observe(j.look(nil))
			j.stalled()
			j.working()
			j.mu.Unlock()
		}
	}
}

// stalled finds calls of Lock that wait for a free key, unless a recent fault explains the wait. A lock
// of timestamps leaves an expired one on a free key, so stalled judges only locks whose free keys are
// gone.
func (j *judge) stalled() {
	if !j.w.Kind.Owned || !j.w.Kind.AnyClock {
		return
	}
	for k := range j.waiting {
		s := j.keys[k.key]
		j.w.mu.Lock()
		since := s.existed
		for _, p := range j.w.all { // the turn may be with a process that a fault holds up
			since = later(since, p.faulted)
		}
		gone := k.c.p.crashed || k.c.p.ending || k.c.life != k.c.p.lives
		j.w.mu.Unlock()
		if since = later(since, k.began); s.there || gone || k.ctx.Err() != nil || time.Since(since) < idle {
			continue
		}
		delete(j.waiting, k)
		j.breach("waits: %s: Lock(%s, %v) waits since %s, and the key is free since %s", k.x.name, k.key, k.ttl, j.w.at(k.began), j.w.at(s.existed))
	}
}

// overdue is the longest time for a lock's context to outlive its lease, while an Observer blocks.
const overdue = time.Second

// working tells the history about the contexts that go on. After a jump of its wall clock, a process has a second to
// notice, and so working skips the locks of such a process for 2 s.
func (j *judge) working() {
	for h := range j.held {
		j.w.mu.Lock()
		jumped := time.Since(h.c.p.jumped) < 2*time.Second
		j.w.mu.Unlock()
		if !jumped {
			j.tell(history.Event{Op: history.Works, ID: h.id})
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
