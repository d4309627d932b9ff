package client

// A State is what a client is doing and what it believes, between two requests.
type State struct {
	Phase   Phase
	Attempt int
	Holds   bool
	Until   int64 // end of its lease by its own clock
	Fence   int64
	Value   string // what its lease says is on the key
	Asked   int64  // when this attempt began, by its own clock; -1: it has not
	Lossy   bool   // a message of the operation under way was lost, or a command refused
	Got     bool   // the algorithm has said "yours", the client does not know yet
	Reads   bool   // it was a writer, and goes on as a reader
}

// A Phase is what a client is at.
type Phase uint8

const (
	Idle Phase = iota
	Acquiring
	Holding
	Extending
	Releasing
	Finished
)

// A Result is how an operation ended.
type Result struct {
	Op    operation
	How   Ending
	Until int64 // of the lease before it, by the client's clock
	Lossy bool
}

type operation uint8

const (
	OpNone operation = iota
	OpAcquire
	OpExtend
	OpRelease
	OpInspect
	OpStale // a release by a handle that was given away before a hand-off
	OpAgain // the Locker asks again within one attempt: what it left behind is not this one's
)

func (o operation) String() string {
	return [...]string{"", "acquire", "extend", "release", "inspect", "release by a stale handle", "again"}[o]
}

// An Ending is what an operation came to.
type Ending uint8

const (
	Done    Ending = iota // nil
	Held                  // ErrHeld
	Lost                  // ErrLost
	Unknown               // ErrUnknown
	failed                // any other error
)

func (e Ending) String() string {
	return [...]string{"done", "refused: held", "lost", "unknown", "failed"}[e]
}
