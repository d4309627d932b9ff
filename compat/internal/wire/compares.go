package wire

import "sync/atomic"

// Compares is what is known of a server's own compare-and-set (protocol.IfEq), in one epoch: the steps on it share what
// each of them learns. A nil *Compares knows nothing.
type Compares struct {
	known atomic.Uint64 // 1 + the epoch, and in the last two bits a Removal
}

// A Removal is the command by which a server removes a key that holds a value.
type Removal uint64

// The zero Removal is not known.
const (
	ByDELIFEQ Removal = iota + 1
	ByDELEX
	ByNone // or its SET does not compare
)

const removal = 3 // the bits

// Asked reports that the server was asked in the epoch.
func (k *Compares) Asked(epoch uint64) bool { return k.known.Load()>>2 == epoch+1 }

// Found notes what the server was found to do in the epoch.
func (k *Compares) Found(epoch uint64, compares bool) {
	if compares && k.Asked(epoch) && k.Removal() != ByNone {
		return // how is known, too
	}
	known := (epoch + 1) << 2
	if !compares {
		known |= uint64(ByNone)
	}
	k.known.Store(known)
}

// Removal is the server's.
func (k *Compares) Removal() Removal {
	if k == nil {
		return 0
	}
	return Removal(k.known.Load() & removal)
}

// Answers notes the server's removal, as it was learned from its answer. What is known of the epoch stays.
func (k *Compares) Answers(r Removal) {
	if k == nil {
		return
	}
	old := k.known.Load()
	k.known.CompareAndSwap(old, old&^removal|uint64(r)) // or another step has learned more
}
