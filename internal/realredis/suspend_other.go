//go:build !unix

package realredis

// Stop suspends the server (SIGSTOP): it answers nothing and keeps its connections, like a machine in swap or a network
// without its packets.
func (s *Server) Stop() {
	s.t.Helper()
	s.t.Fatal("this system can't suspend a redis-server")
}

// Continue fails the test, as Stop does.
func (s *Server) Continue() {
	s.t.Helper()
	s.t.Fatal("this system can't suspend a redis-server")
}
