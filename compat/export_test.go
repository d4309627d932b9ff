package compat

import "unsafe"

// HeldSize is the size of what the engine keeps of each held lock, in bytes.
const HeldSize = unsafe.Sizeof(held{})

// Waiting is how many entries wait for key, the head not among them.
func (k *Locker) Waiting(key string) int { return k.queues.Waiting(key) }

// Queues is how many keys are waited for or held here.
func (k *Locker) Queues() int { return k.queues.Len() }
