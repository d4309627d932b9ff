package redlock

// Stuck is how many steps do not end in the i-th server.
func (q *Quorum) Stuck(i int) int { return int(q.servers[i].late.Load()) }
