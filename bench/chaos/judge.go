package main

import (
	"cmp"
	"fmt"
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
	Worst    time.Duration // the longest wait
	Fair     time.Duration // what it would have been, had all been served in turn
	Checked  string        // what porcupine says
	Broken   []string
}

func (v *verdict) broken(format string, args ...any) {
	v.Broken = append(v.Broken, fmt.Sprintf(format, args...))
}

const heading = "lock\tserver\tsections\tlost\tcrashed\tfaults\toverlaps and other faults of ours\tporcupine\tworst wait\tfair share"

func (v verdict) row(r run) string {
	faults := 0
	for _, n := range v.Counts {
		faults += n
	}
	return fmt.Sprintf("%s %s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%v\t%v", r.Lock, r.Variant, r.Version, v.Sections, v.Ended["lost"], v.Ended["crashed"], faults,
		len(v.Broken), v.Checked, v.Worst.Round(time.Millisecond), v.Fair.Round(time.Millisecond))
}

// A crash is a client that was killed.
type crash struct {
	client int
	at     int64
}

// A hold is what one client believed: that it had the key from got to end.
type hold struct {
	id, key    string
	client     int
	asked, got int64
	until, end int64
	gone       int64 // when its release had returned; the server may let it go at any time after end
	fence      int64
	how        string
	err        string
}

// judge reads the histories.
func (v *verdict) judge(r run, diaries []string, crashes []crash) error {
	holds := map[string]*hold{}
	var waits []time.Duration
	v.Ended = map[string]int{}
	for i, file := range diaries {
		lines, err := read(file)
		if err != nil {
			return err
		}
		said := false
		for _, l := range lines {
			switch l.Op {
			case "got":
				holds[l.ID] = &hold{id: l.ID, key: l.Key, client: i, asked: l.Asked, got: l.At, until: l.Until, end: math.MaxInt64, gone: math.MaxInt64, fence: l.Fence}
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
				waits = append(waits, time.Duration(l.At-l.Asked))
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
			for _, c := range crashes {
				if c.client == h.client && c.at >= h.got {
					h.end = min(h.end, c.at)
				}
			}
		}
		if h.how == "" {
			h.how = "released"
		}
		v.Ended[h.how]++
		byKey[h.key] = append(byKey[h.key], h)
	}
	v.Sections = len(holds)
	var work time.Duration
	for key, all := range byKey {
		slices.SortFunc(all, func(a, b *hold) int { return cmp.Compare(a.got, b.got) })
		v.overlaps(key, all)
		for _, h := range all {
			work += time.Duration(h.end - h.got)
		}
	}
	if len(waits) > 0 {
		v.Worst = slices.Max(waits)
		v.Fair = time.Duration(float64(r.For) / float64(max(v.Sections, 1)) * float64(r.Clients*r.Goroutines))
	}
	v.check(r, byKey)
	return nil
}

// overlaps looks for two who believed at once, for fences that fall, and for locks that were lost
// although nobody took them.
func (v *verdict) overlaps(key string, all []*hold) {
	for i, h := range all {
		if i == 0 {
			continue
		}
		for _, o := range all[max(0, i-50):i] {
			if h.got < o.end && h.got < h.end {
				v.broken("%s: %s got it %v before the end of %s (%s)", key, h.id, time.Duration(o.end-h.got), o.id, o.how)
			}
		}
		if o := all[i-1]; h.fence <= o.fence {
			v.broken("%s: %s has fence %d, after %s's %d", key, h.id, h.fence, o.id, o.fence)
		}
	}
	for i, h := range all {
		if strings.Contains(h.err, "lease lost") && time.Duration(h.until-h.end) > 500*time.Millisecond && h.how != "lost" {
			taken := i+1 < len(all) && all[i+1].asked < h.gone
			if !taken {
				v.broken("%s: %s was told that it had lost it, %v before its time: %s", key, h.id, time.Duration(h.until-h.end), h.err)
			}
		}
	}
}

// An input of the model: a client gets the lock, or has given it up.
type input struct {
	get   bool
	id    string
	fence int64
}

// A held is the model's state: who has it, and the last fence.
type held struct {
	by    string
	fence int64
}

// model is a lease lock: it goes to one client at a time, with growing fences, and is free when
// that client has stopped to believe in it.
var model = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, in, _ any) (bool, any) {
		s, i := state.(held), in.(input)
		if i.get {
			return s.by == "" && i.fence > s.fence, held{i.id, i.fence}
		}
		return s.by == i.id, held{"", s.fence}
	},
	DescribeOperation: func(in, _ any) string {
		if i := in.(input); i.get {
			return fmt.Sprintf("%s gets it, fence %d", i.id, i.fence)
		} else {
			return i.id + " has stopped"
		}
	},
	DescribeState: func(state any) string {
		if s := state.(held); s.by != "" {
			return s.by
		}
		return "free"
	},
}

// check has porcupine look for an order in which each client had the lock alone: it got it between
// its call and the return, and had stopped by its end. Windows of a few hundred sections each
// begin where nobody has it.
func (v *verdict) check(r run, byKey map[string][]*hold) {
	const window = 400
	v.Checked = "linearizable"
	for key, all := range byKey {
		for from := 0; from < len(all); from += window {
			var ops []porcupine.Operation
			for _, h := range all[from:min(from+window, len(all))] {
				end := max(h.end, h.got+1)
				ops = append(ops,
					porcupine.Operation{ClientId: h.client, Input: input{true, h.id, h.fence}, Call: h.asked, Return: h.got},
					porcupine.Operation{ClientId: h.client + 1000, Input: input{false, h.id, 0}, Call: end, Return: max(min(h.gone, end+int64(time.Minute)), end+1)})
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
