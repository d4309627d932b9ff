package race

import "math/bits"

// A table remembers a number under two. It is a map made for the inner loop:
// open addressing, no deletion.
type table struct {
	slots []slot
	n     int
}

type slot struct {
	a, b uint64
	v    uint32 // 1 + the value; 0: the slot is free
}

// mix turns a word into one whose every bit depends on all of its. (A weaker
// one has cost states, silently: they were taken for seen.)
func mix(h, w uint64) uint64 {
	hi, lo := bits.Mul64(h^w^0x9e3779b97f4a7c15, w^bits.RotateLeft64(h, 29)^0xd6e8feb86659fd93)
	return hi ^ lo
}

func (t *table) get(a, b uint64) (uint32, bool) {
	if t.n == 0 {
		return 0, false
	}
	mask := uint64(len(t.slots) - 1)
	for i := mix(a, b) & mask; ; i = (i + 1) & mask {
		switch s := &t.slots[i]; {
		case s.v == 0:
			return 0, false
		case s.a == a && s.b == b:
			return s.v - 1, true
		}
	}
}

func (t *table) put(a, b uint64, v uint32) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = make([]slot, max(64, 2*len(old)))
		for _, s := range old {
			if s.v != 0 {
				t.insert(s)
			}
		}
	}
	t.n++
	t.insert(slot{a, b, v + 1})
}

func (t *table) insert(s slot) {
	mask := uint64(len(t.slots) - 1)
	i := mix(s.a, s.b) & mask
	for t.slots[i].v != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// Hops are where nodes lead by inputs: a table whose every slot is a quarter of a cache line, for
// the look-up that a search makes most.
type hops struct {
	slots []hopSlot
	n     int
}

type hopSlot struct {
	key uint64 // 1 + the node, and the input; 0: the slot is free
	hop hop
}

// A hop is an edge, packed.
type hop struct {
	to   uint32
	rest uint32 // twice the number of its results; odd: a connection was closed
}

func (t *hops) get(node, input uint32) (hop, bool) {
	if t.n == 0 {
		return hop{}, false
	}
	key := uint64(node+1)<<32 | uint64(input)
	mask := uint64(len(t.slots) - 1)
	for i := mix(key, 0) & mask; ; i = (i + 1) & mask {
		switch s := &t.slots[i]; s.key {
		case key:
			return s.hop, true
		case 0:
			return hop{}, false
		}
	}
}

func (t *hops) put(node, input uint32, h hop) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = make([]hopSlot, max(64, 2*len(old)))
		for _, s := range old {
			if s.key != 0 {
				t.insert(s)
			}
		}
	}
	t.n++
	t.insert(hopSlot{uint64(node+1)<<32 | uint64(input), h})
}

func (t *hops) insert(s hopSlot) {
	mask := uint64(len(t.slots) - 1)
	i := mix(s.key, 0) & mask
	for t.slots[i].key != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// A seen is a set of 64-bit fingerprints of states.
type seen struct {
	slots   []uint64
	n       int
	touched uint64 // keeps fetch's loads from being left out
}

// print is the fingerprint as the set keeps it: 0 stands for a free slot.
func (s *seen) print(f uint64) uint64 { return max(f, 1) }

// fetch brings the slots of arrivals into the cache: the loads do not depend on
// each other, so that the processor makes them at once.
func (s *seen) fetch(arrivals []arrival) {
	if len(s.slots) == 0 {
		return
	}
	mask := uint64(len(s.slots) - 1)
	for i := range arrivals {
		s.touched += s.slots[arrivals[i].print&mask]
	}
}

// add reports whether the fingerprint is new.
func (s *seen) add(f uint64) bool {
	if 8*s.n >= 5*len(s.slots) {
		s.grow()
	}
	mask := uint64(len(s.slots) - 1)
	i := f & mask
	for s.slots[i] != 0 {
		if s.slots[i] == f {
			return false
		}
		i = (i + 1) & mask
	}
	s.slots[i] = f
	s.n++
	return true
}

func (s *seen) grow() {
	old := s.slots
	s.slots = make([]uint64, max(1<<12, 2*len(old)))
	mask := uint64(len(s.slots) - 1)
	for _, f := range old {
		if f == 0 {
			continue
		}
		i := f & mask
		for s.slots[i] != 0 {
			i = (i + 1) & mask
		}
		s.slots[i] = f
	}
}
