package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Judge takes the events of a history in their order.
type Judge struct {
	Fenced              bool          // each hold has a fence
	Margin              time.Duration // a loss may be reported this long before the end of the lease: the client must stop in time
	Grace               time.Duration // a context may outlive its lease this long
	ExcusesAcknowledged bool          // a server's loss excuses verdicts about locks that were acknowledged before it, not only requested
	Found               func(Verdict)

	keys  map[string]*key
	holds map[string]*Hold
	dead  map[string]int64 // the latest moment at which each process may have died
}

// A key has the holds and the observed values of one key.
type key struct {
	holds   []*Hold // in the order of Got
	open    []*Hold // the holds that have not ended
	forgot  []Event
	there   bool
	owner   string
	changes []string // the process behind each removal, "" for a value of another owner; empty: nobody observes the key
}

func (j *Judge) key(name string) *key {
	if j.keys == nil {
		j.keys, j.holds, j.dead = map[string]*key{}, map[string]*Hold{}, map[string]int64{}
	}
	if j.keys[name] == nil {
		j.keys[name] = new(key)
	}
	return j.keys[name]
}

// Holds returns the holds of a key, in the order of their beginnings.
func (j *Judge) Holds(key string) []*Hold { return j.key(key).holds }

// Add takes the next event. An event of a hold that never began is ignored.
func (j *Judge) Add(e Event) {
	k := j.key(e.Key)
	switch e.Op {
	case Got:
		j.got(k, e)
	case Crashed:
		j.dead[e.By] = e.Until
		for _, k := range j.keys {
			for _, h := range slices.Clone(k.open) {
				if h.By == e.By {
					j.end(h, e.At)
				}
			}
		}
	case Changed:
		if !e.There {
			k.changes = append(k.changes, e.By)
		} else if e.By != k.owner {
			k.changes = append(k.changes, "")
		}
		k.there, k.owner = e.There, e.Owner
		for _, h := range slices.Clone(k.open) {
			j.owned(k, h, e.At)
		}
	case Forgot:
		k.forgot = append(k.forgot, e)
	case Left:
		j.found(Leak, &Hold{Key: e.Key}, math.MinInt64, e.At, "%s", e.Text)
	default:
		if h := j.holds[e.ID]; h != nil {
			j.on(h, e)
		}
	}
}

// on takes an event of a hold.
func (j *Judge) on(h *Hold, e Event) {
	k := j.keys[h.Key]
	switch e.Op {
	case Holds, Again:
		if j.Fenced && e.Fence < h.fence {
			j.found(Fencing, h, h.Asked, e.At, "%s holds it with fence %d, and held it with %d", h.ID, e.Fence, h.fence)
		}
		h.fence = e.Fence
		if j.believes(k, h, e); e.Op == Again && h.End != Never {
			h.End = Never
			j.alone(h, k.open)
			j.owned(k, h, e.At)
			k.open = append(k.open, h)
		}
	case Works:
		if late := time.Duration(e.At - h.Until); late > j.Grace && h.End == Never && !h.judged {
			j.found(Outlived, h, h.Asked, e.At, "the context of %s goes on, %v after its lease", h.ID, late)
			h.judged = true
		}
	case Ends:
		h.How = e.Text
		j.end(h, e.At)
		j.believes(k, h, e)
	case Released:
		h.Gone = e.At
	case Lost:
		h.lost = e
		switch since := k.changes[h.since:]; {
		case len(k.changes) == 0: // Finish judges unobserved keys
		case len(since) == 0:
			j.falseLoss(h, "nobody has touched the key")
		case since[0] == h.By && !e.Other: // another server may never have had the key
			j.falseLoss(h, "its own process removed the key")
		}
	case Kept:
		if h.lost.At != 0 && (e.Until == 0 || e.Until-e.At > int64(j.Margin)) {
			j.found(UntoldLoss, h, h.Asked, e.At, "%s has lost it: %s", h.ID, e.Text)
		}
	}
}

// got begins a hold.
func (j *Judge) got(k *key, e Event) {
	h := &Hold{ID: e.ID, Key: e.Key, By: e.By, Asked: e.Asked, Got: e.At, Until: e.Until, End: Never, Gone: Never,
		Fence: e.Fence, Shared: e.Shared, Unplaced: e.Unplaced, Most: e.Most, Slot: e.Slot, from: j.holds[e.From], fence: e.Fence, since: len(k.changes),
		acks: []ack{{e.At, e.Until}}}
	if h.Until < h.Got {
		h.Got = max(h.Asked, h.Until)
	}
	i := len(k.holds)
	for i > 0 && k.holds[i-1].Got > h.Got {
		i--
	}
	k.holds = slices.Insert(k.holds, i, h)
	if j.holds[h.ID] = h; e.At <= j.dead[h.By] {
		h.End = h.Got
	} else {
		j.alone(h, k.open)
		k.open = append(k.open, h)
	}
	if j.Fenced {
		j.fences(k, i)
	}
	if k.there && h.Got < h.Over() {
		k.owner = h.By // a lock that changes hands keeps its value
	}
	j.owned(k, h, e.At)
}

// believes extends h: the client has believed in the lock until e.At, and goes on until e.Until.
func (j *Judge) believes(k *key, h *Hold, e Event) {
	was := h.Until
	if h.Until = e.Until; h.Until > was {
		h.acks = append(h.acks, ack{e.At, h.Until})
		i, _ := slices.BinarySearchFunc(k.holds, was, func(o *Hold, at int64) int { return cmp.Compare(o.Got, at) })
		j.alone(h, k.holds[i:]) // the earlier holds were compared with h when they began
	}
	j.owned(k, h, e.At)
}

// end ends the belief of h's client.
func (j *Judge) end(h *Hold, at int64) {
	h.End = min(h.End, max(at, h.Got))
	k := j.keys[h.Key]
	k.open = slices.DeleteFunc(k.open, func(o *Hold) bool { return o == h })
}

// alone finds the overlaps of h with others.
func (j *Judge) alone(h *Hold, others []*Hold) {
	for _, o := range others {
		a, b := h, o
		if b.Got < a.Got {
			a, b = b, a
		}
		left := time.Duration(a.Over() - b.Got)
		if a != b && !(a.Shared && b.Shared) && !a.judged && !b.judged && left > 0 && b.Got < b.Over() {
			since := min(a.Asked, b.Asked)
			if j.ExcusesAcknowledged {
				since = a.acknowledged(b.Got)
			}
			if most := min(a.Most, b.Most); most > 0 && a.Slot != b.Slot {
				if n := j.keys[h.Key].heldAt(b.Got); n > most {
					j.found(Exclusion, b, since, b.Got, "%s got it beside %s: then %d have it, and %d may", b.ID, a.ID, n, most)
				}
				continue
			}
			j.found(Exclusion, b, since, b.Got,
				"%s got it beside %s, whose lease lasts another %v", b.ID, a.ID, left)
		}
	}
}

// heldAt counts the holds of the key at a moment.
func (k *key) heldAt(at int64) (n int) {
	for _, o := range k.holds {
		if !o.judged && o.Got <= at && at < o.Over() {
			n++
		}
	}
	return n
}

// fences compares the fence of the i-th hold with its neighbours'. The fence must be higher than the last exclusive
// hold's, and a writer's fence also higher than those of the readers since. Later holds are compared in the same way,
// because the i-th may have been told late. No other writer may come between a writer and the reader that it became.
// Each slot of a semaphore counts its own fences.
func (j *Judge) fences(k *key, i int) {
	h := k.holds[i]
	if h.Fence == 0 {
		j.found(Fencing, h, Never, h.Got, "%s has no fence", h.ID) // a forgetful server is no excuse
		return
	}
	falls := func(o, h *Hold) bool {
		falls := !(o.Shared && h.Shared || o.Unplaced || h.Unplaced) && o.Slot == h.Slot && h.Fence <= o.Fence
		if falls {
			since := min(o.Asked, h.Asked)
			if j.ExcusesAcknowledged {
				since = o.Got
			}
			j.found(Fencing, h, since, h.Got, "%s has fence %d, after %s's %d", h.ID, h.Fence, o.ID, o.Fence)
		}
		return falls
	}
	for n := i - 1; n >= 0; n-- {
		if o := k.holds[n]; falls(o, h) || o.Slot == h.Slot && !o.Shared && !o.Unplaced {
			break
		}
	}
	for _, o := range k.holds[i+1:] {
		if falls(h, o); o.Slot == h.Slot && !o.Shared && !o.Unplaced {
			break
		}
	}
	for _, o := range k.holds {
		if w := h.from; w != nil && !o.Shared && w.fence < o.Fence && o.Fence < h.Fence {
			j.found(Fencing, h, w.Asked, h.Got, "%s wrote, with fence %d, between %s, with %d, and the reader that it became",
				o.ID, o.Fence, w.ID, w.fence)
		}
	}
}

// owned compares the key with h: the key must exist and belong to h's process while h's client believes in it.
func (j *Judge) owned(k *key, h *Hold, at int64) {
	if len(k.changes) == 0 || h.judged || at >= h.Over() || k.there && k.owner == h.By {
		return
	}
	kind, what := Ownership, cmp.Or(k.owner, "nobody")+" has changed it"
	if !k.there {
		if remover := k.changes[len(k.changes)-1]; remover != "" && remover != h.By {
			what = remover + " has removed it"
		} else {
			kind, what = UntoldLoss, "it is gone"
		}
	}
	j.found(kind, h, h.Asked, at, "%s believes in it for another %v, and %s", h.ID, time.Duration(h.Over()-at), what)
	h.judged = true
}

// falseLoss finds a reported loss more than j.Margin before the end of the lease.
func (j *Judge) falseLoss(h *Hold, why string) {
	if early := time.Duration(h.lost.Until - h.lost.At); early > j.Margin {
		j.found(FalseLoss, h, h.Asked, h.lost.At,
			"%s was told that it had lost it, %v before its time (%s), and %s", h.ID, early, h.lost.Text, why)
	}
}

// Finish finds the false losses on unobserved keys. A loss is true if the next holder of the key, or of the
// slot, requested it before the loss was reported. A loss is also true if a fence is missing between the two holders:
// another client held the key in between, and never learnt of it.
func (j *Judge) Finish() {
	for _, k := range j.keys {
		for i, h := range k.holds {
			taken := func(o *Hold) bool { return o.Asked < h.lost.At || j.Fenced && o.Fence > h.Fence+1 }
			if len(k.changes) != 0 || h.lost.At == 0 {
				continue
			}
			next := slices.IndexFunc(k.holds[i+1:], func(o *Hold) bool { return o.Slot == h.Slot })
			if next < 0 || !taken(k.holds[i+1+next]) {
				j.falseLoss(h, "nobody took it")
			}
		}
	}
}

// found reports a violation by h at a moment. A key forgotten since the moment since may excuse it.
func (j *Judge) found(kind Kind, h *Hold, since, at int64, format string, args ...any) {
	j.Found(Verdict{kind, h.Key, h.ID, at, fmt.Sprintf(format, args...), j.Excuses(kind, h.Key, since, at)})
}

// Excuses reports whether a loss of the key between two moments may explain a verdict.
func (j *Judge) Excuses(kind Kind, key string, since, at int64) bool {
	return slices.ContainsFunc(j.key(key).forgot, func(f Event) bool {
		return since <= f.Until && f.At <= at && (f.Kind == "" || f.Kind == kind)
	})
}
