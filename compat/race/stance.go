package race

// A stance is what a client is doing and what it believes, between two requests.
type stance struct {
	phase   phase
	attempt int
	holds   bool
	until   int64 // end of its lease by its own clock
	fence   int64
	value   string // what its lease says is on the key
	asked   int64  // when this attempt began, by its own clock; -1: it has not
	lossy   bool   // a message of the operation under way was lost, or a command refused
	got     bool   // the algorithm has said "yours", the client does not know yet
	reads   bool   // it was a writer, and goes on as a reader
}

type phase uint8

const (
	idle phase = iota
	acquiring
	holding
	extending
	releasing
	finished
)

// A result is how an operation ended.
type result struct {
	op    operation
	how   ending
	until int64 // of the lease before it, by the client's clock
	lossy bool
}

type operation uint8

const (
	opNone operation = iota
	opAcquire
	opExtend
	opRelease
	opInspect
	opStale // a release by a handle that was given away before a hand-off
	opAgain // the Locker asks again within one attempt: what it left behind is not this one's
)

func (o operation) String() string {
	return [...]string{"", "acquire", "extend", "release", "inspect", "release by a stale handle", "again"}[o]
}

type ending uint8

const (
	done    ending = iota // nil
	held                  // ErrHeld
	lost                  // ErrLost
	unknown               // ErrUnknown
	failed                // any other error
)

func (e ending) String() string {
	return [...]string{"done", "refused: held", "lost", "unknown", "failed"}[e]
}
