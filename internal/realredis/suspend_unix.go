//go:build unix

package realredis

import (
	"os"
	"syscall"
)

// Stop suspends the server (SIGSTOP): it answers nothing and keeps its connections, like a machine in swap or a network
// without its packets.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Continue resumes a stopped server.
func (s *Server) Continue() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.Signal(sig); err != nil {
		s.t.Errorf("redis-server on %s: %v: %v", s.Addr, sig, err)
	}
}
