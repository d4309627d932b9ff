package oldredis

import (
	"maps"
	"slices"
	"sync"
)

// A session is the server's side of one connection.
type session struct {
	number int // since the server's start, from 0
	sent   int // commands received so far
	db     int
	name   string

	multi   bool
	aborted bool // a command was refused while it was queued
	dirty   bool // a watched key was touched
	queue   []queued
	watches []*watch

	channels []string // SUBSCRIBE
	patterns []string // PSUBSCRIBE

	waiting *waiter    // not nil while a command blocks
	backlog [][]string // what the client sent meanwhile

	out  []any      // replies that the client has not taken
	more *sync.Cond // signals changes of out and dead; made when first waited on
	hold bool       // a pipelined write is being read: its replies go out together
	dead error      // why the connection ended, or nil
}

// accept registers a new connection.
func (s *Server) accept() *session {
	c := &session{number: s.dialed}
	s.dialed++
	if s.closed {
		c.dead = errClosed
		return c
	}
	s.sessions[c.number] = c
	return c
}

// cut ends a connection; replies not taken by its client are lost.
func (s *Server) cut(c *session, why error) {
	if c.dead == nil {
		c.out = nil
	}
	s.hangUp(c, why)
}

// hangUp ends a connection after its last reply.
func (s *Server) hangUp(c *session, why error) {
	if c.dead != nil {
		return
	}
	c.dead = why
	s.unwatch(c)
	s.stopWaiting(c)
	c.queue, c.backlog, c.channels, c.patterns = nil, nil, nil, nil
	delete(s.sessions, c.number)
	c.wake()
}

func (s *Server) cutAll() {
	for _, c := range s.inOrder() {
		s.cut(c, errCut)
	}
}

// inOrder returns the open sessions, oldest first.
func (s *Server) inOrder() []*session {
	list := make([]*session, 0, len(s.sessions))
	for _, n := range slices.Sorted(maps.Keys(s.sessions)) {
		list = append(list, s.sessions[n])
	}
	return list
}

// wake wakes every goroutine waiting for a change of the session.
func (c *session) wake() {
	if c.more != nil {
		c.more.Broadcast()
	}
}

// wait waits for the session to change; the server's lock is held.
func (s *Server) wait(c *session) {
	if c.more == nil {
		c.more = sync.NewCond(&s.mu)
	}
	c.more.Wait()
}
