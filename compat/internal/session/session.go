// Package session follows the state of a connection on the server: MULTI, WATCH, and whether a command ran. A
// pool that remembers only the commands sent could hand out a connection in MULTI or under a WATCH. The package
// guarantees that it reports MULTI or WATCH whenever the server may be in that state, by any reply, seen or
// lost.
package session

import (
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Session describes one connection. The zero Session describes a fresh one.
type Session struct {
	Multi      bool        // the server may be in MULTI
	Watching   bool        // the server may hold a WATCH
	guarded    bool        // we have begun a WATCH and not ended it, whatever the server replied
	watched    bool        // a WATCH explains the last aborted EXEC
	Ran        bool        // a command that can change a key ran, or may have
	Open       bool        // the connection broke before a reply about the keys
	NotNow     redis.Error // a cluster's refusal to run one of the commands
	Crossed    bool        // a command named keys of several cluster slots: later refusals follow from that
	Transacted bool        // MULTI was sent
	Useless    bool        // an answer proves that the server at the other end can't serve us

	Refusal struct { // the last refusal in this step, and the first command refused so
		Command string
		Reply   redis.Error
	}
	BrokeOn string // the commands of the write on which the connection broke

	Strange error // a reply in this step that no server gives to its command

	NotSent func(error) bool // reports whether an error proves that nothing of a write was sent; nil: no error does

	sent   []string // commands without a reply so far
	room   [8]string
	queues bool     // MULTI was answered, and EXEC was not
	queued []string // by that MULTI
}

// Begin begins a step: no command has run in it.
func (s *Session) Begin() {
	s.Ran, s.Open, s.Useless, s.Transacted, s.Crossed, s.NotNow, s.watched = false, false, false, false, false, "", false
	s.Refusal.Command, s.Refusal.Reply, s.BrokeOn, s.Strange = "", "", "", nil
}

// Watched notes a WATCH from an earlier step.
func (s *Session) Watched() { s.Watching, s.guarded = true, true }

// Sent notes a command. Its reply comes later.
func (s *Session) Sent(name string) {
	if s.sent == nil {
		s.sent = s.room[:0]
	}
	s.sent = append(s.sent, name)
}

// Failed notes an error in place of replies. It reports whether nothing of the write was sent. Earlier writes
// may have run.
func (s *Session) Failed(err error) (unsent bool) {
	if err == nil || s.NotSent == nil || !s.NotSent(err) {
		return false
	}
	s.sent = s.sent[:0]
	s.Open = s.Open || s.Ran
	return true
}

// Received notes the next reply.
func (s *Session) Received(reply any, err error) {
	if len(s.sent) > 0 {
		name := s.sent[0]
		s.sent = s.sent[1:]
		s.track(name, reply, err)
	}
}

// Done notes the result of a Do. A Do of "" returns the replies to all commands sent. Any other Do returns the
// reply to name only, and drops the replies before it.
func (s *Session) Done(name string, reply any, err error) {
	if s.Failed(err) {
		return
	}
	sent := s.sent
	s.broke(name, err)
	s.sent = s.sent[:0]
	if name == "" {
		replies, _ := reply.([]any)
		for i, n := range sent {
			var r any = err
			if i < len(replies) {
				r = replies[i]
			}
			s.track(n, r, err)
		}
		return
	}
	for _, n := range sent {
		s.track(n, nil, redis.Error("not seen")) // Do returns the last reply only
	}
	s.track(name, reply, err)
}

// broke notes the commands on which the connection broke.
func (s *Session) broke(name string, err error) {
	if err != nil && !answer.Refused(err) {
		s.BrokeOn = strings.TrimSpace(strings.Join(s.sent, " ") + " " + name)
		s.Open = s.Open || slices.ContainsFunc(append(s.sent, name), asks)
	}
}

// asks reports whether the reply to a command depends on the keys.
func asks(name string) bool {
	return name != "" && !strings.EqualFold(name, "UNWATCH") && !strings.EqualFold(name, "DISCARD")
}

// changes reports whether a command can change a key.
func changes(name string) bool {
	switch strings.ToUpper(name) {
	case "", "WATCH", "UNWATCH", "MULTI", "DISCARD", "GET", "TTL", "PTTL", "EXISTS":
		return false
	}
	return true
}

// refused notes a refusal. It ignores EXECABORT if a command of the transaction was refused before.
func (s *Session) refused(name string, err error) {
	if e, ok := err.(redis.Error); ok && e != s.Refusal.Reply && (s.Refusal.Reply == "" || !answer.ExecAborted(err)) {
		s.Refusal.Command, s.Refusal.Reply = name, e
	}
}

// Aborted reports whether a WATCH explains an EXEC with the reply nil. One WATCH explains one EXEC. Do not
// believe or ask again a server that answers nil without a WATCH.
func (s *Session) Aborted() bool {
	by := s.watched
	s.watched = false
	return by
}

func (s *Session) track(name string, reply any, err error) {
	e, refused := reply.(redis.Error)
	ok := err == nil && !refused
	if err == nil && refused {
		err = e
	}
	name = strings.ToUpper(name)
	s.refused(name, err)
	if ok {
		s.fit(name, reply)
	}
	s.judge(name, reply, err)
	switch name {
	case "WATCH":
		s.Watching, s.guarded = true, true
	case "UNWATCH":
		s.guarded = false
		s.Watching = s.Watching && !ok
	case "MULTI":
		s.Multi, s.Transacted, s.watched = true, true, false
	case "EXEC":
		s.watched = s.watched || s.guarded && reply == nil && err == nil
		s.guarded = false
		// A refused EXEC may leave the server in MULTI (2.0–2.4 over maxmemory).
		s.Multi = s.Multi && !ok
		s.Watching = s.Watching && !ok
	case "DISCARD":
		// "DISCARD without MULTI" proves as much as OK. DISCARD ends a WATCH, but on 2.2 the connection still
		// remembers a touch of the watched keys.
		s.Multi = s.Multi && !ok && !strings.Contains(err.Error(), "without MULTI")
	}
}

// judge notes whether the command can have changed a key. A step did not run if a cluster refused all its writes.
func (s *Session) judge(name string, reply any, err error) {
	if e, refused := answer.NotNow(err); refused && !s.Crossed {
		s.NotNow = e
	}
	s.Crossed = s.Crossed || answer.Crosses(err)
	_, useless := answer.Among([]any{reply}, answer.CannotServe)
	s.Useless = s.Useless || useless || answer.CannotServe(err)
	if answer.Known(err) != nil || !changes(name) || name == "EXEC" && err == nil && reply == nil {
		return
	}
	if !s.Multi || reply != "QUEUED" {
		s.Ran = true
	}
}
