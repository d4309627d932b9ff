package compat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Test for these with errors.Is; the types below carry the details.
var (
	// ErrHeld means that another client holds the lock. Wait, or give up.
	ErrHeld = errors.New("setnxlock: held by another client")

	// ErrLost means that the lease was ours and no longer is. What was done
	// under it may overlap with another client's work: stop.
	ErrLost = errors.New("setnxlock: lease lost")

	// ErrForeign means that the key holds something that is no lock of this
	// kind. It is left as it is.
	ErrForeign = errors.New("setnxlock: key holds something else")

	// ErrUnsafeServer means that this algorithm can't exclude anybody on this
	// server. Nothing was written to the key.
	ErrUnsafeServer = errors.New("setnxlock: not safe on this server")

	// ErrUnknown means that the outcome could not be learned: the command may
	// have run. The lease it carries ends by itself after its TTL.
	ErrUnknown = errors.New("setnxlock: outcome unknown")

	// ErrAborted means that a release or an extension was not done, because
	// others touched the key at every turn. The lease is what it was: ask again.
	ErrAborted = errors.New("setnxlock: not done: others touch the key at every turn")

	// ErrInvalid means that the arguments make no lock: an empty key, a ttl
	// that the server can't keep. Nothing was sent.
	ErrInvalid = errors.New("setnxlock: invalid argument")
)

// A HeldError is ErrHeld with what was seen of the holder. It is ErrForeign as
// well if the value can't be read as a lock of this kind: such a value counts
// as held, never as expired.
type HeldError struct {
	Key     string
	Value   string    // "" if it was not read
	Until   time.Time // by our clock; zero if not known
	Foreign bool
}

func (e *HeldError) Error() string {
	s := fmt.Sprintf("setnxlock: %q is held by another client", e.Key)
	switch {
	case e.Foreign:
		return s + fmt.Sprintf(", in another format (%.40q)", e.Value)
	case !e.Until.IsZero():
		return s + " until " + e.Until.UTC().Format("2006-01-02T15:04:05.000Z")
	}
	return s
}

func (e *HeldError) Is(target error) bool {
	return target == ErrHeld || e.Foreign && target == ErrForeign
}

// An UnsafeServerError is ErrUnsafeServer with its reason and the remedy.
type UnsafeServerError struct {
	Version string // as INFO gives it; "" if the server does not tell
	Why     string // what this server does that breaks the lock
	Use     string // what to use instead
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

// An UnknownError is ErrUnknown with the lease that may be ours and the error
// that hid the outcome.
type UnknownError struct {
	Lease Lease
	Err   error
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("setnxlock: outcome unknown for %q: %v", e.Lease.Key, e.Err)
}

func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }
func (e *UnknownError) Unwrap() error        { return e.Err }

// Refuse returns the *UnsafeServerError of a server on which an algorithm is
// unsafe. It asks INFO for the version; a server that does not tell goes
// without.
func Refuse(c redis.Conn, why, use string) error {
	return &UnsafeServerError{Version: version(c), Why: why, Use: use}
}

func version(c redis.Conn) string {
	info, err := redis.String(c.Do("INFO"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, "redis_version:"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Foreign returns ErrForeign, with the key, if err is the server's word that
// the key is no string, and err itself otherwise. The text changed in 2.8.
func Foreign(key string, err error) error {
	e, ok := err.(redis.Error)
	if ok && (strings.HasPrefix(string(e), "WRONGTYPE") || strings.Contains(string(e), "wrong kind of value")) {
		return fmt.Errorf("%w: %q: %w", ErrForeign, key, e)
	}
	return err
}

// UnknownCommand reports whether err is a server's word that it does not have
// the command, or does not let us use it.
func UnknownCommand(err error) bool {
	e, ok := err.(redis.Error)
	if !ok {
		return false
	}
	s := strings.ToLower(string(e))
	if strings.Contains(s, "memory") { // "command not allowed when used memory > 'maxmemory'"
		return false
	}
	for _, words := range []string{"unknown command", "unsupported command", "not supported", "noperm", "not allowed", "disabled command"} {
		if strings.Contains(s, words) {
			return true
		}
	}
	return false
}

// notNow returns the word of a cluster's server that it did not run a command,
// and that another server, or this one later, will: it moves the slot, or nobody
// serves it now. A Source of a cluster has followed what can be followed.
func notNow(err error) (redis.Error, bool) {
	if err == nil { // most often, and errors.As would cost an allocation
		return "", false
	}
	var e redis.Error
	if !errors.As(err, &e) {
		return "", false
	}
	switch word, _, _ := strings.Cut(string(e), " "); word {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN":
		return e, true
	}
	return "", false
}

// redirected reports that err is a cluster's word to ask another server.
func redirected(err error) bool {
	e, _ := notNow(err)
	return strings.HasPrefix(string(e), "MOVED ") || strings.HasPrefix(string(e), "ASK ")
}
