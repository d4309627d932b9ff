package wire

import "sync/atomic"

// Compares stores the knowledge of a server's own compare-and-set (protocol.IfEq) in one epoch. The steps on
// the server share it. A nil *Compares knows nothing.
type Compares struct {
	known atomic.Uint64 // 1 + the epoch, and in the last two bits a Removal
}

// A Removal names the command by which a server compares and removes a key. The zero Removal means: not known.
type Removal uint64

const (
	ByDELIFEQ Removal = iota + 1
	ByDELEX
	ByNone // the server has neither command, or its SET does not compare
)

const removal = 3 // the bits of a Removal in known

// Asked reports whether the server was asked in the epoch.
func (k *Compares) Asked(epoch uint64) bool { return k.known.Load()>>2 == epoch+1 }

// Found notes whether the server compares in the epoch.
func (k *Compares) Found(epoch uint64, compares bool) {
	if compares && k.Asked(epoch) && k.Removal() != ByNone {
		return // keep the known Removal
	}
	known := (epoch + 1) << 2
	if !compares {
		known |= uint64(ByNone)
	}
	k.known.Store(known)
}

// Removal returns the server's removal command.
func (k *Compares) Removal() Removal {
	if k == nil {
		return 0
	}
	return Removal(k.known.Load() & removal)
}

// Answers notes the server's removal command, learned from its answer. The epoch stays.
func (k *Compares) Answers(r Removal) {
	if k == nil {
		return
	}
	old := k.known.Load()
	k.known.CompareAndSwap(old, old&^removal|uint64(r)) // it fails if another step has learned more
}
