package redlock

// Stuck is how many steps do not end in the i-th server.
func (q *Quorum) Stuck(i int) int { return int(q.servers[i].late.Load()) }

// Remembered is how many leases have other parts than their Value says.
func (q *Quorum) Remembered() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.moved)
}
