package compat

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/cleaning"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// check asks the algorithm, once in each epoch, about its safety on this server, and returns the epoch. A check is
// ten times as long as a step: it goes on beside the steps that wait for it, and its finding is remembered.
func (s *server) check(ctx context.Context, key string) (epoch uint64, err error) {
	switch epoch, known := s.known(); {
	case known:
		return epoch, nil
	case limit.Of(ctx) == 0:
		return s.examine(ctx, key, nil)
	}
	return s.await(ctx, key, 0)
}

// known reports whether the server was found safe in this epoch.
func (s *server) known() (epoch uint64, known bool) {
	epoch = s.epoch()
	return epoch, s.traits.Check == nil || s.checked.Load() == epoch+1
}

// ready implements Abilities.Ready.
func (s *server) ready(ctx context.Context, key string, trip time.Duration) (took time.Duration, err error) {
	if _, known := s.known(); known {
		return time.Duration(s.trip.Load()), nil
	}
	if trip > 0 {
		_, err = s.await(ctx, key, trip)
		return time.Duration(s.trip.Load()), err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.exams[s.group(key)]; e != nil && !e.givenUp && e.silent() < 2*time.Duration(max(e.trip.Load(), s.trip.Load())) {
		return 0, ErrTimeout
	}
	return 0, ErrUnanswered
}

// await waits for a check, as long as ctx and its limit let it. With a trip it gives up when an answer takes
// longer than trip. Without one it begins a check anew after others gave it up.
func (s *server) await(ctx context.Context, key string, trip time.Duration) (epoch uint64, err error) {
	anew := trip == 0
	for {
		e := s.exam(ctx, key)
		err := e.wait(ctx, trip)
		s.mu.Lock()
		e.waiting--
		if err != nil { // as long as an answer may take, or the step has taken
			step := limit.Of(ctx)
			s.goOn(e, min(cmp.Or(trip, step), limit.Since(limit.Until(ctx).Add(-step))))
		}
		s.mu.Unlock()
		switch {
		case err != nil:
			return s.epoch(), err
		case e.panicked != nil:
			panic(e.panicked)
		case !e.givenUp || !anew:
			return e.epoch, e.err
		}
	}
}

// An exam is the checks of one server that are under way. They are few: if all steps that begin at once checked, or all
// whose connections broke in a busy moment, the server could be too busy with checks to end one in time. Two, so that one
// which hangs does not hold up all.
type exam struct {
	heard  atomic.Pointer[time.Time] // when the server last answered
	trip   atomic.Int64              // the longest that an answer has taken, in nanoseconds
	ctx    context.Context
	cancel func()

	// The server's mu guards these until done is closed.
	under    int
	waiting  int           // steps
	done     chan struct{} // closed when one has found the server safe, or none is under way
	ended    bool
	givenUp  bool
	epoch    uint64
	err      error
	panicked any
}

// hears notes that the server has answered.
func (e *exam) hears() {
	now := limit.Now()
	e.trip.Store(max(e.trip.Load(), int64(now.Sub(*e.heard.Swap(&now)))))
}

// silent returns the time since the server last answered.
func (e *exam) silent() time.Duration { return limit.Since(*e.heard.Load()) }

// wait waits until it is done.
func (e *exam) wait(ctx context.Context, trip time.Duration) error {
	rings, stop := limit.Alarm(ctx)
	defer stop()
	for {
		var slow <-chan time.Time
		if trip > 0 {
			slow = limit.After(trip - e.silent())
		}
		select {
		case <-e.done:
			return nil
		case <-ctx.Done():
			return limit.Cause(ctx)
		case <-rings:
			return ErrTimeout
		case <-slow:
		}
		if e.silent() >= trip {
			return ErrTimeout
		}
	}
}

// goOn lets checks without a waiting step go on, as long as no answer takes longer than trip. s.mu is held.
func (s *server) goOn(e *exam, trip time.Duration) {
	left := trip - e.silent()
	switch {
	case e.waiting > 0 || e.ctx.Err() != nil:
	case left <= 0:
		e.givenUp = true
		e.cancel()
	default:
		limit.AfterFunc(left, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.goOn(e, trip)
		})
	}
}

// exam joins a step to the checks of key's server. It begins another one while fewer than two are under way.
func (s *server) exam(ctx context.Context, key string) *exam {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.group(key)
	e := s.exams[g]
	if e == nil || e.givenUp {
		now := limit.Now()
		e = &exam{done: make(chan struct{})}
		e.ctx, e.cancel = cleaning.Of(ctx, cleaning.Alone).Keep(ctx, max(limit.Of(ctx), longestCheck))
		e.heard.Store(&now)
		s.exams[g] = e
	}
	e.waiting++
	if e.under == 2 {
		return e
	}
	e.under++
	go func() {
		epoch, err := uint64(0), errors.New("setnxlock: a check has panicked")
		defer func() {
			panicked := recover()
			s.mu.Lock()
			defer s.mu.Unlock()
			e.under--
			if over := err == nil || panicked != nil || e.under == 0; !over || e.ended {
				return
			}
			e.ended, e.epoch, e.err, e.panicked = true, epoch, err, panicked
			s.trip.Store(e.trip.Load())
			if s.exams[g] == e {
				delete(s.exams, g)
			}
			close(e.done)
			e.cancel() // the other
		}()
		epoch, err = s.examine(e.ctx, key, e.hears)
	}()
	return e
}

// longestCheck is how long a check may take: many times what one does whose server is 200 ms away.
const longestCheck = 10 * time.Second

// examine makes one check. A proxy answers an unknown command by closing the connection, and so does a broken
// network: the error says so, and proves nothing. Both the check and the reads after it have a connection of the
// pool's: where no new one is to be had, one that lives would prove nothing.
func (s *server) examine(ctx context.Context, key string, heard func()) (epoch uint64, err error) {
	blamed := ""
	for range checksAtMost {
		on := ""
		err = s.afresh(ctx, key, func(c *call) (err error) {
			epoch = s.epoch()
			if c.wire.Heard = heard; heard != nil {
				heard() // it has connected
			}
			err = s.traits.Check(&c.Conn, key)
			on = c.wire.Session.BrokeOn
			if err == nil && c.wire.Session.Transacted { // so do its steps
				s.pipes.Store(unasked)
			}
			return err
		})
		if err == nil {
			s.checked.Store(epoch + 1)
			s.compares.Found(epoch, true)
			return epoch, nil
		}
		var e redis.Error
		if ctx.Err() != nil || protocol.OutcomeOf(err) != protocol.Unknown || errors.As(err, &e) || !answer.Closed(err) || errors.Is(err, net.ErrClosed) {
			return epoch, err
		}
		proof := s.again(ctx, key, s.afresh, func(c *call) error {
			_, err := c.Do("GET", key)
			if answer.Refused(err) && !answer.CannotServe(err) { // an answer all the same
				return nil
			}
			return err
		})
		switch {
		case answer.CannotServe(proof): // it has no room for another client, …
			return epoch, proof
		case proof != nil:
			return epoch, err
		}
		if on == blamed && on != "" {
			return epoch, fmt.Errorf("%w: closed the connection, twice, on %s: %w", ErrUnanswered, on, err)
		}
		blamed = on
	}
	return epoch, fmt.Errorf("setnxlock: the connection to the server keeps breaking: %w", err)
}

// asks asks the server, once in each epoch, whether it compares by itself, before a change of a held lock relies
// on it. A successor after a failover may lack the commands, or ignore a word of theirs. If the answer can't be
// learned, the step does without.
func (c *call) asks(s *server, changes ...protocol.Change) {
	compares := func(ch protocol.Change) bool { return ch.If == protocol.IfEq }
	epoch := s.epoch()
	if s.traits.Check == nil || s.compares.Asked(epoch) || !slices.ContainsFunc(changes, compares) {
		return
	}
	err := s.traits.Check(&c.Conn, changes[0].Key)
	c.wire.Session.Begin() // what ran concerns no lock
	if err == nil || errors.Is(err, ErrUnsafeServer) {
		s.compares.Found(epoch, err == nil)
		return
	}
	c.wire.Compares = new(wire.Compares)
	c.wire.Compares.Answers(wire.ByNone)
}

// How transactions travel when steps share connections.
const (
	separate int32 = iota // each over its own connection: the server is not known to keep pipelined ones whole
	unasked               // as separate, until the first steps that share have asked the server
	whole                 // pipelined: the server keeps each of them whole
)

// learnWhole asks, beside the first steps on shared connections, whether those can carry transactions. A server
// that was not found to keep them whole is asked again when it is checked again.
func (s *server) learnWhole(key string) {
	if !s.pipes.CompareAndSwap(unasked, separate) {
		return
	}
	s.jobs.Run(func() {
		ctx := limit.Timed(cleaning.With(context.Background(), s.jobs), limit.Real, longestCheck)
		s.afresh(ctx, key, func(c *call) error { //nolint:errcheck // then they are not shared
			if c.keepsWhole(key) {
				s.pipes.Store(whole)
			}
			return nil
		})
	})
}

// keepsWhole reports whether the server keeps pipelined transactions whole. A server that doesn't runs them as
// one, or the second one's commands one by one, as Envoy does.
func (c *call) keepsWhole(key string) bool {
	one := []protocol.Cmd{{"MULTI"}, {"GET", protocol.Aux(key, "check:"+protocol.NewToken())}, {"EXEC"}}
	replies, err := c.Pipe(slices.Concat(one, one)...)
	if err != nil {
		return false // it hangs up on the question, or was not asked
	}
	ran := func(reply any) bool { all, _ := reply.([]any); return len(all) == 1 }
	return !ran(replies[2]) || ran(replies[5]) // where it has none, none is sent
}

// checksAtMost is how often a check may lose its connection while reads are answered. If it is the
// same commands twice in a row, those are blamed, as by package probe's Check.
const checksAtMost = 4
