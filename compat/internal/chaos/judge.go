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

// A verdict is the result of a run.
type verdict struct {
	Sections int
	Lost     int // sections that their contexts ended
	Crashed  int
	Counts   map[string]int
	Excused  map[string]int // the number of excused violations of each kind
	Worst    waits          // of the key with the longest wait
	Checked  string         // what porcupine says
	Broken   []string
}

func (v *verdict) broken(format string, args ...any) {
	v.Broken = append(v.Broken, fmt.Sprintf(format, args...))
}

const columns = "%-26s %-10s %-7s %8v %6v %8v %7v %7v  %-13s  %s\n"

var heading = fmt.Sprintf(columns, "lock", "servers", "version", "sections", "lost", "crashed", "faults", "broken", "porcupine", "worst wait for a key (fair share; turns of others meanwhile, of its own process; turns that stay in a process)")

func (v verdict) row(r run) string {
	faults := 0
	for _, n := range v.Counts {
		faults += n
	}
	row := fmt.Sprintf(columns, r.Lock, r.Kind, r.Version, v.Sections, v.Lost, v.Crashed, faults, len(v.Broken), v.Checked, v.Worst)
	if n := v.Counts["failover"] + v.Counts["server killed, unsaved"]; n > 0 {
		row += fmt.Sprintf("    excused by %d failovers or kills that may forget:%s\n", n, listed(v.Excused))
	}
	return row
}

// listed formats counts in the order of their names.
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

// judge reads the diaries and judges them. A violation that a server's own loss may explain is counted as excused.
// left are the keys without a TTL; with brought, a restart of the server may have brought them back.
func (v *verdict) judge(r run, clients []*process, losses []history.Event, left []string, brought bool) error {
	form, _ := formOf(r.Lock)
	j := history.Judge{Fenced: r.Kind != five && form != inTurn, Margin: 500 * time.Millisecond, ExcusesAcknowledged: followed(r.Kind)}
	v.Excused = map[string]int{}
	events, calls, err := v.read(clients)
	if err != nil {
		return err
	}
	keys := map[string]bool{}
	for _, e := range events {
		if e.Op == history.Got {
			keys[e.Key] = true
		}
	}
	events = append(events, losses...)
	for _, key := range left {
		if len(losses) > 0 || brought {
			events = append(events, history.Event{Op: history.Forgot, Kind: history.Leak, Key: key, Until: now()})
		}
		events = append(events, history.Event{Op: history.Left, Key: key, At: now(), Text: "it has no TTL"})
	}
	for _, f := range j.Judged(events) {
		if f.Excused {
			v.Excused[string(f.Kind)]++
		} else {
			v.broken("%v", f)
		}
	}
	locks := map[string][]*history.Hold{} // each slot of a semaphore is a lock of its own
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		all := j.Holds(key)
		for _, h := range all {
			name := key
			if h.Slot > 0 {
				name = fmt.Sprintf("%s-%d", key, h.Slot)
			}
			locks[name] = append(locks[name], h)
			switch {
			case h.Gone == history.Never:
				v.Crashed++
			case h.How == byContext:
				v.Lost++
			}
		}
		v.Sections += len(all)
		if form == slotted { // chance decides which waiter gets a slot
			calls[key] = nil
		}
		if w := v.starved(r, key, calls[key], all, clients); w.worst >= v.Worst.worst {
			v.Worst = w
		}
	}
	v.check(r, locks, &j)
	return nil
}

// read returns the events of all diaries, and the calls of Lock by key.
func (v *verdict) read(clients []*process) (events []history.Event, calls map[string][]wait, err error) {
	calls = map[string][]wait{}
	for i, p := range clients {
		lines, err := read(p.diary)
		if err != nil {
			return nil, nil, err
		}
		ended := false
		for _, e := range lines {
			switch e.Op {
			case waited:
				calls[e.Key] = append(calls[e.Key], wait{i, e.Asked, e.At})
			case wrong:
				v.broken("client %d: %s", i, e.Text)
			case bye:
				ended = true
			default:
				events = append(events, e)
			}
		}
		if !ended {
			v.broken("client %d did not end well", i)
		}
		for _, c := range p.crashes {
			events = append(events, history.Event{Op: history.Crashed, By: fmt.Sprint(i), At: c.from, Until: c.to})
		}
	}
	return events, calls, nil
}

// An input of the model is the beginning of a hold, or its end.
type input struct {
	get bool
	*history.Hold
}

// A held is the model's state.
type held struct {
	alone   bool
	readers int
	fence   int64 // the newest
}

// model describes a lease lock. One client at a time holds the lock, or several readers do, with growing fences. The
// lock is free when no client believes in it. The end of a hold comes after its beginning, so the model need not know
// the holder.
var model = porcupine.Model{
	Init: func() any { return held{} },
	Step: func(state, in, _ any) (bool, any) {
		s, i := state.(held), in.(input)
		ok := true
		if i.get {
			fenced := i.Fence > s.fence || i.Fence == 0 // history.Judge finds missing fences
			ok = !s.alone && fenced && (i.Shared || s.readers == 0)
			s.fence = i.Fence
		}
		switch {
		case !i.Shared:
			s.alone = i.get
		case i.get:
			s.readers++
		default:
			s.readers--
		}
		return ok, s
	},
	DescribeOperation: func(in, _ any) string {
		if i := in.(input); i.get {
			return fmt.Sprintf("%s gets it, fence %d", i.ID, i.Fence)
		} else {
			return i.ID + " has stopped"
		}
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

// check asks porcupine for an order in which each client held the lock alone. A hold begins between the
// call and its return, and ends between the end of the belief and the return of the release. porcupine
// judges windows of a few hundred sections, without the holds that a loss may have touched.
func (v *verdict) check(r run, locks map[string][]*history.Hold, j *history.Judge) {
	const window = 400
	v.Checked = "linearizable"
	for key, all := range locks {
		for from, pieces := 0, pieces(all, j, window); from < len(pieces); from++ {
			var ops []porcupine.Operation
			for _, h := range pieces[from] {
				client, _ := strconv.Atoi(h.By)
				end := max(h.Over(), h.Got+1)
				gone := max(min(h.Gone, end+int64(time.Minute)), end+1)
				ops = append(ops,
					porcupine.Operation{ClientId: client, Input: input{true, h}, Call: h.Asked, Return: h.Got},
					porcupine.Operation{ClientId: client + 1000, Input: input{false, h}, Call: end, Return: gone})
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

// pieces splits the holds at losses, into at most most holds each. No piece contains a hold that a loss
// may have touched.
func pieces(all []*history.Hold, j *history.Judge, most int) (pieces [][]*history.Hold) {
	var piece []*history.Hold
	for i, h := range all {
		last := max(h.Gone, h.Until)
		if h.Gone == history.Never {
			last = h.Until
		}
		since := h.Asked
		if j.ExcusesAcknowledged {
			since = h.Got
		}
		touched := j.Excuses("", h.Key, since, last)
		if !touched {
			piece = append(piece, h)
		}
		if len(piece) > 0 && (i == len(all)-1 || touched || len(piece) == most || j.Excuses("", h.Key, h.Got, all[i+1].Asked)) {
			pieces, piece = append(pieces, piece), nil
		}
	}
	return pieces
}
