package conformance

import "github.com/setnxlock/setnxlock/compat/internal/faulty"

// A Network fails on purpose, for an author's own tests. Its Expect takes a function that says what becomes of each
// command; Get puts it before that of a [compat.Source], Pool before a pool, and Conn before a connection.
//
//	net := new(conformance.Network)
//	net.Expect(conformance.Fate{Loss: conformance.LostReply}.At(3)) // of the third command
//	locker := compat.New(net.Pool(pool), lock, compat.Options{})
type (
	Network = faulty.Network
	Message = faulty.Message // one command on its way
	Fate    = faulty.Fate    // what becomes of it; the zero value: it arrives
)

// What a [Fate] can lose.
const (
	LostRequest = faulty.LostRequest // it never arrives, and the connection is gone
	LostReply   = faulty.LostReply   // it runs, and the connection is gone
	LateRequest = faulty.LateRequest // the connection is gone, and it arrives at Network.DeliverLate
)
