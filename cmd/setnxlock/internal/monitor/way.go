package monitor

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// A Way leads from the log into the explorer: a schedule of locks with the clients' steps. After each step of
// the log the key and the holder are the same there. A lock that is written out can't extend: its client
// releases it at that moment, and takes it again.
type Way struct {
	Locks    string `json:"locks"`    // one for each client, with plus signs between them
	Schedule string `json:"schedule"` // to the state after step Step
	Step     int    `json:"step"`     // of the log
	Words    []int  `json:"words"`    // how many words of the schedule lead to each step
}

const (
	mostClients = 4  // of the explorer
	mostSteps   = 60 // of a log that is followed
	mostMoves   = 6  // of a client within a step of the log: a lock may look at its clock, or at the key
)

// way follows the log with the possible locks of its clients, up to its break or its end.
func (r *run) way(t race.Trace, follows []Follows) *Way {
	until := len(t.Events)
	if t.Verdict.Step > 0 {
		until = t.Verdict.Step
	}
	var best *Way
	for _, locks := range r.candidates(follows) {
		w := r.follow(t, locks, min(until, mostSteps))
		if w != nil && (best == nil || w.Step > best.Step) {
			best = w
		}
		if best != nil && best.Step == until {
			break
		}
	}
	return best
}

// candidates lists the locks to follow the log with: one lock of all clients with all the habits seen; else
// each client's own, written out. A client that is only refused may run any.
func (r *run) candidates(follows []Follows) []string {
	var all [][]string
	for _, name := range likeAll(follows) {
		all = append(all, slices.Repeat([]string{name}, len(follows)))
	}
	var own []string
	for _, f := range follows {
		own = append(own, r.written(f.Does))
	}
	for i, name := range own {
		if name == "" { // its release was not seen, or is beyond a form
			own[i] = own[max(slices.IndexFunc(own, func(s string) bool { return s != "" }), 0)]
		}
	}
	all = append(all, own)
	var list []string
	for _, names := range all {
		names = names[:min(len(names), mostClients)]
		if !slices.Contains(names, "") && len(names) > 0 {
			list = append(list, strings.Join(names, "+"))
		}
	}
	return list
}

// likeAll lists the locks with all the habits of all clients.
func likeAll(follows []Follows) []string {
	var list []string
	for _, f := range follows {
		for _, name := range f.Like {
			if !slices.Contains(list, name) && !slices.ContainsFunc(follows, func(f Follows) bool { return len(f.Does) > 0 && !slices.Contains(f.Like, name) }) {
				list = append(list, name)
			}
		}
	}
	return list
}

// Redisson's lock and unlock, without messages.
const (
	hashTake = "if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then " +
		"redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return nil end return redis.call('PTTL', KEYS[1])"
	hashFree = "if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return nil end " +
		"if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end redis.call('DEL', KEYS[1]) return 1"
)

// takes and frees write out each habit by its name alone.
var (
	takes = map[string]string{
		"takes it with SET NX and a TTL": "SET KEY TOKEN NX PX TTLMS\nOK = mine",
		"takes it with SET NX":           "SET KEY TOKEN NX\nOK = mine",
		"sets it without a condition":    "SET KEY TOKEN PX TTLMS\nOK = mine",
	}
	frees = map[string]string{
		"releases it with DEL, without looking": "DEL KEY",
		"releases it with GET, then DEL":        "GET KEY\nown = next\nelse = lost\nDEL KEY",
		"releases it with WATCH and EXEC": "WATCH KEY\nGET KEY\nown = next\nelse = lost\n" +
			"MULTI\nDEL KEY\nEXEC\nnil = lost",
		"releases it in a script":  "COMPARE-AND-DELETE KEY TOKEN\n0 = lost",
		"releases it with DELIFEQ": "DELEX KEY IFEQ TOKEN\n0 = lost",
		"releases it with DELEX":   "DELEX KEY IFEQ TOKEN\n0 = lost",
	}
)

// written writes out a client's habits as a lock; "": that can't be done.
func (r *run) written(does []string) string {
	var take, free string
	for _, d := range does {
		take, free = cmp.Or(takes[d], take), cmp.Or(frees[d], free)
		switch d {
		case "takes it with SETNX":
			take = r.setnx(does)
		case "takes it with HINCRBY, in a script":
			take := "EVAL \"" + hashTake + "\" 1 KEY TOKEN TTLMS\nnil = mine"
			return catalogue.FormName(take + "\nrelease\nEVAL \"" + hashFree + "\" 1 KEY TOKEN\nnil = lost")
		}
	}
	switch {
	case take == "" && free == "":
		return ""
	case take == "": // a client that only removes it
		take = "SET KEY TOKEN NX PX TTLMS\nOK = mine"
	case free == "":
		free = "DEL KEY"
	}
	return catalogue.FormName(take + "\nrelease\n" + free)
}

// setnx writes out an acquisition that begins with SETNX.
func (r *run) setnx(does []string) string {
	take := "SETNX KEY TOKEN\n1 = mine"
	if slices.Contains(does, "sets its TTL with a second command") {
		take = "SETNX KEY TOKEN\n0 = held\nEXPIRE KEY TTL\n1 = mine"
	}
	if r.stamps {
		take = "SETNX KEY TIME\n1 = mine"
	}
	if slices.Contains(does, "takes it over with GETSET") {
		take += "\nGET KEY\nlater = held\nnil = held\nGETSET KEY TIME\npast = mine\nnil = mine\nelse = held"
	}
	return take
}

// follow finds the schedule of locks with the steps of the log, as far as there is one.
func (r *run) follow(t race.Trace, names string, until int) *Way {
	ttl := time.Duration(t.TTL+5) / 10 * 10 * time.Millisecond
	locks, err := catalogue.With(catalogue.Locks(), names)
	if err != nil || ttl <= 0 || ttl > time.Hour {
		return nil
	}
	c := race.Config{Algorithm: names, Locks: locks, Server: t.Server, Clients: strings.Count(names, "+") + 1, Attempts: 9, TTL: ttl, Key: t.Key}
	var choices []race.Choice
	w := &Way{Locks: names}
	now := int64(0)
	for _, e := range t.Events[:until] {
		who, err := strconv.Atoi(strings.TrimPrefix(e.Who, "C"))
		if err != nil || who > c.Clients {
			break
		}
		next := slices.Clone(choices)
		if e.At > now {
			next = append(next, race.Choice{Verb: race.Pass, By: time.Duration(e.At-now) * time.Millisecond})
		}
		made, ok := r.move(c, next, who-1, e)
		if !ok && len(e.Changed) == 0 && e.Violation == nil { // a look that this lock has no need of
			w.Words = append(w.Words, len(choices))
			continue
		}
		if !ok {
			break
		}
		choices, now, w.Step = made, e.At, e.N
		w.Words = append(w.Words, len(choices))
	}
	if w.Step == 0 {
		return nil
	}
	w.Words = w.Words[:w.Step]
	w.Schedule = race.Schedule(c, choices)
	return w
}

// move lets a client go on until the state equals a step's of the log.
func (r *run) move(c race.Config, choices []race.Choice, who int, e race.Event) ([]race.Choice, bool) {
	for range mostMoves {
		choices = append(choices, race.Choice{Client: who})
		t, err := race.Replay(c, choices)
		if err != nil || len(t.Events) == 0 {
			return nil, false
		}
		if same(t.Events[len(t.Events)-1], e) {
			return choices, true
		}
	}
	return nil, false
}

// same compares the states after a step of the explorer and a step of the log.
func same(is, log race.Event) bool {
	if is.Who != log.Who || !strings.EqualFold(command(is.Cmd), command(log.Cmd)) && len(log.Changed) == 0 {
		return false
	}
	a, b := is.Server, log.Server
	if (a.Value == "") != (b.Value == "") || a.Writer != b.Writer || (a.TTL < 0) != (b.TTL < 0) || math.Abs(float64(a.TTL-b.TTL)) > 1000 {
		return false
	}
	if log.Violation != nil && log.Violation.Invariant == "exclusion" && (is.Violation == nil || is.Violation.Invariant != "exclusion") {
		return false
	}
	return (is.Belief[is.Who].State == race.Holds) == (log.Belief[log.Who].State == race.Holds)
}

// command returns a command's name.
func command(cmd string) string { name, _, _ := strings.Cut(cmd, " "); return name }
