package compat

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A release wakes one client of ours, wherever it waits, by two lists beside the key:
//
//	a waiter     LPUSH waiters id; EXPIRE waiters 60     it is there
//	             BLPOP wake 1                            and listens, again and again
//	a release    RPOPLPUSH waiters wake; EXPIRE wake 60  in the write that removes the key
//
// The client that registered first is named first, and the one that has listened longest gets
// the wake-up; that they need not be the same harms nobody, there is one for each. If nobody
// waits nothing is written. Foreign clients know nothing of it, and a wake-up can get lost
// with a connection: so a waiter looks all the same, slowly. It looks once when it has
// registered, for a release that came before that.
//
// Before 2.2 a command that pushes to a list with a TTL, or moves from it, deletes it: there
// the waiters' list has none.
const (
	listFor = 60 * time.Second // how long the lists stand unused
	listMax = 1024             // how many may be registered
	listen  = 1                // seconds, the least that there is: shorter than any sensible read timeout
	refresh = 20 * time.Second // how often a waiter looks after the list it is on
)

// signalling is the server's Backend if it is to signal.
func (k *Locker) signalling() *server {
	if !k.o.Signal {
		return nil
	}
	return k.abilities.server
}

// A listener listens for the head of a queue.
type listener struct {
	close      context.CancelFunc
	registered bool
	pass       bool // the lock was not taken here: others go on waiting
}

// stop ends it. The queues' mutex is held.
func (c *contention) stop(pass bool) {
	if c.listener != nil {
		c.listener.pass = pass
		c.listener.close()
		c.listener = nil
	}
}

// listens has a listener listen for the head, if releases signal, and reports whether a release
// would wake it. The queues' mutex is held.
func (k *Locker) listens(key string, q *queue) bool {
	b, c := k.signalling(), q.contention
	if b == nil {
		return false
	}
	if c.listener == nil && !k.now().Before(k.queues.listenRetryAt) {
		ctx, cancel := context.WithCancel(context.Background())
		c.listener = &listener{close: cancel}
		l := c.listener
		k.background(func() { k.listen(ctx, b, key, q, l) })
	}
	return c.listener != nil && c.listener.registered
}

// signalRetry is how long nobody listens or signals after that has failed: polling is enough.
const signalRetry = 10 * time.Second

func (k *Locker) listen(ctx context.Context, b *server, key string, q *queue, l *listener) {
	id := NewToken()
	woken, err := b.hear(ctx, k.now, key, id, func() {
		k.queues.mu.Lock()
		defer k.queues.mu.Unlock()
		if q.contention.listener == l {
			l.registered = true
			q.wakeHead(false)
		}
	})
	l.close()
	k.queues.mu.Lock()
	c := q.contention
	wanted := c.listener == l
	if wanted {
		c.listener = nil
		if woken {
			c.wakeupPending = true
			q.wakeHead(true)
		} else {
			k.queues.listenRetryAt = k.now().Add(signalRetry)
		}
	}
	pass := wanted || l.pass
	k.queues.mu.Unlock()
	switch {
	case woken && !wanted:
		k.wakeAnother(key)
	case err != nil:
		ctx, done := k.cleanup(ctx)
		defer done()
		b.deregister(ctx, key, id, pass) //nolint:errcheck // it is one name too many, for a minute
	}
}

// wakeAnother passes on a wake-up that came to a client that waits no more.
func (k *Locker) wakeAnother(key string) {
	ctx, done := k.cleanup(context.Background())
	defer done()
	k.signalling().wake(ctx, key) //nolint:errcheck // a client that is not woken looks, later
}

// A wakeup is what goes with a release, in the same write: behind the command that removes
// the key.
type wakeup struct {
	cmds  [2]Cmd
	woken bool
	err   error // why it is not to be asked for again soon
}

func waking(key string) [2]Cmd {
	wake := Aux(key, "wake")
	return [2]Cmd{{"RPOPLPUSH", Aux(key, "waiters"), wake}, {"EXPIRE", wake, int64(listFor / time.Second)}}
}

func (s *server) releaseWaking(ctx context.Context, now func() time.Time, l Lease) (woken bool, err error) {
	if now().UnixNano() < s.silent.Load() {
		return false, s.release(ctx, now, l, nil)
	}
	r := &wakeup{cmds: waking(l.Key)}
	err = s.release(ctx, now, l, r)
	var refused redis.Error
	if r.err != nil && (closed(r.err) || errors.As(r.err, &refused)) {
		// A user who may not, a proxy that does not know it: the release must not suffer again.
		s.silent.Store(now().Add(signalRetry).UnixNano())
	}
	return r.woken, err
}

func (s *server) wake(ctx context.Context, key string) error {
	return s.do(ctx, key, func(c *Conn) error {
		_, err := c.wakeOne(waking(key))
		return err
	})
}

// wakeOne wakes a client without a release.
func (c *Conn) wakeOne(cmds [2]Cmd) (woken bool, err error) {
	replies, err := c.Pipe(cmds[:]...)
	if err == nil {
		err = first(replies, nil)
	}
	return err == nil && replies[0] != nil, err
}

func (s *server) deregister(ctx context.Context, key, id string, pass bool) error {
	return s.do(ctx, key, func(c *Conn) error {
		there, err := redis.Int(c.Do("LREM", Aux(key, "waiters"), 1, id))
		if err == nil && there == 0 && pass {
			cmds := waking(key)
			_, err = c.Pipe(cmds[0], cmds[1])
		}
		return err
	})
}

func (s *server) hear(ctx context.Context, now func() time.Time, key, id string, registered func()) (woken bool, err error) {
	waiters, wake := Aux(key, "waiters"), Aux(key, "wake")
	var looked time.Time
	for {
		err := s.listening(ctx, key, func(c *Conn) error {
			if t := now(); t.Sub(looked) >= refresh {
				first := looked.IsZero()
				looked = t
				if err := s.register(c, waiters, id, first); err != nil {
					return err
				}
				registered()
			}
			heard, err := c.Do("BLPOP", wake, listen)
			woken = err == nil && heard != nil
			return err
		})
		if woken || err != nil {
			return woken, err
		}
	}
}

// register puts id on the list, if it is not on it any more.
func (s *server) register(c *Conn, waiters, id string, first bool) error {
	volatile, err := s.volatile(c, waiters)
	if err != nil {
		return err
	}
	seconds := int64(listFor / time.Second)
	if !first {
		still := Cmd{"EXISTS", waiters}
		if volatile {
			still = Cmd{"EXPIRE", waiters, seconds}
		}
		if n, err := redis.Int(c.Do(still[0].(string), still[1:]...)); n > 0 || err != nil {
			return err
		}
	}
	cmds := []Cmd{{"LPUSH", waiters, id}}
	if volatile {
		cmds = append(cmds, Cmd{"EXPIRE", waiters, seconds})
	}
	replies, err := c.Pipe(cmds...)
	if err != nil {
		return err
	}
	n, err := redis.Int(replies[0], nil)
	if err == nil && n > listMax {
		_, err = c.Do("LTRIM", waiters, 0, listMax-1)
	}
	return err
}

// volatile reports whether lists can have a TTL here and be lists all the same.
func (s *server) volatile(c *Conn, waiters string) (bool, error) {
	epoch := s.epoch() + 1
	if known := s.lists.Load(); known>>1 == epoch {
		return known&1 == 1, nil
	}
	scratch := waiters + ":check:" + NewToken()
	replies, err := c.Pipe(Cmd{"LPUSH", scratch, "x"}, Cmd{"EXPIRE", scratch, 10}, Cmd{"LPUSH", scratch, "x"}, Cmd{"DEL", scratch})
	if err != nil {
		return false, err
	}
	if err := first(replies, nil); err != nil {
		return false, err
	}
	yes := replies[2] == int64(2)
	s.lists.Store(epoch<<1 | map[bool]uint64{true: 1}[yes])
	return yes, nil
}

// listening is do for a step that blocks, and that a cancellation ends with its
// connection: which tells nothing of the server.
func (s *server) listening(ctx context.Context, key string, step func(*Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := s.borrow(ctx, key)
	if err != nil {
		return err
	}
	g := &Conn{Conn: c}
	g.begin(ctx)
	err = step(g)
	g.giveBack()
	return err
}
