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

// Watchers is how many addresses of Sentinels s asks, and Known how many Sentinels it takes them for.
func (s *Source) Watchers() (addresses, known int) {
	s.asking <- struct{}{}
	defer func() { <-s.asking }()
	return len(s.watchers()), s.known()
}
