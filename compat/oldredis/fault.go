package oldredis

import "io"

// A Fault is what happens to one command: on the network, or at a server that refuses it.
type Fault int

const (
	// None: the command and its reply arrive.
	None Fault = iota
	// LoseRequest cuts the connection before the command: it does not run.
	// Replies to earlier commands of the same pipelined write are lost too,
	// although those ran.
	LoseRequest
	// LoseReply cuts the connection after the command has run.
	LoseReply
	// Refuse answers with the error of a server whose memory is full: the command does not run. The
	// other commands of a MULTI still run before 2.6.5; later versions drop them all at EXEC. On
	// 2.0 to 2.4 a refused EXEC leaves the connection in MULTI.
	Refuse
)

// errCut is the error that redigo reports when a server closes the connection.
var errCut = io.EOF

// SetFault makes f decide the fault of every command: command n of connection conn, both counted
// from 0 since the server started. A nil f ends all faults. f must not call the server.
func (s *Server) SetFault(f func(conn, n int, cmd []string) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// SetTrace calls f for every command that reaches the server, with its reply as redigo would return
// it. A command that blocks is reported when it blocks, with a nil reply. f must not call the
// server, and must not keep or change its arguments.
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
