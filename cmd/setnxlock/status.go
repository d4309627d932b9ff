package main

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/redlock"
)

// The exit statuses beside those of package exit. Help texts show statusHelp; docs/command.md has all of them.
const (
	statusForeign     = 65  // EX_DATAERR
	statusUnavailable = 69  // EX_UNAVAILABLE
	statusBusy        = 75  // EX_TEMPFAIL; --busy-status changes it
	statusLost        = 76  // EX_PROTOCOL: the server no longer says what we said
	statusNotExec     = 126 // the shell's
	statusNotFound    = 127 // the shell's
)

const statusHelp = `  64     Wrong usage.
  65     The key holds something that is not a lock (a list, a set, ...).
` + noServerHelp

// noServerHelp has the statuses of commands without a KEY, which have no 65.
const noServerHelp = `  69     The server can't be reached, or this algorithm is not safe on it; the
         message says why and what to use instead.
  70     Something else went wrong.`

// explain finds the status and the hint of an error.
func (a *app) explain(err error) *exit.Failure {
	if f := failure(err); f != nil {
		return f
	}
	if a.sentinelHere(err) {
		return a.explain(a.notASentinel())
	}
	if errors.Is(err, protocol.ErrUnanswered) || errors.As(err, new(redis.Error)) {
		if said := a.overheard(err); said != nil {
			err = said
		}
	}
	var unsafe *protocol.UnsafeServerError
	var denied *protocol.DeniedError
	var refused redis.Error
	switch {
	case errors.As(err, &unsafe):
		return exit.Because(statusUnavailable, errors.New(locks.InCommandWords(unsafe.Error())),
			a.unsafeHint())
	case errors.Is(err, protocol.ErrUnanswered):
		return exit.Because(statusUnavailable, errors.New(locks.InCommandWords(err.Error())),
			a.unsafeHint())
	case errors.Is(err, protocol.ErrLost):
		return exit.Because(statusLost, err, "")
	case errors.Is(err, protocol.ErrUnknown):
		return exit.Because(statusUnavailable, err, "if it was taken, it frees itself after its TTL")
	case errors.Is(err, protocol.ErrHeld):
		return exit.Because(statusBusy, err, "")
	case errors.Is(err, protocol.ErrForeign):
		return exit.Because(statusForeign, err, "use another key, or look at this one with redis-cli")
	case errors.Is(err, protocol.ErrInvalid):
		return exit.Because(exit.Wrong, err, "")
	case errors.As(err, &denied):
		what := *denied
		what.Remedy = ""
		return exit.Because(statusUnavailable, &what, cmp.Or(answerHint(denied.Reply), a.hintFor(denied)))
	case errors.As(err, &refused):
		return exit.Because(statusUnavailable, fmt.Errorf("the server refuses: %w", err), cmp.Or(answerHint(refused), a.hintFor(denial(refused))))
	}
	if silent(err) {
		return exit.Because(statusUnavailable, fmt.Errorf("the server does not answer: %w", err), fmt.Sprintf("a step may take %v: --timeout gives a slow server more time", a.limit()))
	}
	if causeOf(err) != nil || notRedis(err) {
		return a.broken(a.deploymentName, err)
	}
	return exit.Because(statusUnavailable, err, "")
}

// failure returns the failure in an error. That of one server does not decide what a quorum has.
func failure(err error) *exit.Failure {
	var f, part *exit.Failure
	var q *redlock.Error
	decided := errors.Is(err, protocol.ErrLost) || errors.Is(err, protocol.ErrHeld) || errors.Is(err, protocol.ErrForeign)
	if !errors.As(err, &f) || decided && errors.As(err, &q) && errors.As(q, &part) && f == part {
		return nil
	}
	return f
}

const passwordHint = "give the password: --password-file FILE, SETNXLOCK_PASSWORD, or in the URL of --redis"

// unsafeHint helps after a refusal for safety.
func (a *app) unsafeHint() string {
	if a.fence {
		return "without --fence a lock may be safe here"
	}
	hint := "to see what the server can do: "
	if a.algorithm != "auto" {
		hint = "--algorithm auto chooses one that is safe; " + hint
	}
	return a.examine(hint)
}

// examine appends a call of doctor to a hint; "" while no key is known, as in doctor itself.
func (a *app) examine(hint string) string {
	if a.key == "" {
		return ""
	}
	return hint + a.line("doctor")
}

// denial explains a server's error reply; nil: nothing is known of it.
func denial(reply redis.Error) (d *protocol.DeniedError) {
	errors.As(new(protocol.Conn).Denied("", reply), &d)
	return d
}

// hintFor tells how to mend a server's refusal, by a flag if there is one.
func (a *app) hintFor(d *protocol.DeniedError) string {
	allowed := a.examine("; to see what is allowed: ")
	switch {
	case d == nil:
		return ""
	case d.About == "password":
		return passwordHint
	case d.About == "cluster":
		return "this is a node of a cluster: --cluster follows each key to its node"
	case d.About == "permission" && d.Command == "" && d.Key == "":
		return "the user's ACL forbids a key (--prefix?) or a command that the lock needs" + allowed
	case d.About == "permission":
		return d.Remedy + allowed
	}
	return d.Remedy
}
