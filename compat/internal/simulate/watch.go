package simulate

import (
	"context"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/history"
)

// idle is for how long a key may be free while somebody waits for it: a poll, a step that is slow to
// answer, a connection to be had of a pool that others use.
const idle = 8 * time.Second

// lockWaits is Lock, and the judge knows that somebody waits for the key.
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

// watch looks at the keys each second, so that what happens while nobody sends anything is seen,
// until stop is closed: that nobody waits for what is free, above all.
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

// stalled looks for calls of Lock that wait although nothing is on their key, and no fault that
// anybody was told of explains it. Locks of times leave theirs behind: what is free can't be told
// from the key alone.
func (j *judge) stalled() {
	if !j.w.Kind.Owned || !j.w.Kind.AnyClock {
		return
	}
	for k := range j.waiting {
		s := j.keys[k.key]
		j.w.mu.Lock()
		since := s.existed
		for _, p := range j.w.all { // whose turn it is may be elsewhere, at one that a fault keeps
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

// overdue is by how much a lock's context may outlive its lease, while an Observer blocks.
const overdue = time.Second

// working tells the history whose contexts go on. That a wall clock was set is found at the next look, within a second.
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
