package simulate

import (
	"fmt"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/race"
)

// shownEvents is how many events before the first broken promise a trace shows: what is older
// seldom has to do with it.
const shownEvents = 80

// event writes down a step for Report.Trace. j.mu is held.
func (j *judge) event(who, cmd, reply, note string) {
	if !j.w.Trace || len(j.r.Broken) > 1 {
		return
	}
	e := race.Event{At: time.Since(j.w.start).Milliseconds(), Who: who, Cmd: cmd, Reply: reply, Note: note, Belief: j.beliefs(), Server: j.truth()}
	if j.events = append(j.events, e); len(j.events) > shownEvents && len(j.r.Broken) == 0 {
		j.events = j.events[1:]
	}
}

// beliefs are what each process believes of the first key.
func (j *judge) beliefs() map[string]race.Belief {
	all := make(map[string]race.Belief, len(j.w.all))
	for _, p := range j.w.all {
		b := race.Belief{State: race.Idle, Until: -1, Now: p.clock.Now().Sub(j.w.start).Milliseconds()}
		for h := range j.held {
			if h.c.p == p && h.key == j.shown && h.believes() {
				b.State, b.Until, b.Fence = race.Holds, h.lock.Until().Sub(j.w.start).Milliseconds(), h.lock.Fence()
			}
		}
		if p.isDead() {
			b.State = race.Dead
		}
		all[p.name()] = b
	}
	return all
}

func (p *process) name() string { return fmt.Sprintf("P%d", p.id) }

// truth is what the first server has of the first key.
func (j *judge) truth() race.Server {
	if !j.w.Kind.Owned {
		return race.Server{TTL: -1}
	}
	k := j.keys[j.shown]
	s := race.Server{Value: k.value, Raw: k.value, TTL: -1, Writer: k.by}
	if ttl, err := redis.Int64(j.ask(0, "TTL", j.w.onServer(j.shown))); err == nil && ttl >= 0 {
		s.TTL = ttl * 1000
	}
	return s
}

// said is a message and its replies, for an event.
func said(cmds []compat.Cmd, replies []any) (cmd, reply string) {
	return words(cmds), strings.TrimSuffix(fmt.Sprintln(show(replies)...), "\n")
}

// trace is the end of the run, up to the first broken promise, in the form that `setnxlock race
// replay` shows.
func (j *judge) trace() race.Trace {
	t := race.Trace{
		Format: race.TraceFormat, Title: fmt.Sprintf("the end of a simulated run: make simulate SEED=%d", j.w.Seed), Algorithm: j.w.Kind.Name, Server: strings.Join(j.w.At, "+"),
		Key: j.shown, TTL: longest.Milliseconds(), Start: race.Server{TTL: -1}, Events: j.events,
	}
	for _, p := range j.w.all {
		t.Clients = append(t.Clients, race.Client{Name: p.name(), Skew: p.clock.Ahead().Milliseconds()})
	}
	for i := range t.Events {
		t.Events[i].N = i + 1
	}
	if n := len(t.Events); n > 0 && len(j.r.Broken) > 0 {
		what := j.r.Broken[0][strings.Index(j.r.Broken[0], ": ")+2:]
		name, _, _ := strings.Cut(what, ":")
		t.Events[n-1].Violation = &race.Violation{Invariant: name, Text: what}
		t.Verdict = race.Verdict{Violated: name, Step: n}
		t.Argument = race.Argument{So: what}
	}
	return t
}
