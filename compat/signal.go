package compat

import (
	"context"
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/internal/signal"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// signalRetry is how long releases wake nobody after that has failed: polling is enough.
const signalRetry = 10 * time.Second

func lists(key string) signal.Lists {
	return signal.Lists{Waiters: protocol.Aux(key, "waiters"), Wake: protocol.Aux(key, "wake")}
}

func (s *server) signals(now func() time.Time, step, cleanup func(context.Context) (context.Context, func())) *queue.Signals {
	return &queue.Signals{
		Listen: func(ctx context.Context, key string, registered func()) (woken bool, leave func(pass bool)) {
			l, w := lists(key), &signal.Waiter{ID: protocol.NewToken()}
			for !woken {
				err := s.listening(ctx, key, func(c *call) (err error) {
					if l.Volatile, err = s.volatile(c, l.Waiters); err == nil {
						woken, err = w.Listen(c, l, now(), registered)
					}
					return err
				})
				if err != nil {
					return false, func(pass bool) {
						ctx, done := cleanup(ctx)
						defer done()
						s.do(ctx, key, func(c *call) error { return w.Leave(c, l, pass) }) //nolint:errcheck // it is one name too many, for a minute
					}
				}
			}
			return true, nil
		},
		Anyone: func(key string) bool {
			l, waits := lists(key), true
			ctx, done := step(context.Background())
			defer done()
			s.do(ctx, key, func(c *call) (err error) { //nolint:errcheck // what can't be asked may be so
				if l.Volatile, err = s.volatile(c, l.Waiters); err == nil {
					waits, err = signal.Anyone(c, l)
					waits = waits || err != nil
				}
				return err
			})
			return waits
		},
		Wake: func(key string) {
			ctx, done := cleanup(context.Background())
			defer done()
			s.do(ctx, key, func(c *call) error { //nolint:errcheck // a client that is not woken looks, later
				_, err := c.wakeOne(lists(key).Waking())
				return err
			})
		},
	}
}

func (s *server) releaseWaking(ctx context.Context, now func() time.Time, l Grant) (woken bool, err error) {
	if now().UnixNano() < s.silent.Load() {
		return false, s.release(ctx, now, l, nil)
	}
	r := &wire.Wakeup{Cmds: lists(l.Key).Waking()}
	err = s.release(ctx, now, l, r)
	var refused redis.Error
	if r.Err != nil && (answer.Closed(r.Err) || errors.As(r.Err, &refused)) {
		// A user who may not, a proxy that does not know it: the release must not suffer again.
		s.silent.Store(now().Add(signalRetry).UnixNano())
	}
	return r.Woken, err
}

// wakeOne wakes a client without a release.
func (c *call) wakeOne(cmds [2][]any) (woken bool, err error) {
	w := c.wire.Compose(wire.Arguments(cmds[:]))
	wire.All(&w, cmds[:])
	replies, err := w.Replies()
	if err == nil {
		err = answer.First(replies)
	}
	return err == nil && replies[0] != nil, err
}

// volatile is signal.Volatile, asked once in each epoch.
func (s *server) volatile(c *call, waiters string) (yes bool, err error) {
	epoch := s.epoch() + 1
	if known := s.lists.Load(); known>>1 == epoch {
		return known&1 == 1, nil
	}
	if yes, err = signal.Volatile(c, waiters+":check:"+protocol.NewToken()); err == nil {
		s.lists.Store(epoch<<1 | map[bool]uint64{true: 1}[yes])
	}
	return yes, err
}

// listening is do for a step that blocks, and that a cancellation ends with its
// connection: which tells nothing of the server.
func (s *server) listening(ctx context.Context, key string, step func(*call) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c, err := s.borrow(ctx, key, true)
	if err != nil {
		return err
	}
	g := new(call)
	g.lend(c)
	g.begin(ctx)
	defer g.wire.Return()
	return step(g)
}
