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
	Fenced bool          // each hold has a fence
	Margin time.Duration // how long before its end a lease may be said to be lost: its client has to stop in time
	Grace  time.Duration // how long a context may outlive its lease
	Prompt bool          // servers that forgot explain what was acknowledged before they had, not what was asked for
	Found  func(Verdict)

	keys  map[string]*key
	holds map[string]*Hold
	dead  map[string]int64 // until when each process may have died
}

// A key is what is known of one.
type key struct {
	holds   []*Hold // in the order of Got
	open    []*Hold // those that have not ended
	forgot  []Event
	there   bool
	owner   string
	changes []string // each time that it was gone, or came from another process: who removed it; none: nobody observes
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

// Holds returns the holds of a key, in the order in which they began.
func (j *Judge) Holds(key string) []*Hold { return j.key(key).holds }

// Add takes the next event. What is said of a hold that never began is ignored.
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
		case len(k.changes) == 0: // see Finish
		case len(since) == 0:
			j.falseLoss(h, "nobody has touched the key")
		case since[0] == h.By && !e.Other: // another server may never have had it
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
		told: []ack{{e.At, e.Until}}}
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

// believes learns that h's client has believed in it until e.At, and goes on until e.Until.
func (j *Judge) believes(k *key, h *Hold, e Event) {
	was := h.Until
	if h.Until = e.Until; h.Until > was {
		h.told = append(h.told, ack{e.At, h.Until})
		i, _ := slices.BinarySearchFunc(k.holds, was, func(o *Hold, at int64) int { return cmp.Compare(o.Got, at) })
		j.alone(h, k.holds[i:]) // the others were looked at when they began
	}
	j.owned(k, h, e.At)
}

// end notes that h's client has stopped to believe.
func (j *Judge) end(h *Hold, at int64) {
	h.End = min(h.End, max(at, h.Got))
	k := j.keys[h.Key]
	k.open = slices.DeleteFunc(k.open, func(o *Hold) bool { return o == h })
}

// alone checks that none of others is held beside h.
func (j *Judge) alone(h *Hold, others []*Hold) {
	for _, o := range others {
		a, b := h, o
		if b.Got < a.Got {
			a, b = b, a
		}
		left := time.Duration(a.Over() - b.Got)
		if a != b && !(a.Shared && b.Shared) && !a.judged && !b.judged && left > 0 && b.Got < b.Over() {
			since := min(a.Asked, b.Asked)
			if j.Prompt {
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

// heldAt is how many have the key at a moment.
func (k *key) heldAt(at int64) (n int) {
	for _, o := range k.holds {
		if !o.judged && o.Got <= at && at < o.Over() {
			n++
		}
	}
	return n
}

// fences checks that the i-th hold's fence is higher than that of the last who had the key alone, and a writer's higher
// than those of the readers since; that the same is true of those behind it, if it was told late; and that no writer
// came in while another became this reader. Each slot of a semaphore has fences of its own.
func (j *Judge) fences(k *key, i int) {
	h := k.holds[i]
	if h.Fence == 0 {
		j.found(Fencing, h, Never, h.Got, "%s has no fence", h.ID) // no server forgets to give one
		return
	}
	falls := func(o, h *Hold) bool {
		falls := !(o.Shared && h.Shared || o.Unplaced || h.Unplaced) && o.Slot == h.Slot && h.Fence <= o.Fence
		if falls {
			since := min(o.Asked, h.Asked)
			if j.Prompt {
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

// owned checks that what h's client believes in is there, and its process's.
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

// falseLoss is found if h's client was told of the loss long before its end.
func (j *Judge) falseLoss(h *Hold, why string) {
	if early := time.Duration(h.lost.Until - h.lost.At); early > j.Margin {
		j.found(FalseLoss, h, h.Asked, h.lost.At,
			"%s was told that it had lost it, %v before its time (%s), and %s", h.ID, early, h.lost.Text, why)
	}
}

// Finish looks for false losses on keys that nobody observed. Who had a key, or its slot, next shows that it was taken, and so does a
// gap between the two fences: another had it in between, and never learnt it.
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

// found tells of what is wrong with a key at a moment.
func (j *Judge) found(kind Kind, h *Hold, since, at int64, format string, args ...any) {
	j.Found(Verdict{kind, h.Key, h.ID, at, fmt.Sprintf(format, args...), j.Apart(kind, h.Key, since, at)})
}

// Apart reports whether servers that forgot a key between two moments may explain a verdict.
func (j *Judge) Apart(kind Kind, key string, since, at int64) bool {
	return slices.ContainsFunc(j.key(key).forgot, func(f Event) bool {
		return since <= f.Until && f.At <= at && (f.Kind == "" || f.Kind == kind)
	})
}
