package oldredis

import (
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// A handler may also return one of these instead of a reply.
type (
	// noReply: the replies were already sent, or follow later.
	noReply struct{}
	// lastReply is followed by the end of the connection.
	lastReply struct{ reply any }
	// hangup is the end of the connection without a reply.
	hangup struct{}
)

// receive takes one command from the client and queues its replies.
func (s *Server) receive(c *session, args []string) {
	if c.dead != nil {
		return
	}
	if c.waiting != nil {
		c.backlog = append(c.backlog, args)
		return
	}
	fault := None
	if s.fault != nil {
		fault = s.fault(c.number, c.sent, args)
	}
	c.sent++
	if fault == LoseRequest {
		s.cut(c, errCut)
		return
	}
	reply := s.execute(c, args, fault == Refuse)
	s.traceCall(c, args, reply)
	if fault == LoseReply {
		s.cut(c, errCut)
		return
	}
	switch r := reply.(type) {
	case noReply:
	case hangup:
		s.cut(c, errCut)
	case lastReply:
		if r.reply != nil {
			s.push(c, r.reply)
		}
		s.hangUp(c, errCut)
	default:
		s.push(c, reply)
	}
}

// traceCall passes a command and its reply to the trace function.
func (s *Server) traceCall(c *session, args []string, reply any) {
	if s.trace == nil {
		return
	}
	switch r := reply.(type) {
	case noReply, hangup:
		reply = nil
	case lastReply:
		reply = r.reply
	}
	s.trace(c.number, args, forClient(reply))
}

// push queues a reply for the client.
func (s *Server) push(c *session, reply any) {
	c.out = append(c.out, reply)
	if !c.hold {
		c.wake()
	}
}

// execute runs or queues one command, or refuses it as a full server does.
func (s *Server) execute(c *session, args []string, refuse bool) any {
	s.begin()
	var cmd *command
	var answer any
	if refuse {
		answer = s.refuseFull(c, strings.ToLower(args[0]))
	} else {
		cmd, answer = s.admit(c, args)
	}
	if answer != nil {
		if c.multi && !s.has(execRunsRest) {
			c.aborted = true
		}
		return answer
	}
	if c.multi && !s.atOnce(cmd.name) {
		c.queue = append(c.queue, queued{cmd, args})
		return replyQueued
	}
	reply := s.call(c, cmd, args)
	if len(s.waiters) > 0 {
		s.serve()
	}
	return reply
}

// admit finds the command, or returns the error reply.
func (s *Server) admit(c *session, args []string) (cmd *command, answer any) {
	name := args[0]
	cmd = s.commands[name]
	if cmd == nil {
		name = strings.ToLower(name)
		cmd = s.commands[name]
	} else {
		name = cmd.name
	}
	switch {
	case name == "quit":
		if s.has(quitSilently) {
			return nil, lastReply{}
		}
		return nil, lastReply{replyOK}
	case s.profile != nil && s.profile.closes(args, cmd):
		return nil, hangup{}
	case cmd == nil || s.refuse[name]:
		return nil, redis.Error(s.quirks.texts.unknown(args[0], args[1:]))
	case s.forbid[name]:
		return nil, s.reject(c, name, "NOPERM this user has no permissions to run the '"+name+"' command")
	case !cmd.accepts(len(args)):
		return nil, s.reject(c, name, "ERR wrong number of arguments for '"+name+"' command")
	case s.full && s.needsMemory(c, cmd):
		return nil, s.refuseFull(c, name)
	case c.subscribed() && !whileSubscribed(name):
		return nil, redis.Error("ERR only (P)SUBSCRIBE / (P)UNSUBSCRIBE / QUIT allowed in this context")
	}
	return cmd, nil
}

// needsMemory reports whether the command is refused when memory is full.
func (s *Server) needsMemory(c *session, cmd *command) bool {
	switch cmd.name {
	case "exec":
		return s.has(execNeedsMemory) ||
			s.has(execChecksMemory) && slices.ContainsFunc(c.queue, func(q queued) bool { return q.cmd.grows })
	case "discard":
		return c.multi && s.has(discardNeedsMemory)
	}
	return cmd.grows || c.multi && s.has(queueNeedsMemory)
}

func (s *Server) refuseFull(c *session, name string) any {
	if c.multi && name == "exec" && !s.has(execNeedsMemory) {
		return s.abort(c, s.quirks.texts.full)
	}
	return redis.Error(s.quirks.texts.full)
}

// reject returns the error of a command that may not run.
func (s *Server) reject(c *session, name, text string) any {
	if name == "exec" && s.has(execRejected) {
		return s.abort(c, strings.TrimPrefix(text, "ERR "))
	}
	return redis.Error(text)
}

// abort drops the transaction of an EXEC that may not run.
func (s *Server) abort(c *session, why string) any {
	s.endMulti(c)
	return redis.Error("EXECABORT Transaction discarded because of: " + why)
}

// atOnce reports whether the command is not queued in MULTI.
func (s *Server) atOnce(name string) bool {
	switch name {
	case "exec", "discard":
		return true
	case "multi", "watch":
		return !s.has(multiNests)
	}
	return false
}

// call runs a command; EXEC runs the queued ones through it too.
func (s *Server) call(c *session, cmd *command, args []string) any {
	if cmd.run == nil {
		return redis.Error("ERR oldredis does not emulate '" + cmd.name + "'")
	}
	return cmd.run(s, c, args)
}
