//go:build linux

package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A verdict is what came of a run.
type verdict struct {
	Sections int
	Ended    map[string]int // how: "released", "lost", "crashed"
	Counts   map[string]int
	Apart    map[string]int // what a server's own loss explains
	Waits    []waits        // of each key
	Checked  string         // what porcupine says
	Broken   []string
}

func (v *verdict) broken(format string, args ...any) {
	v.Broken = append(v.Broken, fmt.Sprintf(format, args...))
}

func (v *verdict) apart(what string) {
	if v.Apart == nil {
		v.Apart = map[string]int{}
	}
	v.Apart[what]++
}

const columns = "%-26s %-10s %-7s %8v %6v %8v %7v %7v  %-13s  %s\n"

// heading stands above the rows.
var heading = fmt.Sprintf(columns, "lock", "servers", "version", "sections", "lost", "crashed", "faults", "broken", "porcupine", "the worst of the keys: worst wait (fair share; turns of others meanwhile, of its own process; turns that stay in a process)")

func (v verdict) row(r run) string {
	faults := 0
	for _, n := range v.Counts {
		faults += n
	}
	row := fmt.Sprintf(columns, strings.TrimSpace(r.Lock+" "+r.Variant), r.Kind, r.Version, v.Sections, v.Ended["lost"], v.Ended["crashed"], faults, len(v.Broken), v.Checked, worst(v.Waits))
	if n := v.Counts["failover"] + v.Counts["server killed, unsaved"]; n > 0 {
		row += fmt.Sprintf("    apart: %d failovers or kills that may forget; what they explain:%s\n", n, listed(v.Apart))
	}
	return row
}

// listed are counts in the order of their names.
func listed(n map[string]int) string {
	text := ""
	for _, what := range slices.Sorted(maps.Keys(n)) {
		text += fmt.Sprintf(" %s %d,", what, n[what])
	}
	if text == "" {
		return " nothing"
	}
	return strings.TrimSuffix(text, ",")
}

// A hold is what one client believed: that it had the key from got to end.
type hold struct {
	id, key    string
	client     int
	asked, got int64
	until, end int64
	gone       int64 // when its release had returned; the server may let it go at any time after end
	fence      int64
	shared     bool   // a reader's
	from       string // the writer that it was until then
	how        string
	err        string
}

// judge reads the histories. What was answered before a loss and asked for after it may differ:
// that is counted apart.
func (v *verdict) judge(r run, clients []*process, losses []loss) error {
	holds := map[string]*hold{}
	waited := map[string][]wait{}
	v.Ended = map[string]int{}
	for i, p := range clients {
		lines, err := read(p.diary)
		if err != nil {
			return err
		}
		said := false
		for _, l := range lines {
			switch l.Op {
			case "got":
				holds[l.ID] = &hold{id: l.ID, key: l.Key, client: i, asked: l.Asked, got: l.At, until: l.Until, end: math.MaxInt64, gone: math.MaxInt64, fence: l.Fence, shared: l.Shared, from: l.From}
			case "until":
				if h := holds[l.ID]; h != nil {
					h.until = l.Until
				}
			case "end":
				if h := holds[l.ID]; h != nil {
					h.until = l.Until
					h.end, h.gone, h.how, h.err = min(l.Asked, h.until), l.At, l.How, l.Err
				}
			case "wait":
				waited[l.Key] = append(waited[l.Key], wait{i, l.Asked, l.At})
			case "wrong":
				v.broken("client %d: %s", i, l.Err)
			case "bye":
				said = true
			}
		}
		if !said {
			v.broken("client %d did not end well", i)
		}
	}
	byKey := map[string][]*hold{}
	for _, h := range holds {
		if h.end == math.MaxInt64 { // killed
			h.how, h.end = "crashed", h.until
			for _, c := range clients[h.client].crashes {
				if c.to >= h.got {
					h.end = min(h.end, max(h.got, c.from))
				}
			}
		}
		if h.how == "" {
			h.how = "released"
		}
		if h.until < h.got { // it stood still while it was told: if it had the lock at all, then before that
			h.got = max(h.asked, h.until)
		}
		v.Ended[h.how]++
		byKey[h.key] = append(byKey[h.key], h)
	}
	v.Sections = len(holds)
	touching := func(key string) []span {
		if form, _ := formOf(r.Lock); form == inTurn { // a set is lost with one of its keys
			return lossesOf(losses, r.keys()...)
		}
		return lossesOf(losses, key)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		all := byKey[key]
		slices.SortFunc(all, func(a, b *hold) int { return cmp.Compare(a.got, b.got) })
		v.overlaps(r, key, all, touching(key))
		v.downgraded(key, all, touching(key))
		v.Waits = append(v.Waits, v.starved(r, key, waited[key], all, clients))
	}
	v.check(r, byKey, touching)
	return nil
}

// between reports whether a loss may part what was asked for at from and what was had at to.
func between(losses []span, from, to int64) bool {
	return slices.ContainsFunc(losses, func(l span) bool { return from <= l.to && to >= l.from })
}

// overlaps looks for two who believed at once, for fences that fall, and for locks that were lost
// although nobody took them.
func (v *verdict) overlaps(r run, key string, all []*hold, losses []span) {
	found := func(from, to int64, what, format string, args ...any) {
		if between(losses, from, to) {
			v.apart(what)
			return
		}
		v.broken(format, args...)
	}
	form, _ := formOf(r.Lock)
	fenced := r.Kind != five && form != inTurn
	var wrote *hold // who had it alone last
	for i, h := range all {
		if fenced && h.fence == 0 {
			v.broken("%s: %s has no fence", key, h.id)
		}
		before := wrote // readers come in beside each other, and a fence falls behind who had it alone
		if !h.shared {
			if wrote = h; i > 0 {
				before = all[i-1]
			}
		}
		for _, o := range all[max(0, i-50):i] {
			if h.got < o.end && h.got < h.end && !(h.shared && o.shared) {
				found(min(o.asked, h.asked), h.got, "overlaps", "%s: %s got it %v before the end of %s (%s)", key, h.id, time.Duration(o.end-h.got), o.id, o.how)
			}
		}
		if o := before; fenced && o != nil && h.fence <= o.fence {
			found(min(o.asked, h.asked), h.got, "fences that fell", "%s: %s has fence %d, after %s's %d", key, h.id, h.fence, o.id, o.fence)
		}
	}
	for i, h := range all {
		if early := time.Duration(h.until - h.gone); strings.Contains(h.err, "lease lost") && early > 500*time.Millisecond && h.how != "lost" {
			taken := i+1 < len(all) && (all[i+1].asked < h.gone ||
				fenced && all[i+1].fence > h.fence+1) // by one that never learnt it: a fence between the two was drawn
			what := "leases lost"
			if strings.Contains(h.err, "on the server that answers now") {
				what = "releases unanswered before a change of servers" // it says no more than it saw
			}
			if !taken {
				found(h.asked, h.gone, what, "%s: %s was told that it had lost it, %v before its time: %s", key, h.id, early, h.err)
			}
		}
	}
}

// downgraded looks for writers that came in while another became a reader: their fences tell.
func (v *verdict) downgraded(key string, all []*hold, losses []span) {
	byID := map[string]*hold{}
	for _, h := range all {
		byID[h.id] = h
	}
	for _, h := range all {
		w := byID[h.from]
		if w == nil || between(losses, w.asked, h.got) {
			continue
		}
		for _, o := range all {
			if !o.shared && w.fence < o.fence && o.fence < h.fence {
				v.broken("%s: %s wrote, with fence %d, between %s, with %d, and the reader that it became, with %d", key, o.id, o.fence, w.id, w.fence, h.fence)
			}
		}
	}
}

// An input of the model: a client gets the lock, or has given it up.
type input struct {
	get    bool
	id     string
	fence  int64
	shared bool
}

// A held is the model's state: who has it alone, or the readers, and the last fence.
type held struct {
	by      string
	readers string
	fence   int64
}

// reading is the state with one more reader, or without one; ok is false if that was none.
func (s held) reading(id string, reads bool) (_ held, ok bool) {
	list := strings.Fields(s.readers)
	i := slices.Index(list, id)
	if reads {
		list = append(list, id)
		slices.Sort(list)
	} else if ok = i >= 0; ok {
		list = slices.Delete(list, i, i+1)
	}
	s.readers = strings.Join(list, " ")
	return s, ok || reads
}

// model is a lease lock: it goes to one client at a time, or to readers together, with growing fences, and is free when
// they have stopped to believe in it.
var model = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, in, _ any) (bool, any) {
		s, i := state.(held), in.(input)
		if i.get {
			ok := s.by == "" && (i.fence > s.fence || i.fence == 0) && (i.shared || s.readers == "") // overlaps has seen to it that there is one where there must be
			if s.fence = i.fence; i.shared {
				s, _ = s.reading(i.id, true)
			} else {
				s.by = i.id
			}
			return ok, s
		}
		if i.shared {
			s, ok := s.reading(i.id, false)
			return ok, s
		}
		ok := s.by == i.id
		s.by = ""
		return ok, s
	},
	DescribeOperation: func(in, _ any) string {
		if i := in.(input); i.get {
			return fmt.Sprintf("%s gets it, fence %d", i.id, i.fence)
		} else {
			return i.id + " has stopped"
		}
	},
	DescribeState: func(state any) string {
		if s := state.(held); s.by+s.readers != "" {
			return s.by + s.readers
		}
		return "free"
	},
}

// check has porcupine look for an order in which each client had the lock alone: it got it between
// its call and the return, and had stopped by its end. Windows of a few hundred sections each
// are looked at by themselves, and so is what lies between two losses, without those who had it
// during one.
func (v *verdict) check(r run, byKey map[string][]*hold, touching func(key string) []span) {
	const window = 400
	v.Checked = "linearizable"
	for key, all := range byKey {
		for from, pieces := 0, pieces(all, touching(key), window); from < len(pieces); from++ {
			var ops []porcupine.Operation
			for _, h := range pieces[from] {
				end := max(h.end, h.got+1)
				ops = append(ops,
					porcupine.Operation{ClientId: h.client, Input: input{true, h.id, h.fence, h.shared}, Call: h.asked, Return: h.got},
					porcupine.Operation{ClientId: h.client + 1000, Input: input{false, h.id, 0, h.shared}, Call: end, Return: max(min(h.gone, end+int64(time.Minute)), end+1)})
			}
			result, info := porcupine.CheckOperationsVerbose(model, ops, time.Minute)
			if result == porcupine.Ok {
				continue
			}
			if result == porcupine.Unknown {
				v.Checked = "not decided"
				continue
			}
			v.Checked = "NOT LINEARIZABLE"
			file := filepath.Join(r.Dir, fmt.Sprintf("%s-%d.html", key, from))
			if f, err := os.Create(file); err == nil {
				porcupine.Visualize(model, info, f) //nolint:errcheck // the verdict stands
				f.Close()
			}
			v.broken("%s: porcupine finds no order in which each had it alone: %s", key, file)
			return
		}
	}
}

// pieces are the holds between losses, no more than so many together. The holds that a loss may have
// touched are in none.
func pieces(all []*hold, losses []span, most int) (pieces [][]*hold) {
	var piece []*hold
	for i, h := range all {
		touched := between(losses, h.asked, max(h.gone, h.until))
		if h.gone == math.MaxInt64 {
			touched = between(losses, h.asked, h.until)
		}
		if !touched {
			piece = append(piece, h)
		}
		if len(piece) > 0 && (i == len(all)-1 || touched || len(piece) == most || between(losses, h.got, all[i+1].asked)) {
			pieces, piece = append(pieces, piece), nil
		}
	}
	return pieces
}
