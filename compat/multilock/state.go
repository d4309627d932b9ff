package multilock

import (
	"slices"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// stateOfSet returns the state of the key that keeps others out longest. Its holders are all values found, each with
// the end of the first of its keys. It is open if no key keeps an attempt from all of them.
func stateOfSet(key string, keys []protocol.State) protocol.State {
	var all []protocol.Holder
	for _, s := range keys {
		of := s.Holders
		if s.Status != protocol.StatusFree && len(of) == 0 {
			of = []protocol.Holder{{Value: s.Value, Until: s.Until}}
		}
		for _, h := range of {
			all = hold(all, h)
		}
	}
	st := longest(keys)
	st.Key, st.Holders = key, all
	st.Open = st.Open && !slices.ContainsFunc(keys, func(s protocol.State) bool { return rank[s.Status] >= rank[protocol.StatusHeld] && !s.Open })
	return st
}

// longest returns the state of the key that keeps others out longest.
func longest(keys []protocol.State) protocol.State {
	st := protocol.State{Status: protocol.StatusFree, TTL: protocol.NoTTL}
	for _, s := range keys {
		if rank[s.Status] > rank[st.Status] || rank[s.Status] == rank[st.Status] && later(s.Until, st.Until) {
			st = s
		}
	}
	return st
}

func hold(all []protocol.Holder, h protocol.Holder) []protocol.Holder {
	for i := range all {
		if all[i].Value == h.Value {
			all[i].Until = earliest(all[i].Until, h.Until)
			return all
		}
	}
	return append(all, h)
}

// A key without a TTL comes first, so that a waiter sees it and repairs it.
var rank = map[protocol.Status]int{
	protocol.StatusFree: 0, protocol.StatusDead: 1, protocol.StatusHeld: 2, protocol.StatusForeign: 3, protocol.StatusPersistent: 4,
}

// later reports whether the end a is later than b. A zero time means no end, and is latest.
func later(a, b time.Time) bool {
	return !b.IsZero() && (a.IsZero() || a.After(b))
}

// earliest returns the earlier of two ends. A zero time means no end.
func earliest(a, b time.Time) time.Time {
	if later(a, b) {
		return b
	}
	return a
}
