package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Test for these with errors.Is; the types below carry the details.
var (
	// ErrHeld means that another client holds the lock. Wait, or give up.
	ErrHeld = errors.New("setnxlock: held by another client")

	// ErrLost means that the lease was ours and is not any more, and that we did not release
	// it. Work done under it may overlap with another client's: stop.
	ErrLost = errors.New("setnxlock: lease lost")

	// ErrReleased means that the lock was released already, by us. There is nothing to do.
	ErrReleased = errors.New("setnxlock: released already")

	// ErrHandedOff means that the lock belongs to its next holder in this process.
	ErrHandedOff = errors.New("setnxlock: handed off")

	// ErrDetached means that the lock has left this process: Locker.Adopt takes it up.
	ErrDetached = errors.New("setnxlock: detached")

	// ErrForeign means that the key holds something that is not a lock of this kind. It is
	// left as it is.
	ErrForeign = errors.New("setnxlock: key holds something else")

	// ErrUnsafeServer means that an answer of this server proves that the algorithm can't
	// exclude anybody on it. Nothing was written to the key.
	ErrUnsafeServer = errors.New("setnxlock: not safe on this server")

	// ErrDenied means that the server refuses us a command or a key: an ACL, maxmemory, a
	// replica. The lock itself may work here.
	ErrDenied = errors.New("setnxlock: refused by the server")

	// ErrUnknown means that the outcome could not be learned: the command may have run. Call
	// again, or wait: the lease that the error carries ends by itself after its TTL.
	ErrUnknown = errors.New("setnxlock: outcome unknown")

	// ErrTimeout means that a limit of ours ran out: Options.Timeout, Options.Cleanup or the
	// ttl. Every such error is os.ErrDeadlineExceeded too, and never context.Canceled.
	ErrTimeout error = timeout{}

	// ErrAborted means that a release or an extension was not done, because others touched
	// the key at every try. The lease is what it was: call again.
	ErrAborted = errors.New("setnxlock: not done: others touch the key at every try")

	// ErrUnanswered means that the connection broke each time the server was asked whether the
	// lock is safe on it, while reads were answered. A proxy that lacks a command does that;
	// so may a bad network. Nothing was written to the key.
	ErrUnanswered = errors.New("setnxlock: the connection broke each time the server was tried out")

	// ErrInvalid means that the arguments make no lock: an empty key, a ttl that the server
	// can't keep. Nothing was sent.
	ErrInvalid = errors.New("setnxlock: invalid argument")

	// ErrClosed means that the Locker was closed.
	ErrClosed = errors.New("setnxlock: the Locker is closed")
)

// timeout is a net.Error, and os.ErrDeadlineExceeded to errors.Is.
type timeout struct{}

func (timeout) Error() string        { return "setnxlock: no answer in time" }
func (timeout) Timeout() bool        { return true }
func (timeout) Temporary() bool      { return true }
func (timeout) Is(target error) bool { return target == os.ErrDeadlineExceeded }

// A HeldError is ErrHeld with what was seen of the holder. It is ErrForeign as well if the
// value can't be read as a lock of this kind: such a value counts as held, never as expired.
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
	Version string // as INFO gives it; "" if the server does not say
	Why     string // what this server does that breaks the lock
	Use     string // what to use instead

	Reply redis.Error // the answer that says that it does not know a command; "" if something else is wrong
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

// A DeniedError is ErrDenied with what was refused and what would allow it.
type DeniedError struct {
	Command string // that was refused; "" if it is not known which of several
	Key     string // of the lock; what is written beside it begins with it. "" if the refusal is not about a key
	Reply   redis.Error
	Remedy  string // what to grant or to change
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

// Denied makes a *DeniedError of a server's refusal that is about permission, room or what the
// server does at the moment, and returns any other error as it is. key is the lock's.
func (c *Conn) Denied(key string, err error) error {
	if err == nil { // most often, and errors.As would cost an allocation
		return nil
	}
	m, isMarked := err.(marked)
	if isMarked {
		err = m.error
	}
	e, ok := err.(redis.Error)
	d := &DeniedError{Reply: e}
	if c.refusal.reply == e {
		d.Command = c.refusal.command
	}
	if !ok || !d.remedied(key) {
		if isMarked {
			return m
		}
		return err
	}
	if isMarked {
		return m.o.Mark(d)
	}
	return d
}

// remedied finds out what was refused and what would allow it. It is false for a refusal that is
// of another kind.
func (d *DeniedError) remedied(key string) bool {
	s := string(d.Reply)
	word, _, _ := strings.Cut(s, " ")
	switch {
	case word == "NOPERM" && strings.Contains(s, "command"), strings.Contains(s, "executing the script can't run this command"):
		if _, quoted, ok := strings.Cut(s, "'"); ok && word == "NOPERM" {
			d.Command, _, _ = strings.Cut(quoted, "'")
		}
		d.Command = strings.ToUpper(d.Command)
		d.Remedy = "the user's ACL lacks this command: ACL SETUSER … +" + strings.ToLower(d.Command)
		if word != "NOPERM" {
			d.Remedy = "the user's ACL lacks a command that this script runs: docs/servers.md has each lock's line for ACL SETUSER"
		}
	case word == "NOPERM", strings.Contains(s, "executing the script can't access"):
		d.Key = key
		d.Remedy = "the user's ACL does not cover this key, or one that begins with it: ACL SETUSER … ~" + key + "*"
	case word == "OOM" || strings.Contains(s, "'maxmemory'"):
		d.Remedy = "the server is over its maxmemory: it needs room, or a higher maxmemory"
	case word == "READONLY":
		d.Remedy = "this is a replica: connect to its master"
	case word == "NOAUTH" || strings.Contains(s, "operation not permitted"):
		d.Remedy = "it asks for a password: AUTH"
	case word == "LOADING":
		d.Remedy = "it is loading its data: try again when it has"
	case word == "MASTERDOWN":
		d.Remedy = "this is a replica that has lost its master: connect to the master"
	case word == "MISCONF":
		d.Remedy = "it can't save its data and accepts no writes until it can: look at its disk and its log"
	case word == "NOREPLICAS":
		d.Remedy = "it has fewer replicas than min-replicas-to-write asks for"
	}
	return d.Remedy != ""
}

// An UnknownError is ErrUnknown with the lease that may be ours and the error that hid the
// outcome.
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

// OutcomeOf is the outcome of a step that ended with err. It is the only place that judges:
// the Locker and the locks made of several ask it.
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

// Mark says that o is the outcome of a step that ended with err, whatever err is: that nothing was
// sent, or that everything was undone, by NotSent.
func (o Outcome) Mark(err error) error { return marked{err, o} }

// cause is what a context's end means for a caller: its own context.Canceled or
// DeadlineExceeded, or ErrTimeout where a limit of ours ran out, and the cause beside it.
func cause(ctx context.Context) error {
	err, why := ctx.Err(), context.Cause(ctx)
	switch {
	case err == nil || why == err:
		return err
	case errors.Is(why, ErrTimeout):
		return why
	}
	return fmt.Errorf("%w: %w", err, why)
}

// because adds to a step's error that its context ended, if it did. That a dialer was cancelled
// by a limit of ours is not said as the caller's own cancellation.
func because(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	why := cause(ctx)
	if errors.Is(err, why) || errors.Is(err, context.Canceled) {
		return why
	}
	return fmt.Errorf("%w: %w", why, err)
}

// Foreign returns ErrForeign, with the key, if err is the server's answer that the key
// is not a string, and err itself otherwise. The text changed in 2.8.
func (*Conn) Foreign(key string, err error) error { return foreign(key, err) }

func foreign(key string, err error) error {
	e, ok := err.(redis.Error)
	if ok && (strings.HasPrefix(string(e), "WRONGTYPE") || strings.Contains(string(e), "wrong kind of value")) {
		return fmt.Errorf("%w: %q: %w", ErrForeign, key, e)
	}
	return err
}

// lacks reports whether err is a server's answer that it does not have the command.
func lacks(err error) bool {
	var e redis.Error
	if err == nil || !errors.As(err, &e) {
		return false
	}
	s := strings.ToLower(string(e))
	if strings.Contains(s, "memory") { // "command not allowed when used memory > 'maxmemory'"
		return false
	}
	for _, words := range []string{"unknown command", "unsupported command", "not supported", "not allowed", "disabled command"} {
		if strings.Contains(s, words) {
			return true
		}
	}
	return false
}

// notNow returns the answer of a cluster's server that it did not run a command, and that
// another server, or this one later, will: it moves the slot, or nobody serves it now. A
// Source of a cluster has followed what can be followed.
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

// redirected reports that err is a cluster's answer to ask another server.
func redirected(err error) bool {
	e, _ := notNow(err)
	return strings.HasPrefix(string(e), "MOVED ") || strings.HasPrefix(string(e), "ASK ")
}
