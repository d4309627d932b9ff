package client

import (
	"errors"
	"io"
	"os"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A memory is what a client's code can still know of an attempt. A finished
// operation of the algorithm is known by its result alone: an Algorithm keeps
// nothing in itself; and what the Locker reads off its clock it acts upon at
// once, or asks of it only whether it is before the lease's end. Histories that
// come to the same memory are one.
type memory struct {
	Past Fact // the results of the operations that are over
	Now  Fact // the operation under way: its time and what it has received
	Op   operation
}

// A Fact is a hash of something, and of its shape: the same for clients that
// differ only in who is called what.
type Fact struct{ Exact, Shape uint64 }

// Number takes a number in.
func (f *Fact) Number(n uint64) { f.Exact, f.Shape = memo.Mix(f.Exact, n), memo.Mix(f.Shape, n) }

// Text takes a text of a client in.
func (f *Fact) Text(s string, client int) {
	f.Exact = memo.Text(f.Exact, s)
	f.Shape = memo.Text(f.Shape, Anonymous(s, client))
}

// Anonymous marks the tokens in a text as the client's own or others'.
func Anonymous(s string, client int) string {
	return plan.EachToken(s, func(c int) byte {
		if c == client {
			return '@'
		}
		return '*'
	})
}

// kindOf returns an error's class for the code: one of these.
func kindOf(err error) (kinds uint64) {
	if err == nil {
		return 0
	}
	for n, e := range [...]error{protocol.ErrForeign, protocol.ErrHeld, protocol.ErrLost, protocol.ErrUnsafeServer, protocol.ErrInvalid,
		protocol.ErrAborted, protocol.ErrUnknown, io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, protocol.ErrDenied, errors.ErrUnsupported} {
		kinds |= memo.Truth(errors.Is(err, e)) << n
	}
	var e redis.Error
	return kinds | memo.Truth(errors.As(err, &e))<<13 | uint64(protocol.OutcomeOf(err))<<14 | 1<<16
}

func (f *Fact) lease(l protocol.Lease, client int) {
	f.Number(uint64(l.Until.UnixNano()))
	f.Number(uint64(l.Fence))
	f.Number(memo.Truth(l.Ambiguous))
	f.Text(l.Value, client)
	f.Text(string(l.How), client)
}

// add takes all of another fact in.
func (f *Fact) add(g Fact) { f.Exact, f.Shape = memo.Mix(f.Exact, g.Exact), memo.Mix(f.Shape, g.Shape) }

// holds forgets how the lock was obtained: a Lock knows its lease, unless it has to
// remember more.
func (m *memory) holds(l protocol.Lease, client int, all bool) {
	if !all {
		m.Past = Fact{}
	}
	m.Past.lease(l, client)
}
