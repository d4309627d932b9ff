// Package session follows what a server made of what was sent over a connection: a pool that
// only remembers what was sent would hand out one that the server still has in MULTI, or under
// a WATCH. It guarantees that a server which may be in either, by any reply that was seen or not,
// is said to be.
package session

import (
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Session is one connection's. The zero Session is of a fresh one.
type Session struct {
	Multi      bool        // the server may be in MULTI
	Watching   bool        // the server may hold a WATCH
	guarded    bool        // we have begun a WATCH, and not ended it, whatever the server made of that
	watched    bool        // a WATCH that aborted an EXEC
	Ran        bool        // a command that can change something ran, or may have
	Open       bool        // the connection broke before a reply that says something about the keys
	NotNow     redis.Error // a cluster's refusal to run one of the commands
	Crossed    bool        // a command named keys of several slots of a cluster: what is refused behind it is for that
	Transacted bool        // MULTI was sent
	Useless    bool        // an answer says that the connection leads to a server that can't serve us

	Refusal struct { // the last in this step, and the first command that met with it
		Command string
		Reply   redis.Error
	}
	BrokeOn string // the commands of the write on which the connection broke

	NotSent func(error) bool // reports that an error says that nothing of a write was sent; nil: none says so

	sent []string // commands whose replies are still to come
	room [8]string
}

// Begin begins a step: nothing ran in it yet.
func (s *Session) Begin() {
	s.Ran, s.Open, s.Useless, s.Transacted, s.Crossed, s.NotNow, s.watched = false, false, false, false, false, "", false
	s.Refusal.Command, s.Refusal.Reply, s.BrokeOn = "", "", ""
}

// Watched notes that the connection watches since an earlier step.
func (s *Session) Watched() { s.Watching, s.guarded = true, true }

// Sent notes a command whose reply comes later.
func (s *Session) Sent(name string) {
	if s.sent == nil {
		s.sent = s.room[:0]
	}
	s.sent = append(s.sent, name)
}

// Failed notes an error that came instead of replies. It reports whether nothing of the write was sent; what was sent
// before that write may have run.
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

// Done notes what one Do brought in: the reply to name, and before it those to the commands that
// were sent; a Do of "" returned these.
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

// broke notes on what the connection broke.
func (s *Session) broke(name string, err error) {
	if err != nil && !answer.Refused(err) {
		s.BrokeOn = strings.TrimSpace(strings.Join(s.sent, " ") + " " + name)
		s.Open = s.Open || slices.ContainsFunc(append(s.sent, name), asks)
	}
}

// asks reports that the reply to a command says something about the keys.
func asks(name string) bool {
	return name != "" && !strings.EqualFold(name, "UNWATCH") && !strings.EqualFold(name, "DISCARD")
}

// changes reports that a command can change something.
func changes(name string) bool {
	switch strings.ToUpper(name) {
	case "", "WATCH", "UNWATCH", "MULTI", "DISCARD", "GET", "TTL", "PTTL", "EXISTS":
		return false
	}
	return true
}

// refused notes what was refused: not that the transaction around it was.
func (s *Session) refused(name string, err error) {
	if e, ok := err.(redis.Error); ok && e != s.Refusal.Reply && (s.Refusal.Reply == "" || !answer.ExecAborted(err)) {
		s.Refusal.Command, s.Refusal.Reply = name, e
	}
}

// Aborted reports whether a WATCH explains an EXEC that was answered with nil. One WATCH explains
// one: a server that says so without one is not to be believed, nor asked again.
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
		// Refused, it may have left the server in MULTI (2.0–2.4 over maxmemory).
		s.Multi = s.Multi && !ok
		s.Watching = s.Watching && !ok
	case "DISCARD":
		// "DISCARD without MULTI" is as good an answer as OK. It ends a WATCH, but on 2.2 not what
		// the WATCH has seen.
		s.Multi = s.Multi && !ok && !strings.Contains(err.Error(), "without MULTI")
	}
}

// judge notes whether the command can have changed anything: a step of which a cluster
// refused every command that writes did not run.
func (s *Session) judge(name string, reply any, err error) {
	if e, refused := answer.NotNow(err); refused && !s.Crossed {
		s.NotNow = e
	}
	s.Crossed = s.Crossed || answer.Crosses(err)
	_, elsewhere := answer.Among([]any{reply}, answer.Elsewhere)
	s.Useless = s.Useless || elsewhere || answer.Elsewhere(err)
	if answer.Known(err) != nil || !changes(name) || name == "EXEC" && err == nil && reply == nil {
		return
	}
	if !s.Multi || reply != "QUEUED" {
		s.Ran = true
	}
}
