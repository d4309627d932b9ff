package race

import (
	"errors"
	"io"
	"os"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A memory is what a client's code can still know of an attempt. A finished
// operation of the algorithm is known by its result alone: an Algorithm keeps
// nothing in itself; and what the Locker reads off its clock it acts upon at
// once, or asks of it only whether it is before the lease's end. Histories that
// come to the same memory are one.
type memory struct {
	past fact // the results of the operations that are over
	now  fact // the operation under way: its time and what it has received
	op   operation
}

// A fact is a hash of something, and of its shape: the same for clients that
// differ only in who is called what.
type fact struct{ exact, shape uint64 }

func (f *fact) number(n uint64) { f.exact, f.shape = mix(f.exact, n), mix(f.shape, n) }

func (f *fact) text(s string, client int) {
	f.exact = text(f.exact, s)
	f.shape = text(f.shape, anonymous(s, client))
}

// anonymous is a text with its tokens marked as the client's own or others'.
func anonymous(s string, client int) string {
	return eachToken(s, func(c int) byte {
		if c == client {
			return '@'
		}
		return '*'
	})
}

// kindOf is all of an error that the code acts upon: which of these it is.
func kindOf(err error) (kinds uint64) {
	if err == nil {
		return 0
	}
	for n, e := range [...]error{protocol.ErrForeign, protocol.ErrHeld, protocol.ErrLost, protocol.ErrUnsafeServer, protocol.ErrInvalid,
		protocol.ErrAborted, protocol.ErrUnknown, io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, protocol.ErrDenied, errors.ErrUnsupported} {
		kinds |= truth(errors.Is(err, e)) << n
	}
	var e redis.Error
	return kinds | truth(errors.As(err, &e))<<13 | uint64(protocol.OutcomeOf(err))<<14 | 1<<16
}

func (f *fact) lease(l protocol.Lease, client int) {
	f.number(uint64(l.Until.UnixNano()))
	f.number(uint64(l.Fence))
	f.number(truth(l.Ambiguous))
	f.text(l.Value, client)
	f.text(string(l.How), client)
}

// add takes all of another fact in.
func (f *fact) add(g fact) { f.exact, f.shape = mix(f.exact, g.exact), mix(f.shape, g.shape) }

// holds forgets how the lock was obtained: a Lock knows its lease, unless it has to
// remember more.
func (m *memory) holds(l protocol.Lease, client int, all bool) {
	if !all {
		m.past = fact{}
	}
	m.past.lease(l, client)
}
