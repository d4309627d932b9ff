// Package answer reads what servers answer with: what each error of theirs proves, and what a
// connection returns of many replies. It guarantees that an error that is no server's answer, a
// connection that broke or a limit that ran out, proves nothing.
package answer

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// of returns the server's answer in err.
func of(err error) (redis.Error, bool) {
	switch err := err.(type) {
	case nil: // most often, and errors.As would cost an allocation
		return "", false
	case redis.Error:
		return err, true
	}
	var e redis.Error
	ok := errors.As(err, &e)
	return e, ok
}

// Lacks reports that the server does not have the command.
func Lacks(err error) bool {
	e, ok := of(err)
	s := strings.ToLower(string(e))
	if !ok || strings.Contains(s, "memory") { // "command not allowed when used memory > 'maxmemory'"
		return false
	}
	for _, words := range []string{
		"unknown command", "unsupported command", "not supported", "not allowed", "disabled command", "command not found",
	} {
		if strings.Contains(s, words) {
			return true
		}
	}
	return false
}

// NotString reports that a key is not a string. The text changed in 2.8, and DELEX has its own.
func NotString(err error) bool {
	e, ok := err.(redis.Error)
	return ok && (strings.HasPrefix(string(e), "WRONGTYPE") || strings.Contains(string(e), "wrong kind of value") ||
		strings.HasPrefix(string(e), "ERR Key should be of string type"))
}

// NoScript reports that the server does not know the script: it did not run.
func NoScript(err error) bool {
	e, ok := err.(redis.Error)
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}

// ExecAborted reports that an EXEC ran nothing, because a command of it could not be queued.
func ExecAborted(err error) bool {
	e, ok := err.(redis.Error)
	return ok && strings.HasPrefix(string(e), "EXECABORT")
}

// Refused reports that err is the server's answer, whatever it says.
func Refused(err error) bool {
	_, ok := err.(redis.Error)
	return ok
}

// NotNow returns the answer of a cluster's server that it did not run a command, and that
// another server, or this one later, will: it moves the slot, or nobody serves it now. A
// Source of a cluster has followed what can be followed.
func NotNow(err error) (redis.Error, bool) {
	e, ok := of(err)
	if !ok {
		return "", false
	}
	switch word, _, _ := strings.Cut(string(e), " "); word {
	case "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN":
		return e, true
	}
	return "", false
}

// Crosses reports that a cluster's server says that a command names keys of several slots.
func Crosses(err error) bool {
	e, _ := of(err)
	return strings.HasPrefix(string(e), "CROSSSLOT")
}

// Redirected reports that a cluster's server says to ask another one.
func Redirected(err error) bool {
	e, _ := NotNow(err)
	return strings.HasPrefix(string(e), "MOVED ") || strings.HasPrefix(string(e), "ASK ")
}

// Denied says what was refused for want of permission or room, or for what the server does at the
// moment, and what would allow it; remedy is "" for any other answer. command is the one that was
// refused, as far as it is known, and key the lock's; key is "" in the result if it was not the
// reason.
func Denied(e redis.Error, command, key string) (denied, of, remedy string) {
	s := string(e)
	word, _, _ := strings.Cut(s, " ")
	inScript, runs := strings.CutPrefix(s, "ERR ACL failure in script: ") // from 7.2 on; and Valkey
	switch {
	case runs && strings.Contains(inScript, "permissions to run"), strings.Contains(s, "executing the script can't run this command"):
		command = strings.ToUpper(command)
		remedy = "the user's ACL lacks a command that this script runs: docs/servers.md has each lock's line for ACL SETUSER"
	case word == "NOPERM" && strings.Contains(s, "command"):
		if _, quoted, ok := strings.Cut(s, "'"); ok {
			command, _, _ = strings.Cut(quoted, "'")
		}
		command = strings.ToUpper(command)
		remedy = "the user's ACL lacks this command: ACL SETUSER … +" + strings.ToLower(command)
	case word == "NOPERM", runs, strings.Contains(s, "executing the script can't access"):
		of = key
		remedy = "the user's ACL does not cover this key, or one that begins with it: ACL SETUSER … ~" + key + "*"
	default:
		if r := row(s); r != nil {
			remedy = r.Remedy
		}
	}
	return command, of, remedy
}

// First is the first error among replies; nil: there is none.
func First(replies []any) error {
	for _, r := range replies {
		if e, refused := r.(redis.Error); refused {
			return e
		}
	}
	return nil
}

// Do is what a redis.Conn's Do of name returns when replies have come in, to what was sent before
// it and to itself: all of them if name is "", else the last, with the first error among all.
func Do(name string, replies []any) (any, error) {
	if name == "" {
		return replies, nil
	}
	if len(replies) == 0 {
		return nil, nil
	}
	return replies[len(replies)-1], First(replies)
}

// Receive is what a redis.Conn's Receive returns of one reply.
func Receive(reply any) (any, error) {
	if e, refused := reply.(redis.Error); refused {
		return nil, e
	}
	return reply, nil
}

// Time reads what TIME answers, a second and a microsecond of it in digits. ok is false for anything else: a proxy
// that counts microseconds since 1970 tells no time.
func Time(reply any) (t time.Time, ok bool) {
	parts, err := redis.Strings(reply, nil)
	if err != nil || len(parts) != 2 {
		return time.Time{}, false
	}
	s, err1 := strconv.ParseUint(parts[0], 10, 40)
	us, err2 := strconv.ParseUint(parts[1], 10, 20)
	return time.Unix(int64(s), int64(us)*1000), err1 == nil && err2 == nil && us < 1e6
}

// Info is one field of an answer to INFO; "" if it is not there.
func Info(info, field string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			v, _, _ = strings.Cut(v, "\r")
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Closed reports that a connection was found closed. A time limit that ran out is no such
// finding: the next connection would only take as long again.
func Closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Misused reports that the server has the command, and does not take its arguments.
func Misused(err error) bool {
	e, _ := of(err)
	return strings.Contains(string(e), "wrong number of arguments") || strings.Contains(string(e), "syntax error")
}

// NoKey reports that there is no key that a RENAME could rename.
func NoKey(err error) bool {
	e, _ := of(err)
	return strings.Contains(string(e), "no such key")
}

// SortDenied reports that a SORT may not read other keys: in a cluster, or for want of an ACL.
func SortDenied(err error) bool {
	e, _ := of(err)
	return strings.Contains(string(e), "option of SORT denied")
}
