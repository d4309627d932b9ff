// Package live replays a schedule on a live server, step by step, and tells it as a Trace. It is the simple one of
// the two engines, and what package search finds is compared with it.
package live

import (
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/embedded"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A World is the simple engine: a live server, and every client a coroutine
// that is resumed when it is its turn. It replays schedules and is the
// oracle of the search.
type World struct {
	c        *plan.Setup
	Judge    *judge.Judge
	Server   *oldredis.Server
	probe    *embedded.Probe
	Now      int64
	observer *oldredis.Conn // sees whether the key is touched
	Players  []*player
	ghost    judge.Ghost
	values   map[string]uint32
	Before   oldredis.Snapshot // the server's content before the last write
	writers  map[string]uint8  // who wrote what stands on the key, by server: 1 + the client, or somebody
	wrote    map[string]uint8  // the same before the last write
	late     *delayedWrite     // a write that was given up and is on its way
	Crashes  bool              // a client that is not at rest may as well be dead: ask for progress everywhere
}

// NewWorld starts a server and the clients. Close must be called.
func NewWorld(c *plan.Setup) (*World, error) {
	s, err := oldredis.New(c.Server, oldredis.Options{Start: plan.Epoch})
	if err != nil {
		return nil, err
	}
	w := &World{c: c, Judge: judge.New(c), Server: s, values: map[string]uint32{"": 0},
		observer: s.Dial().(*oldredis.Conn)}
	if err := embedded.Given(c, s); err != nil {
		s.Close()
		return nil, err
	}
	if w.key().Present {
		w.ghost.Writer = judge.Somebody
	}
	w.ghost.PrevWriter = w.ghost.Writer
	w.writers = map[string]uint8{}
	w.writes(nil, judge.Somebody)
	w.wrote = maps.Clone(w.writers)
	w.Before = s.Snapshot()
	for i := range c.Clients {
		p := &player{Agent: client.Agent{Setup: c, ID: i}}
		p.next, p.stop = iter.Pull(p.play)
		w.Players = append(w.Players, p)
		p.Pending, _ = p.next()
	}
	w.Judge.Tidy(&w.ghost, w.States())
	return w, nil
}

// Close ends the server and the clients.
func (w *World) Close() {
	for _, p := range w.Players {
		p.stop()
	}
	w.Server.Close()
	if w.probe != nil {
		w.probe.Close()
	}
}

// States returns the clients' states.
func (w *World) States() *judge.States {
	var st judge.States
	for i, p := range w.Players {
		st[i] = &p.State
	}
	return &st
}

// key reads the lock's key.
func (w *World) key() judge.KeyState {
	for _, e := range w.Server.Snapshot().Entries(w.Server) {
		if e.DB == 0 && e.Key == w.c.Stands() {
			k := judge.KeyState{Present: true, Alive: !e.Unreaped,
				Value: w.value(e.Type + e.Value + strings.Join(e.Elements, "\x00"))}
			if !e.Expires.IsZero() {
				k.Dies = plan.Millis(e.Expires)
			}
			return k
		}
	}
	return judge.KeyState{}
}

// onKeys reads the lock's key on each server.
func (w *World) onKeys() map[string]string {
	on := map[string]string{}
	for _, e := range w.Server.Snapshot().Entries(w.Server) {
		if n := plan.ServerOf(e.Key); e.DB == 0 && (e.Key == w.c.Stands() || n > 0 && e.Key == plan.KeyOn(w.c.Key, n)) {
			on[e.Key] = e.Type + e.Value + strings.Join(e.Elements, "\x00")
		}
	}
	return on
}

// writes records the writer of each changed key. The invariants know less of it: a ghost forgets who
// can't act on it any more.
func (w *World) writes(was map[string]string, by uint8) {
	is := w.onKeys()
	maps.DeleteFunc(w.writers, func(key string, _ uint8) bool { _, ok := is[key]; return !ok })
	for key, v := range is {
		if old, ok := was[key]; !ok || old != v {
			w.writers[key] = by
		}
	}
}

func (w *World) value(v string) uint32 {
	n, ok := w.values[v]
	if !ok {
		n = uint32(len(w.values))
		w.values[v] = n
	}
	return n
}

// byClient reports whether a choice is a client's own.
func byClient(c plan.Choice) bool { return c.Verb < plan.Pass }

// A Outcome is what one choice did, for the narrator.
type Outcome struct {
	choice  plan.Choice
	read    bool // the client read its clock
	write   bool // it wrote to the storage,
	taken   bool // which accepted it
	Cmds    [][]string
	replies []any
	lost    string       // as in Event
	phase   client.Phase // in which the client was when it sent
	results []client.Result
	Breach  judge.Breach
}

// Disabled is why a choice can't be made.
type Disabled struct{ why string }

func (e Disabled) Error() string { return "race: not enabled: " + e.why }

func disabled(format string, args ...any) error { return Disabled{fmt.Sprintf(format, args...)} }

// Apply makes one choice. Run is for the caller to repeat.
func (w *World) Apply(c plan.Choice) (*Outcome, error) {
	d := &Outcome{choice: c}
	var err error
	if byClient(c) {
		if c.Client >= len(w.Players) {
			return nil, disabled("there is no C%d", c.Client+1)
		}
		err = w.act(d, c)
	} else {
		err = w.serve(d, c)
	}
	if err != nil {
		return nil, err
	}
	st := w.States()
	w.Judge.Tidy(&w.ghost, st)
	d.broke(w.Judge.State(st, w.Now))
	if d.Breach.How == judge.None && w.Judge.Progress && (w.Crashes || w.atRest()) && !w.free() {
		d.broke(judge.Breach{How: judge.Stuck})
	}
	return d, nil
}

// broke notes the first breach of a step.
func (d *Outcome) broke(b judge.Breach) {
	if d.Breach.How == judge.None {
		d.Breach = b
	}
}

// atRest reports whether all clients are idle or dead.
func (w *World) atRest() bool {
	for _, p := range w.Players {
		if !p.dead && p.Phase != client.Idle && p.Phase != client.Finished {
			return false
		}
	}
	return true
}

func (w *World) free() bool {
	if w.probe == nil {
		w.probe = embedded.NewProbe(w.c)
	}
	return w.probe.Free(w.Server.Snapshot())
}

// serve makes a choice of the server's or of time.
func (w *World) serve(d *Outcome, c plan.Choice) error {
	if several := w.c.Servers() > 0; several != (c.Server > 0) && (c.Verb == plan.Evict || c.Verb == plan.Restart || c.Verb == plan.Failover || c.Verb == plan.Down) {
		return disabled("of one server it is said of redis, of several of S1, S2 and so on")
	}
	if c.Server > w.c.Servers() {
		return disabled("there are %d servers", w.c.Servers())
	}
	was := w.onKeys()
	switch c.Verb {
	case plan.Pass, plan.PassUnreaped:
		if c.Verb == plan.Pass {
			w.Server.Advance(c.By)
		} else {
			w.Server.AdvanceLazy(c.By)
		}
		w.Now += c.By.Milliseconds()
		for i := range w.Players {
			w.ghost.Mark[i].Bits &^= judge.Stall
		}
	case plan.Reap:
		w.Server.Reap()
	case plan.Jump:
		if c.Server > 0 {
			embedded.SetForward(w.Server, c.Server, c.By)
			break
		}
		w.jump(c.By)
	case plan.Evict:
		if !w.Server.Evict(plan.KeyOn(w.c.Stands(), c.Server)) {
			return disabled("there is no key to evict")
		}
	case plan.Down:
		if embedded.Down(w.Server.Snapshot().Entries(w.Server))&(1<<c.Server) != 0 {
			return disabled("%s is gone already", plan.Nth(c.Server))
		}
		embedded.TakeDown(w.Server, c.Server)
	case plan.Restart:
		if c.Server > 0 {
			embedded.Forget(w.Server, c.Server)
			break
		}
		w.restart()
		w.Server.Restart(oldredis.Empty)
	case plan.Failover:
		w.restart()
		w.Server.Restore(w.Before.At(w.Server.Now()))
		embedded.TakesOver(w.c, w.Server)
		w.ghost.Writer = w.ghost.PrevWriter
		w.writers = maps.Clone(w.wrote)
		was = w.onKeys()
	}
	w.writes(was, judge.Nobody)
	w.Judge.Server(&w.ghost, w.key())
	return nil
}

// restart cuts the connections in use.
func (w *World) restart() {
	for _, p := range w.Players {
		if p.conn != nil {
			p.conn, p.cut = nil, true
		}
	}
	w.late, w.ghost.Late = nil, judge.Nobody
}
