package compat

// Waiting is how many stand in line for key, its head not among them.
func (k *Locker) Waiting(key string) int {
	k.lines.mu.Lock()
	defer k.lines.mu.Unlock()
	n := 0
	if ln := k.lines.of[key]; ln != nil {
		for w := ln.first; w != nil; w = w.next {
			n++
		}
	}
	return n
}

// Lines is how many keys are waited for or held here.
func (k *Locker) Lines() int {
	k.lines.mu.Lock()
	defer k.lines.mu.Unlock()
	return len(k.lines.of)
}
