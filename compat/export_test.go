package compat

// Waiting is how many entries wait for key, the head not among them.
func (k *Locker) Waiting(key string) int {
	k.queues.mu.Lock()
	defer k.queues.mu.Unlock()
	n := 0
	if q := k.queues.of[key]; q != nil {
		for e := q.first; e != nil; e = e.next {
			n++
		}
	}
	return n
}

// Queues is how many keys are waited for or held here.
func (k *Locker) Queues() int {
	k.queues.mu.Lock()
	defer k.queues.mu.Unlock()
	return len(k.queues.of)
}
