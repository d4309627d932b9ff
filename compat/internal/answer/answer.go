// Package answer reads the replies of servers: it says what each error reply proves, and which reply
// and error a connection returns. Only an error reply proves anything: a broken connection and an
// expired limit prove nothing.
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

// of finds the error reply in the chain of err.
func of(err error) (redis.Error, bool) {
	switch err := err.(type) {
	case nil: // errors.As would allocate in the most frequent case
		return "", false
	case redis.Error:
		return err, true
	}
	var e redis.Error
	ok := errors.As(err, &e)
	return e, ok
}

// Lacks reports whether the server does not have the command.
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

// NotString reports whether the key is not a string. The text changed in 2.8, and DELEX has its own.
func NotString(err error) bool {
	e, ok := err.(redis.Error)
	return ok && (strings.HasPrefix(string(e), "WRONGTYPE") || strings.Contains(string(e), "wrong kind of value") ||
		strings.HasPrefix(string(e), "ERR Key should be of string type"))
}

// NoScript reports whether the server does not know the script. The script did not run.
func NoScript(err error) bool {
	e, ok := err.(redis.Error)
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}

// ExecAborted reports whether an EXEC ran nothing because the server had refused to queue a command.
func ExecAborted(err error) bool {
	e, ok := err.(redis.Error)
	return ok && strings.HasPrefix(string(e), "EXECABORT")
}

// Refused reports whether err is an error reply, of any kind.
func Refused(err error) bool {
	_, ok := err.(redis.Error)
	return ok
}

// NotNow returns a cluster server's refusal for a slot on the move or without a master. Another
// server will run the command, or the same one later. The Source of a cluster has already followed
// every redirection that it could.
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

// Crosses reports whether a cluster's server refused a command over keys of several slots.
func Crosses(err error) bool {
	e, _ := of(err)
	return strings.HasPrefix(string(e), "CROSSSLOT")
}

// Redirected reports whether a cluster's server names another server for the key.
func Redirected(err error) bool {
	e, _ := NotNow(err)
	return strings.HasPrefix(string(e), "MOVED ") || strings.HasPrefix(string(e), "ASK ")
}

// Denied returns the refused command, the refused key and the remedy for a reply that refuses for
// want of permission or memory, or for the server's present state. The result of is "" unless the
// key was the reason, and remedy is "" for any other reply. The arguments are the command that the
// caller knows of and the lock's key.
func Denied(e redis.Error, command, key string) (denied, of, remedy string) {
	s := strings.TrimPrefix(string(e), execRefused)
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

// First returns the first error among replies, or nil.
func First(replies []any) error {
	for _, r := range replies {
		if e, refused := r.(redis.Error); refused {
			return e
		}
	}
	return nil
}

// Do returns the result of a redis.Conn's Do(name) after replies to all pending commands and to name
// itself: all replies if name is "", else the last reply and the first error among all.
func Do(name string, replies []any) (any, error) {
	if name == "" {
		return replies, nil
	}
	if len(replies) == 0 {
		return nil, nil
	}
	return replies[len(replies)-1], First(replies)
}

// Receive returns the result of a redis.Conn's Receive for one reply.
func Receive(reply any) (any, error) {
	if e, refused := reply.(redis.Error); refused {
		return nil, e
	}
	return reply, nil
}

// Time reads the reply to TIME: seconds and microseconds, as two strings of digits. ok is false for any
// other reply. A proxy that replies with the microseconds since 1970 does not tell the time.
func Time(reply any) (t time.Time, ok bool) {
	parts, err := redis.Strings(reply, nil)
	if err != nil || len(parts) != 2 {
		return time.Time{}, false
	}
	s, err1 := strconv.ParseUint(parts[0], 10, 40)
	us, err2 := strconv.ParseUint(parts[1], 10, 20)
	return time.Unix(int64(s), int64(us)*1000), err1 == nil && err2 == nil && us < 1e6
}

// Info returns one field of a reply to INFO, or "" without the field.
func Info(info, field string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			v, _, _ = strings.Cut(v, "\r")
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Closed reports whether the connection turned out to be closed. An expired time limit does not count:
// the next connection would only take as long again.
func Closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Misused reports whether the server has the command but refuses the arguments.
func Misused(err error) bool {
	e, _ := of(err)
	return strings.Contains(string(e), "wrong number of arguments") || strings.Contains(string(e), "syntax error")
}

// Proves reports whether an error reply proves that its command did not run. The words of a proxy that lost its server,
// or waited too long for it, prove nothing.
func Proves(err error) bool { return Known(err) != nil || Lacks(err) || Misused(err) }

// NoKey reports whether RENAME found no key to rename.
func NoKey(err error) bool {
	e, _ := of(err)
	return strings.Contains(string(e), "no such key")
}

// SortDenied reports whether SORT may not read other keys, in a cluster or because of an ACL.
func SortDenied(err error) bool {
	e, _ := of(err)
	return strings.Contains(string(e), "option of SORT denied")
}
