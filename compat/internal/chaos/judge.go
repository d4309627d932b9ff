//go:build linux

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/setnxlock/setnxlock/compat/internal/history"
)

// A verdict is what came of a run.
type verdict struct {
	Sections int
	Lost     int // told by their contexts
	Crashed  int
	Counts   map[string]int
	Apart    map[string]int // of each kind, what a server's own loss explains
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
	row := fmt.Sprintf(columns, strings.TrimSpace(r.Lock+" "+r.Variant), r.Kind, r.Version, v.Sections, v.Lost, v.Crashed, faults, len(v.Broken), v.Checked, worst(v.Waits))
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

// judge reads the histories. What servers may have forgotten explains some of what it finds: that is counted apart.
// left are the keys that nothing ends; brought says that the server may have brought them back.
func (v *verdict) judge(r run, clients []*process, losses []loss, left []string, brought bool) error {
	form, _ := formOf(r.Lock)
	j := history.Judge{Fenced: r.Kind != five && form != inTurn, Margin: 500 * time.Millisecond}
	var events []history.Event
	calls := map[string][]wait{}
	for i, p := range clients {
		lines, err := read(p.diary)
		if err != nil {
			return err
		}
		said := false
		for _, e := range lines {
			switch e.Op {
			case waited:
				calls[e.Key] = append(calls[e.Key], wait{i, e.Asked, e.At})
			case wrong:
				v.broken("client %d: %s", i, e.Text)
			case bye:
				said = true
			default:
				events = append(events, e)
			}
		}
		if !said {
			v.broken("client %d did not end well", i)
		}
		for _, c := range p.crashes {
			events = append(events, history.Event{Op: history.Crashed, By: fmt.Sprint(i), At: c.from, Until: c.to})
		}
	}
	touching := func(key string) []span {
		if form == inTurn { // a set is lost with one of its keys
			return lossesOf(losses, r.keys()...)
		}
		return lossesOf(losses, key)
	}
	byKey := map[string][]*history.Hold{}
	for _, e := range events {
		byKey[e.Key] = nil
	}
	delete(byKey, "")
	for key := range byKey {
		for _, l := range touching(key) {
			events = append(events, history.Event{Op: history.Forgot, Key: key, At: l.from, Until: l.to})
		}
	}
	for _, key := range left {
		if len(losses) > 0 || brought {
			events = append(events, history.Event{Op: history.Forgot, Kind: history.Leak, Key: key, Until: now()})
		}
		events = append(events, history.Event{Op: history.Left, Key: key, At: now(), Text: "it has no TTL"})
	}
	for _, f := range j.Judged(events) {
		if f.Apart {
			v.apart(string(f.Kind))
		} else {
			v.broken("%v", f)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		all := j.Holds(key)
		for _, h := range all {
			switch {
			case h.Gone == history.Never:
				v.Crashed++
			case h.How == byContext:
				v.Lost++
			}
		}
		byKey[key] = all
		v.Sections += len(all)
		v.Waits = append(v.Waits, v.starved(r, key, calls[key], all, clients))
	}
	v.check(r, byKey, touching)
	return nil
}

// between reports whether a loss may part what was asked for at from and what was had at to.
func between(losses []span, from, to int64) bool {
	return slices.ContainsFunc(losses, func(l span) bool { return from <= l.to && to >= l.from })
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
			fenced := i.fence > s.fence || i.fence == 0 // a history.Judge looks for those without one
			ok := s.by == "" && fenced && (i.shared || s.readers == "")
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
func (v *verdict) check(r run, byKey map[string][]*history.Hold, touching func(key string) []span) {
	const window = 400
	v.Checked = "linearizable"
	for key, all := range byKey {
		for from, pieces := 0, pieces(all, touching(key), window); from < len(pieces); from++ {
			var ops []porcupine.Operation
			for _, h := range pieces[from] {
				client, _ := strconv.Atoi(h.By)
				end := max(h.Over(), h.Got+1)
				gone := max(min(h.Gone, end+int64(time.Minute)), end+1)
				ops = append(ops,
					porcupine.Operation{ClientId: client, Input: input{true, h.ID, h.Fence, h.Shared}, Call: h.Asked, Return: h.Got},
					porcupine.Operation{ClientId: client + 1000, Input: input{false, h.ID, 0, h.Shared}, Call: end, Return: gone})
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
func pieces(all []*history.Hold, losses []span, most int) (pieces [][]*history.Hold) {
	var piece []*history.Hold
	for i, h := range all {
		last := max(h.Gone, h.Until)
		if h.Gone == history.Never {
			last = h.Until
		}
		touched := between(losses, h.Asked, last)
		if !touched {
			piece = append(piece, h)
		}
		if len(piece) > 0 && (i == len(all)-1 || touched || len(piece) == most || between(losses, h.Got, all[i+1].Asked)) {
			pieces, piece = append(pieces, piece), nil
		}
	}
	return pieces
}
