package oldredis

import "io"

// A Fault is what becomes of one command: on the network, or at a server that
// does not take it.
type Fault int

const (
	// None: the command arrives and its reply too.
	None Fault = iota
	// LoseRequest cuts the connection before the command: it does not run.
	// Replies to earlier commands of the same pipelined write are lost too,
	// although those ran.
	LoseRequest
	// LoseReply cuts the connection after the command has run.
	LoseReply
	// Refuse answers with the error of a server whose memory is full: the command
	// does not run. In MULTI the others do, before 2.6.5; later EXEC drops them all. An
	// EXEC that is refused leaves 2.0–2.4 in MULTI.
	Refuse
)

// errCut is what a client sees of a connection that was cut: what redigo
// reports when a server closes.
var errCut = io.EOF

// SetFault has f decide on the fate of every command: the n-th, from 0, of the
// conn-th connection since the server started, from 0. nil ends all faults. f
// must not call the server.
func (s *Server) SetFault(f func(conn, n int, cmd []string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// SetTrace has f see every command that reached the server, with its reply as
// redigo would give it. A blocked command is shown when it blocks, with nil. f
// must not call the server, nor keep or change what it is given.
func (s *Server) SetTrace(f func(conn int, cmd []string, reply any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = f
}

// Cut ends a connection by its number, as a proxy or a firewall does. It reports
// whether the connection was open.
func (s *Server) Cut(conn int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.sessions[conn]
	if c == nil {
		return false
	}
	s.cut(c, errCut)
	return true
}
