package compat

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/queue"
	"github.com/setnxlock/setnxlock/compat/internal/signal"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// silences returns how long releases wake nobody after a wake-up ended with err. What a server says of the moment,
// or of one key, says nothing about the next wake-up. A user who may not, or a server that lacks the command, is
// not asked again soon: polling is enough. A connection that ended may have been a proxy's answer to a command
// that it does not know, or any end: each one in a row doubles the pause.
func silences(err error) time.Duration {
	var refused redis.Error
	_, notNow := answer.NotNow(err)
	switch {
	case protocol.OutcomeOf(err) == protocol.NotSent:
		return 0
	case answer.Closed(err):
		return time.Second
	case !errors.As(err, &refused), notNow, answer.Passes(err), answer.CannotServe(err), answer.NotString(refused):
		return 0
	}
	return longSilence
}

const longSilence = 10 * time.Minute

// blocks limits the seconds for which a waiter listens at once, blocksFirst the first time: a shorter read timeout
// would end its connection.
const blocks, blocksFirst = 8, 1

func lists(key string) signal.Lists {
	return signal.Lists{Waiters: protocol.Aux(key, "waiters"), Wake: protocol.Aux(key, "wake")}
}

func (s *server) signals(now func() time.Time, pause func(time.Duration), step, cleanup func(context.Context) (context.Context, func())) *queue.Signals {
	if s.source.Listen < 0 {
		return nil
	}
	return &queue.Signals{
		Listen: func(ctx context.Context, key string, first bool, registered func(int)) (woken bool, leave func(pass bool)) {
			if !s.reserve(key) {
				return false, nil
			}
			defer s.vacate(key)
			w := &signal.Waiter{ID: protocol.NewToken(), First: first}
			if s.listen(ctx, key, w, now, registered) {
				return true, nil
			}
			return false, func(pass bool) {
				ctx, done := cleanup(ctx)
				defer done()
				s.do(ctx, key, func(c *call) error { return w.Leave(c, lists(key), pass) }) //nolint:errcheck // it is one name too many, for a minute
			}
		},
		Wake: func(ctx context.Context, key string, moment time.Duration) (woken bool) {
			if moment > 0 {
				pause(moment)
			}
			if until := s.silent.Load(); until != nil && now().Before(*until) {
				return false
			}
			ctx, done := cleanup(ctx)
			defer done()
			err := s.do(ctx, key, func(c *call) (err error) {
				woken, err = signal.Wake(c, lists(key))
				return err
			})
			retry := silences(err)
			switch {
			case err == nil:
				s.hungUp.Store(0)
			case answer.Closed(err): // a proxy without transactions does it each time
				retry = min(retry<<min(s.hungUp.Add(1)-1, 16), longSilence)
			}
			if retry > 0 {
				until := now().Add(retry)
				s.silent.Store(&until)
			}
			return woken
		},
		Next: func(ctx context.Context, key string) (next string) {
			ctx, done := step(ctx)
			defer done()
			s.do(ctx, key, func(c *call) (err error) { //nolint:errcheck // then it is not known
				next, err = signal.Next(c, lists(key))
				return err
			})
			return next
		},
	}
}

// listen listens until ctx ends, a wake-up came, or it fails. Each time it listens for longer, as long as the read
// timeout of the connections lets it. On a server that takes the place of another one it registers anew.
func (s *server) listen(ctx context.Context, key string, w *signal.Waiter, now func() time.Time, registered func(int)) (woken bool) {
	epoch := s.epoch()
	for n := blocksFirst; ; n = min(2*n, blocks) {
		n = min(n, cmp.Or(int(s.hears.Load()), blocks))
		if e := s.epoch(); e != epoch {
			epoch, *w = e, signal.Waiter{ID: w.ID, First: w.First}
		}
		err := s.listening(ctx, key, func(c *call) error {
			can, err := s.volatile(c, lists(key).Waiters)
			if err == nil && !can {
				err = errors.ErrUnsupported
			}
			if err == nil {
				woken, err = w.Listen(c, lists(key), now(), n, registered)
			}
			return err
		})
		switch {
		case woken:
			return true
		case err != nil && (ctx.Err() != nil || n == blocksFirst || !errors.Is(err, os.ErrDeadlineExceeded)):
			return false
		case err != nil:
			s.hears.Store(int64(n / 2))
		}
	}
}

// reserve reports whether a connection may listen, until vacate.
func (s *server) reserve(key string) bool {
	if s.source.Listen == 0 {
		return s.stock(key).Reserve()
	}
	if s.listeners.Add(1) <= int64(s.source.Listen) {
		return true
	}
	s.listeners.Add(-1)
	return false
}

func (s *server) vacate(key string) {
	if s.source.Listen == 0 {
		s.stock(key).Vacate()
	} else {
		s.listeners.Add(-1)
	}
}

// volatile asks signal.Volatile once in each epoch.
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

// listening runs a blocking step over a connection of its own. A cancellation ends the step with its connection,
// and tells nothing of the server.
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
