package multilock

import (
	"maps"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// unknown returns an extension that stopped on the way, as the lease l that may stand: it ends with the first of its
// keys, extended or not. It is remembered until then, for Inspect to recognise.
func (b *inTurn) unknown(now func() time.Time, l compat.Grant, err error) (compat.Grant, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := now()
	maps.DeleteFunc(b.open, func(_ [2]string, l compat.Grant) bool { return !t.Before(l.Until) })
	b.open[[2]string{l.Key, l.Value}] = l
	return l, &protocol.UnknownError{Lease: l.Lease, Err: inPart{err}}
}

// recognised returns the values of extensions of unknown outcome that the keys show to be ours.
func (b *inTurn) recognised(key string, states []protocol.State) (all []protocol.Holder) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.open {
		if l.Key != key {
			continue
		}
		h, ours := protocol.Holder{Value: l.Value}, true
		parts, err := b.split(l)
		for i, p := range parts {
			until, yes := heldBy(p, states[i])
			h.Until, ours = earliest(h.Until, until), ours && yes
		}
		if err == nil && ours {
			all = append(all, h)
		}
	}
	return all
}
