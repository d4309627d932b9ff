package promises_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// meanings are the errors by which an operation says what became of it.
var meanings = []error{
	compat.ErrHeld, compat.ErrLost, compat.ErrReleased, compat.ErrHandedOff, compat.ErrDetached, compat.ErrForeign,
	compat.ErrUnsafeServer, compat.ErrDenied, compat.ErrUnknown, compat.ErrTimeout, compat.ErrElection, compat.ErrAborted,
	compat.ErrUnanswered, compat.ErrInvalid, compat.ErrClosed, errors.ErrUnsupported, context.Canceled,
	context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF, net.ErrClosed, redis.ErrNil,
}

// brought are errors that a caller may bring along: another lock's, another server's, another connection's.
func brought() (all []error) {
	for _, err := range slices.Concat(meanings, []error{
		&compat.HeldError{Key: "k", Value: "theirs"}, &compat.UnsafeServerError{Why: "of another server"},
		&compat.DeniedError{Reply: "NOPERM another's"}, &compat.UnknownError{Lease: compat.Lease{Key: "k", Value: "theirs"}, Err: io.EOF},
		protocol.NotSent.Mark(errors.New("another's")), protocol.Refused.Mark(errors.New("another's")), protocol.Done.Mark(errors.New("another's")),
		redis.Error("MOVED 1 127.0.0.1:1"), redis.Error("CLUSTERDOWN another's"), redis.Error("NOSCRIPT another's"),
		redis.Error("EXECABORT another's"), redis.Error("ERR unknown command 'WATCH'"), redis.Error("READONLY another's"),
	}) {
		all = append(all, err, fmt.Errorf("the caller's: %w", err), errors.Join(errors.New("the caller's"), err))
	}
	return all
}

// said is what an error tells of an operation, and what its holder believes after it.
func said(err error, l *compat.Lock) string {
	s := fmt.Sprint("outcome ", protocol.OutcomeOf(err), ";")
	for _, m := range meanings {
		if errors.Is(err, m) {
			s += fmt.Sprintf(" Is %v;", m)
		}
	}
	s += fmt.Sprint(" HeldError ", errors.As(err, new(*compat.HeldError)), ", an answer ", errors.As(err, new(redis.Error)))
	if l != nil {
		s += fmt.Sprintf("; until %v, lost %v", time.Until(l.Until()), errors.Is(context.Cause(l.Context()), compat.ErrLost))
	}
	return s
}

// What a caller brings along says nothing about a lock: an operation whose context ends with one of our own errors
// as its cause, or whose dial fails with one, ends as one whose caller brought an error that nobody knows.
func TestWhatACallerBringsAlongSaysNothing(t *testing.T) {
	nobodys := errors.New("nobody's")
	kinds := withShared(all(true))
	kinds = append(kinds, quorum("redlock", false, []string{"2.2", "2.4", "2.6.12"}, getsetlock.Guarded{}, txlock.Renamed{}, setlock.Lua{}))
	each := brought()
	for _, q := range questions {
		for where, befall := range map[string]func(n *faulty.Network, cause error, end context.CancelCauseFunc){
			"the context ends before the request": func(_ *faulty.Network, cause error, end context.CancelCauseFunc) { end(cause) },
			"the context ends while it travels": func(n *faulty.Network, cause error, end context.CancelCauseFunc) {
				n.Expect(faulty.Fate{Before: time.Hour}.At(1))
				time.AfterFunc(100*time.Millisecond, func() { end(cause) })
			},
			"the context ends while the reply travels": func(n *faulty.Network, cause error, end context.CancelCauseFunc) {
				n.Expect(func(m faulty.Message) faulty.Fate {
					if m.At == len(m.Write)-1 && m.N > 1 || len(m.Write) == 1 {
						return faulty.Fate{After: time.Hour}
					}
					return faulty.Fate{}
				})
				time.AfterFunc(100*time.Millisecond, func() { end(cause) })
			},
			"the second write breaks off": func(n *faulty.Network, cause error, end context.CancelCauseFunc) {
				writes := 0
				n.Expect(func(m faulty.Message) faulty.Fate {
					if m.At == 0 {
						writes++
					}
					if writes == 2 {
						return faulty.Fate{Before: time.Hour}
					}
					return faulty.Fate{}
				})
				time.AfterFunc(100*time.Millisecond, func() { end(cause) })
			},
			"the dial fails": func(n *faulty.Network, cause error, _ context.CancelCauseFunc) {
				n.Cut()
				n.OnDial(func(context.Context) error { return cause })
				time.AfterFunc(100*time.Millisecond, n.Clear)
			},
		} {
			t.Run(q.name+"/"+where, func(t *testing.T) {
				eachKind(t, kinds, func(t *testing.T, k kind) {
					with := func(cause error) (what string) {
						inWorld(t, k, func(w *world) {
							locker, net := w.client(compat.Options{NoRenew: true, Timeout: long})
							l := w.try(locker, 2*long)
							defer pass(2 * time.Hour) // a shared connection goes on waiting
							ctx, end := context.WithCancelCause(background)
							defer end(nil)
							befall(net, cause, end)
							got, err := q.ask(ctx, w, locker, l)
							net.Clear()
							if got == nil {
								got = l
							}
							if what = said(err, got); err == nil {
								return
							}
							pass(time.Second)
							what += "; then " + said(got.Extend(background, long), got)
						})
						return what
					}
					want := with(nobodys)
					stride := 23 // each of brought is some kind's
					if whole {
						stride = 1
					}
					for i := len(k.name) % stride; i < len(each); i += stride {
						if _, answer := each[i].(redis.Error); answer && where == "the dial fails" {
							continue // the server's, to AUTH
						}
						got := with(each[i])
						for again := 0; got != want && again < 20; again++ { // goroutines that race may bring it about
							want = with(nobodys)
						}
						if got != want {
							t.Errorf("with %#v:\n%s, want\n%s", each[i], got, want)
							return
						}
					}
				})
			})
		}
	}
}

// A mouthpiece says another thing of a step whose connection broke, and of an extension that was done.
type mouthpiece struct {
	protocol.Algorithm
	says, after error
}

func (a mouthpiece) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, err := a.Algorithm.Acquire(c, now, key, ttl)
	return l, a.word(c, err)
}

func (a mouthpiece) word(c *protocol.Conn, err error) error {
	if err != nil && c.Err() != nil && a.says != nil {
		return a.says
	}
	return err
}

func (a mouthpiece) lies(ch protocol.Change) protocol.Change {
	return protocol.Change{Key: ch.Key, Value: ch.Value, TakeFence: ch.TakeFence, Custom: func(c *protocol.Conn) ([]any, error) {
		replies, err := c.Run(ch)
		return replies, a.word(c, err)
	}}
}

func (a mouthpiece) Extend(now time.Time, l compat.Lease, ttl time.Duration, rotate bool) (compat.Lease, protocol.Change, error) {
	next, ch, err := a.Algorithm.Extend(now, l, ttl, rotate)
	if ch = a.lies(ch); a.after != nil {
		ch.After = func(*protocol.Conn) error { return a.after }
	}
	return next, ch, err
}

func (a mouthpiece) Release(l compat.Lease) protocol.Change { return a.lies(a.Algorithm.Release(l)) }

// mouthpieces are locks of users who pass another lock's error on.
func mouthpieces() (all []kind) {
	for name, err := range map[string]error{
		"held": &compat.HeldError{Key: "k"}, "lost": compat.ErrLost, "not sent": protocol.NotSent.Mark(io.EOF), "invalid": compat.ErrInvalid,
	} {
		for _, k := range []kind{
			one("tx:renamed says "+name, "2.4", mouthpiece{txlock.Renamed{}, err, nil}),
			one("set:lua says "+name, "2.6.12", mouthpiece{setlock.Lua{}, err, nil}),
			one("tx:renamed says "+name+" after an extension", "2.4", mouthpiece{txlock.Renamed{}, nil, err}),
		} {
			all = append(all, k, sharing(k))
		}
	}
	return all
}
