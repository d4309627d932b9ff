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

	// ErrForeign means that the key holds something that is not a lock of this kind. It is
	// left as it is.
	ErrForeign = errors.New("setnxlock: key holds something else")

	// ErrUnsafeServer means that an answer of this server proves that the algorithm does not
	// exclude other clients there. Nothing was written to the key.
	ErrUnsafeServer = errors.New("setnxlock: not safe on this server")

	// ErrDenied means that the server refuses us a command or a key: by an ACL, because it is over
	// maxmemory, or because it is a replica. The lock itself may work here.
	ErrDenied = errors.New("setnxlock: refused by the server")

	// ErrUnknown means that the outcome could not be learned: the command may have run. Call again,
	// or wait: the lease in the [UnknownError] ends by itself after its ttl.
	ErrUnknown = errors.New("setnxlock: outcome unknown")

	// ErrTimeout means that a limit of ours ran out: Options.Timeout, Options.Cleanup or the
	// ttl. Every such error is os.ErrDeadlineExceeded too, and never context.Canceled.
	ErrTimeout = limit.ErrTimeout

	// ErrElection means that no master serves the key, although other servers of the cluster, or
	// other Sentinels, answer: a master died and has no successor yet. Nothing was sent.
	// Locker.Lock waits for a successor, for up to a ttl.
	ErrElection = errors.New("setnxlock: no master answers for the key")

	// ErrAborted means that a release or an extension was not done, because other clients touched
	// the key at every try. The lease is unchanged: call again.
	ErrAborted = errors.New("setnxlock: not done: others touch the key at every try")

	// ErrUnanswered means that reads were answered, but the connection broke each time we asked the
	// server whether the lock is safe on it. A proxy that lacks a command does that; so may a bad
	// network. Nothing was written to the key.
	ErrUnanswered = errors.New("setnxlock: the connection broke each time the server was tried out")

	// ErrInvalid means that an argument is not valid: an empty key, one that stands beside another
	// lock, or a ttl that the server can't keep. Nothing was sent.
	ErrInvalid = errors.New("setnxlock: invalid argument")
)

// A HeldError is [ErrHeld] with what was seen of the holder. It is [ErrForeign] as well if the
// value can't be read as a lock of this kind: that counts as held, never as expired.
type HeldError struct {
	Key     string
	Value   string    // "" if it was not read
	Until   time.Time // by our clock; zero if not known
	Foreign bool

	Persistent bool // the key was seen to have no end: it stays until somebody removes it
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

// A LostError is [ErrLost] with what was seen: of several fields that are set, the first says it best.
type LostError struct {
	Key       string
	Value     string    // what the key held instead of ours
	Gone      bool      // the key was not there
	Err       error     // what the last step ended with; it is not looked through
	Confirmed time.Time // when the step was sent by which the server last confirmed the lock; zero: not known
	Renewed   bool      // it was to be renewed by itself
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
	case e.Err == ErrLost: // no more than that
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

// lostTo is what a step has seen on the key of a lock that is not ours.
func lostTo(key, value string, exists bool) error {
	return &LostError{Key: key, Value: value, Gone: !exists}
}

// moment is a time as errors have it.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// An UnsafeServerError is [ErrUnsafeServer] with the reason and the remedy.
type UnsafeServerError struct {
	Version string // as INFO gives it; "" if the server does not say
	Why     string // what this server does that breaks the lock
	Use     string // what to use instead

	Reply   redis.Error // the server's answer that it does not know a command; "" if something else is wrong
	Command string      // that command; "" if it is not known which of several
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

// A DeniedError is [ErrDenied] with the command or key that was refused and what would allow it.
type DeniedError struct {
	Command string // that was refused; "" if it is not known which of several
	Key     string // of the lock; what is written beside it begins with it. "" if the refusal is not about a key
	Reply   redis.Error
	Remedy  string // what to grant or to change
	About   string // for programs: "password", "permission", "memory", "replica" or "cluster"; "": something else
	Passes  bool   // waiting may do as well: it loads its data, is full, has no master at the moment
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

// An UnknownError is [ErrUnknown] with the lease that may be ours and the error because of which
// the outcome is not known.
type UnknownError struct {
	Lease Lease
	Err   error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("setnxlock: outcome unknown for %q: %v", e.Lease.Key, e.Err)
}

func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }
func (e *UnknownError) Unwrap() error        { return e.Err }

// An Outcome is what is known of a step after it.
type Outcome uint8

const (
	Done    Outcome = iota // the server did it
	Refused                // the server answered, or the arguments were wrong: it was not done
	NotSent                // nothing was sent: it was not done
	Unknown                // it may have been done
)

// OutcomeOf is the outcome of a step that ended with err. The Locker and the locks made of
// several all ask it, and judge nothing by themselves.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Done
	}
	switch err { // most often, and errors.As would cost an allocation
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

// A marked error has an outcome, whatever it is.
type marked struct {
	error
	o Outcome
}

func (e marked) Unwrap() error { return e.error }

// Mark returns err with the outcome o, whatever [OutcomeOf] would make of err: [NotSent] if nothing
// was sent, or if everything was undone.
func (o Outcome) Mark(err error) error { return marked{err, o} }

// Foreign returns [ErrForeign], with the key, if err is the server's answer that the key is not a
// string, and err itself otherwise. It knows the answer's text before Redis 2.8 and since.
func Foreign(key string, err error) error {
	if answer.NotString(err) {
		return fmt.Errorf("%w: %q: %w", ErrForeign, key, err)
	}
	return err
}
