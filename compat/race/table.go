package race

// A table remembers a value under a key. It is a map made for the inner loop: open addressing, no
// deletion. The zero key stands for a free slot.
type table[K tableKey, V any] struct {
	slots []slot[K, V]
	n     int
}

type tableKey interface {
	comparable
	hash() uint64
}

type slot[K, V any] struct {
	v V // first: an empty one takes no room there
	k K
}

// A pair is a key of two numbers, the first of them below the highest.
type pair [2]uint64

func pairOf(a, b uint64) pair { return pair{a + 1, b} }

func (k pair) hash() uint64 { return mix(k[0], k[1]) }

// A word is a key that is a number other than 0.
type word uint64

func (k word) hash() uint64 { return mix(uint64(k), 0) }

// A fingerprint is that of a state, and spreads by itself.
type fingerprint uint64

func (k fingerprint) hash() uint64 { return uint64(k) }

func (t *table[K, V]) get(k K) (v V, ok bool) {
	if t.n == 0 {
		return v, false
	}
	s := &t.slots[t.place(k)]
	return s.v, s.k == k
}

// place is the number of the slot that k has, or would have. There is a slot.
func (t *table[K, V]) place(k K) uint64 {
	var free K
	mask := uint64(len(t.slots) - 1)
	i := k.hash() & mask
	for t.slots[i].k != free && t.slots[i].k != k {
		i = (i + 1) & mask
	}
	return i
}

// put reports whether k is new.
func (t *table[K, V]) put(k K, v V) bool {
	if 8*t.n >= 5*len(t.slots) {
		var free K
		old := t.slots
		t.slots = make([]slot[K, V], max(64, 2*len(old)))
		for _, s := range old {
			if s.k != free {
				t.slots[t.place(s.k)] = s
			}
		}
	}
	s := &t.slots[t.place(k)]
	if s.k == k {
		return false
	}
	*s = slot[K, V]{v, k}
	t.n++
	return true
}

// find returns what is remembered under k, or finds it out.
func (t *table[K, V]) find(k K, f *frozen, out func() V) V {
	v, ok := t.get(k)
	if !ok {
		f.check()
		v = out()
		t.put(k, v)
	}
	return v
}

// names are what numbers are called elsewhere: 1 + the name; 0: it was not found out.
type names[T uint16 | uint32] []T

// find returns what n is called, or finds it out.
func (l *names[T]) find(n T, f *frozen, out func() T) T {
	if int(n) < len(*l) && (*l)[n] != 0 {
		return (*l)[n] - 1
	}
	f.check()
	to := out()
	*l = room(*l, int(n))
	(*l)[n] = 1 + to
	return to
}

// room returns list with a place for n.
func room[T any](list []T, n int) []T {
	if n < len(list) {
		return list
	}
	return append(list, make([]T, max(n+1-len(list), len(list)))...)
}

// missing is the panic of a worker that asks what nobody has asked yet.
type missing struct{}

// frozen reports on what is known; see team.
type frozen bool

func (f *frozen) check() {
	if *f {
		panic(missing{})
	}
}
