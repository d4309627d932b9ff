package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
)

// Test for these with errors.Is; the types below carry the details.
var (
	// ErrHeld means that another client holds the lock. Wait, or give up.
	ErrHeld = errors.New("setnxlock: held by another client")

	// ErrLost means that the lease was ours and no longer is, although we did not release it. Work
	// done under it may overlap with another client's: stop.
	ErrLost = errors.New("setnxlock: lease lost")

	// ErrForeign means that the key holds something else than a lock of this kind. The key is left as
	// it is.
	ErrForeign = errors.New("setnxlock: key holds something else")

	// ErrUnsafeServer means that an answer of this server proves that the algorithm does not
	// exclude other clients there. Nothing was written to the key.
	ErrUnsafeServer = errors.New("setnxlock: not safe on this server")

	// ErrDenied means that the server refuses us a command or a key: an ACL forbids it, the server is
	// over its maxmemory, or the server is a replica. The lock itself may work here.
	ErrDenied = errors.New("setnxlock: refused by the server")

	// ErrUnknown means that the outcome is not known: the command may have run. Call again, or wait:
	// the lease in the [UnknownError] ends by itself after its ttl.
	ErrUnknown = errors.New("setnxlock: outcome unknown")

	// ErrTimeout means that a time limit of the Locker ran out: Options.Timeout, Options.Cleanup or the
	// ttl. Every ErrTimeout is os.ErrDeadlineExceeded too, and never context.Canceled.
	ErrTimeout = limit.ErrTimeout

	// ErrElection means that no master serves the key, although other servers of the cluster, or
	// other Sentinels, answer: a master died and has no successor yet. Nothing was sent.
	// Locker.Lock waits for a successor, for up to a ttl.
	ErrElection = errors.New("setnxlock: no master answers for the key")

	// ErrAborted means that a release or an extension was not done: other clients touched the key at
	// every try. The lease is unchanged: call again.
	ErrAborted = errors.New("setnxlock: aborted: the key kept changing")

	// ErrUnanswered means that the server answered reads, but the connection broke at each test of
	// whether the lock is safe there. A proxy that lacks a command breaks it; so may a bad network.
	// Nothing was written to the key.
	ErrUnanswered = errors.New("setnxlock: the connection broke each time the server was tried out")

	// ErrInvalid means that an argument is not valid: an empty key, a key that stands beside another
	// lock, or a ttl that the server can't keep. Nothing was sent.
	ErrInvalid = errors.New("setnxlock: invalid argument")
)

// A HeldError adds the facts seen of the holder to [ErrHeld]. It matches [ErrForeign] as well if the value
// can't be read as a lock of this kind: such a value counts as held, never as expired.
type HeldError struct {
	Key     string
	Value   string    // "" if it was not read
	Until   time.Time // by our clock; zero if not known
	Foreign bool

	Persistent bool // the key has no end: it stays until a client removes it
}

func (e *HeldError) Error() string {
	s := fmt.Sprintf("setnxlock: %q is held by another client", e.Key)
	switch {
	case e.Foreign:
		return s + fmt.Sprintf(", in another format (%.40q)", e.Value)
	case !e.Until.IsZero():
		return s + " until " + moment(e.Until)
	case e.Persistent:
		return s + ", and the key has no end"
	}
	return s
}

func (e *HeldError) Is(target error) bool {
	return target == ErrHeld || e.Foreign && target == ErrForeign
}

// A LostError adds the facts seen of the loss to [ErrLost]. If several fields are set, the first explains the
// loss best.
type LostError struct {
	Key       string
	Value     string    // the other value on the key
	Gone      bool      // the key did not exist
	Err       error     // the error of the last step; errors.Is and errors.As do not look into it
	Confirmed time.Time // when the last step was sent that the server confirmed; zero: not known
	Renewed   bool      // the engine was to renew the lock
}

func (e *LostError) Error() string {
	s := ErrLost.Error()
	if e.Key != "" {
		s += fmt.Sprintf(": %q", e.Key)
	}
	switch {
	case e.Value != "":
		return s + fmt.Sprintf(" holds another's value, %.80q", e.Value)
	case e.Gone:
		s += " is gone"
	case e.Err == ErrLost: // nothing more is known
		s += " does not hold our value any more"
	case e.Err != nil:
		s += fmt.Sprintf(" was last confirmed at %s: %v", moment(e.Confirmed), e.Err)
	case !e.Confirmed.IsZero():
		s += " has run out, last confirmed at " + moment(e.Confirmed)
	}
	if !e.Renewed && !e.Confirmed.IsZero() {
		s += ", and nothing was to renew it"
	}
	return s
}

func (e *LostError) Is(target error) bool { return target == ErrLost }

// lostTo returns the error of a lost lock: value stands on key, or key does not exist.
func lostTo(key, value string, exists bool) error {
	return &LostError{Key: key, Value: value, Gone: !exists}
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// An UnsafeServerError adds the reason and the remedy to [ErrUnsafeServer].
type UnsafeServerError struct {
	Version string // from INFO; "" if the server does not say
	Why     string // how this server breaks the lock
	Use     string // the lock or server to use instead

	Reply   redis.Error // the server's answer to an unknown command; "": another reason
	Command string      // the unknown command; "": one of several, not known which
}

func (e *UnsafeServerError) Error() string {
	v := "this server"
	if e.Version != "" {
		v = "Redis " + e.Version
	}
	s := fmt.Sprintf("setnxlock: not safe on %s: %s", v, e.Why)
	if e.Use != "" {
		s += "; use " + e.Use
	}
	return s
}

func (e *UnsafeServerError) Is(target error) bool { return target == ErrUnsafeServer }

// A DeniedError adds the refused command or key and the remedy to [ErrDenied].
type DeniedError struct {
	Command string // the refused command; "": one of several, not known which
	Key     string // the lock's; keys beside it begin with it. "": the refusal is not about a key
	Reply   redis.Error
	Remedy  string // the permission to grant or the setting to change
	About   string // for programs: "password", "permission", "memory", "replica" or "cluster"; "": something else
	Passes  bool   // waiting may help too: the server loads its data, is full, or has no master at the moment
}

func (e *DeniedError) Error() string {
	s := "setnxlock: the server refuses"
	if e.Command != "" {
		s += " " + e.Command
	}
	if e.Key != "" {
		s += fmt.Sprintf(" on %q", e.Key)
	}
	s += ": " + strings.TrimRight(string(e.Reply), ".")
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

func (e *DeniedError) Is(target error) bool { return target == ErrDenied }
func (e *DeniedError) Unwrap() error        { return e.Reply }

// An UnknownError adds to [ErrUnknown] the lease that may be ours, and the error that hid the outcome.
type UnknownError struct {
	Lease Lease
	Err   error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("setnxlock: outcome unknown for %q: %v", e.Lease.Key, e.Err)
}

func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }
func (e *UnknownError) Unwrap() error        { return e.Err }

// An Outcome says whether the server did a step.
type Outcome uint8

const (
	Done    Outcome = iota // the server did the step
	Refused                // the server refused it, or the arguments were wrong: the step was not done
	NotSent                // nothing was sent: the step was not done
	Unknown                // the step may have been done
)

// OutcomeOf returns the outcome of a step that ended with err. The Locker and the locks made of several locks
// judge errors by OutcomeOf only.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Done
	}
	switch err { // the most frequent errors: errors.As would allocate
	case ErrHeld, ErrLost, ErrForeign, ErrInvalid, ErrAborted:
		return Refused
	}
	var m marked
	switch {
	case errors.Is(err, ErrUnknown):
		return Unknown
	case errors.As(err, &m):
		return m.o
	}
	for _, refusal := range [...]error{ErrHeld, ErrLost, ErrForeign, ErrUnsafeServer, ErrInvalid, ErrAborted, errors.ErrUnsupported} {
		if errors.Is(err, refusal) {
			return Refused
		}
	}
	return Unknown
}

// marked attaches an outcome to any error.
type marked struct {
	error
	o Outcome
}

func (e marked) Unwrap() error { return e.error }

// Mark returns err with the outcome o: [OutcomeOf] returns o, whatever err is. Mark an error as [NotSent] if
// nothing was sent, or everything was undone.
func (o Outcome) Mark(err error) error { return marked{err, o} }

// Foreign returns [ErrForeign] with the key if err is the server's answer for a key that is not a string. It
// returns any other err unchanged. It knows the answer's text before Redis 2.8 and since.
func Foreign(key string, err error) error {
	if answer.NotString(err) {
		return fmt.Errorf("%w: %q: %w", ErrForeign, key, err)
	}
	return err
}
