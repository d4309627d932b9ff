package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A round is one step on several servers.
type round[T any] struct {
	limit time.Duration
	only  func(i int) bool // which servers; nil: all
	step  func(ctx context.Context, s *server, i int) (T, error)

	// enough ends a round before its last answer: no further one changes what is made of
	// them. nil: all are waited for.
	enough func(answers []answer[T]) bool

	// late is told of an answer that came after the round was over, and has until ctx ends to
	// clean up after it; inTime: before the Locker's Options.Cleanup had passed too.
	late func(ctx context.Context, s *server, i int, value T, err error, inTime bool)

	// hopeless ends a sequential round before its last server.
	hopeless func(answers []answer[T]) bool
}

// An answer is one server's.
type answer[T any] struct {
	asked bool
	came  bool // it has answered; until then err is protocol.ErrTimeout
	value T
	err   error
}

// none is the value of a step that has none.
type none struct{}

// ready waits until a majority has been found safe, and reports if the wait was worth it. A check takes longer than a
// step may, and a server far away would never have a vote. One that hangs holds it up no longer than a step.
func (q *Quorum) ready(ctx context.Context, key string, ttl time.Duration) bool {
	safe, answering := 0, 0
	for _, s := range q.servers {
		switch _, err := s.ready(ctx, key, 0); {
		case err == nil:
			safe++
		case errors.Is(err, protocol.ErrTimeout):
			answering++
		}
	}
	if q.o.Sequential || answering == 0 || safe+answering < q.need {
		return !q.o.Sequential && safe >= q.need // by now
	}
	most := readyAtMost
	if at := limit.Until(ctx); !at.IsZero() {
		most = min(most, time.Until(at))
	}
	ready, pending := 0, 0
	count := func(answers []answer[none]) {
		ready, pending = 0, 0
		for _, a := range answers {
			switch {
			case a.asked && !a.came:
				pending++
			case a.err == nil:
				ready++
			}
		}
	}
	count(ask(ctx, q, round[none]{
		limit: most,
		step: func(ctx context.Context, s *server, _ int) (_ none, err error) {
			_, err = s.ready(ctx, key, q.limit(ttl))
			return none{}, err
		},
		enough: func(answers []answer[none]) bool {
			count(answers)
			return ready >= q.need || ready+pending < q.need
		},
	}))
	var trips []time.Duration
	for _, s := range q.servers {
		trip, _ := s.ready(ctx, key, 0)
		trips = append(trips, trip)
	}
	slices.Sort(trips)
	q.trip.Store(int64(trips[q.need-1]))
	return ready >= q.need
}

// ready calls the Ready of the server's Abilities.
func (s *server) ready(ctx context.Context, key string, trip time.Duration) (took time.Duration, err error) {
	if ready := s.Abilities().Ready; ready != nil {
		return ready(ctx, key, trip)
	}
	return 0, nil
}

// readyAtMost is how long that may take.
const readyAtMost = 10 * time.Second

// lateAtMost is how many steps may be stuck in a server before it is not asked
// any more until one of them ends.
const lateAtMost = 16

var (
	errStuck    = errors.New("setnxlock: earlier requests to it have not ended yet")
	errNotAsked = errors.New("setnxlock: not asked: no majority was possible any more")
	errPending  = errors.New("setnxlock: not waited for: the other servers had decided")
)

// ask runs r, on all servers at once or one after the other, and returns their
// answers by position.
func ask[T any](ctx context.Context, q *Quorum, r round[T]) []answer[T] {
	answers := make([]answer[T], len(q.servers))
	var who []int
	for i, s := range q.servers {
		switch {
		case r.only != nil && !r.only(i):
		case s.late.Load() >= lateAtMost:
			answers[i] = answer[T]{asked: true, came: true, err: protocol.NotSent.Mark(errStuck)}
		default:
			answers[i] = answer[T]{asked: true, err: protocol.ErrTimeout}
			who = append(who, i)
		}
	}
	if q.o.Sequential {
		inTurn(ctx, q, r, answers)
	} else if len(who) > 0 {
		(&poll[T]{q: q, r: r, answers: answers, left: len(who), news: make(chan struct{}, 1)}).run(ctx, who)
	}
	return answers
}

func inTurn[T any](ctx context.Context, q *Quorum, r round[T], answers []answer[T]) {
	hopeless := false
	for n := range answers {
		i := (q.o.First + n) % len(answers)
		a := &answers[i]
		switch {
		case !a.asked || a.came:
		case hopeless:
			a.came, a.err = true, protocol.NotSent.Mark(errNotAsked)
		default:
			a.value, a.err = r.step(ctx, q.servers[i], i)
			a.came = true
			hopeless = r.hopeless != nil && r.hopeless(answers)
		}
	}
}

// cleanup returns a context that outlives ctx by the Locker's Options.Cleanup, for work that must be done although ctx
// has ended.
func (q *Quorum) cleanup(ctx context.Context) (context.Context, func()) {
	if q.o.Sequential {
		return context.WithoutCancel(ctx), func() {}
	}
	return cleaning.Of(ctx, q.jobs).After(ctx)
}

// cleanupAtMost is the default of compat.Options.Cleanup, for a Quorum that no Locker uses.
const cleanupAtMost = 250 * time.Millisecond
