//go:build !unix

package realredis

// Stop fails the test: only Unix can suspend a process.
func (s *Server) Stop() {
	s.t.Helper()
	s.t.Fatal("this system can't suspend a redis-server")
}

// Continue fails the test, as Stop does.
func (s *Server) Continue() {
	s.t.Helper()
	s.t.Fatal("this system can't suspend a redis-server")
}
