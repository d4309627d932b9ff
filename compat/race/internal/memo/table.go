// Package memo remembers what was found out once: tables for the inner loop of a search, and the hashes by which
// they find it.
package memo

// A Table remembers a value under a key. It is a map made for the inner loop: open addressing, no
// deletion. The zero key stands for a free slot.
type Table[K tableKey, V any] struct {
	Slots []slot[K, V]
	n     int
}

type tableKey interface {
	comparable
	hash() uint64
}

type slot[K, V any] struct {
	v V // first: an empty one takes no room there
	K K
}

// A Pair is a key of two numbers, the first of them below the highest.
type Pair [2]uint64

// PairOf never returns the zero key.
func PairOf(a, b uint64) Pair { return Pair{a + 1, b} }

func (k Pair) hash() uint64 { return Mix(k[0], k[1]) }

// A Word is a key that is a number other than 0.
type Word uint64

func (k Word) hash() uint64 { return Mix(uint64(k), 0) }

// A Fingerprint is that of a state, and spreads by itself.
type Fingerprint uint64

func (k Fingerprint) hash() uint64 { return uint64(k) }

// Get returns the value under k.
func (t *Table[K, V]) Get(k K) (v V, ok bool) {
	if t.n == 0 {
		return v, false
	}
	s := &t.Slots[t.place(k)]
	return s.v, s.K == k
}

// place returns the number of k's slot, taken or free. There is a slot.
func (t *Table[K, V]) place(k K) uint64 {
	var free K
	mask := uint64(len(t.Slots) - 1)
	i := k.hash() & mask
	for t.Slots[i].K != free && t.Slots[i].K != k {
		i = (i + 1) & mask
	}
	return i
}

// Put reports whether k is new.
func (t *Table[K, V]) Put(k K, v V) bool {
	if 8*t.n >= 5*len(t.Slots) {
		var free K
		old := t.Slots
		t.Slots = make([]slot[K, V], max(64, 2*len(old)))
		for _, s := range old {
			if s.K != free {
				t.Slots[t.place(s.K)] = s
			}
		}
	}
	s := &t.Slots[t.place(k)]
	if s.K == k {
		return false
	}
	*s = slot[K, V]{v, k}
	t.n++
	return true
}

// Find returns the value under k, or computes it.
func (t *Table[K, V]) Find(k K, f *Frozen, out func() V) V {
	v, ok := t.Get(k)
	if !ok {
		f.Check()
		v = out()
		t.Put(k, v)
	}
	return v
}

// Names are what numbers are called elsewhere: 1 + the name; 0: it was not found out.
type Names[T uint16 | uint32] []T

// Find returns the name of n, or computes it.
func (l *Names[T]) Find(n T, f *Frozen, out func() T) T {
	if int(n) < len(*l) && (*l)[n] != 0 {
		return (*l)[n] - 1
	}
	f.Check()
	to := out()
	*l = Room(*l, int(n))
	(*l)[n] = 1 + to
	return to
}

// Room returns list with a place for n.
func Room[T any](list []T, n int) []T {
	if n < len(list) {
		return list
	}
	return append(list, make([]T, max(n+1-len(list), len(list)))...)
}

// Missing is the panic of a worker that asks what nobody has asked yet.
type Missing struct{}

// Frozen: what is known is only looked at meanwhile, and may not grow.
type Frozen bool

// Check stops a worker with an unknown question.
func (f *Frozen) Check() {
	if *f {
		panic(Missing{})
	}
}
