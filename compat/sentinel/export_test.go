package sentinel

// Named is the server that the Sentinels have last named to s.
func (s *Source) Named() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil {
		return ""
	}
	return s.now.addr
}
