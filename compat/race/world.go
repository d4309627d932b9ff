package race

import (
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A world is the simple engine: a live server, and every client a coroutine
// that is resumed when it is its turn. It replays schedules and is the
// oracle of the search.
type world struct {
	c        *setup
	judge    *judge
	s        *oldredis.Server
	probe    *probe
	now      int64
	onlooker *oldredis.Conn // sees whether the key is touched
	players  []*player
	ghost    ghost
	values   map[string]uint32
	before   oldredis.Snapshot // the server's content before the last write
	writers  map[string]uint8  // who wrote what stands on the key, by server: 1 + the client, or somebody
	wrote    map[string]uint8  // the same before the last write
	late     *flown            // a write that was given up and is on its way
	crashes  bool              // a client that is not at rest may as well be dead: ask for progress everywhere
}

// newWorld starts a server and the clients. close must be called.
func newWorld(c *setup) (*world, error) {
	s, err := oldredis.New(c.Server, oldredis.Options{Start: epoch})
	if err != nil {
		return nil, err
	}
	w := &world{c: c, judge: newJudge(c), s: s, values: map[string]uint32{"": 0}, onlooker: s.Dial().(*oldredis.Conn)}
	if err := given(c, s); err != nil {
		s.Close()
		return nil, err
	}
	if w.key().present {
		w.ghost.writer = somebody
	}
	w.ghost.prevWriter = w.ghost.writer
	w.writers = map[string]uint8{}
	w.writes(nil, somebody)
	w.wrote = maps.Clone(w.writers)
	w.before = s.Snapshot()
	for i := range c.Clients {
		p := &player{agent: agent{c: c, id: i}}
		p.next, p.stop = iter.Pull(p.play)
		w.players = append(w.players, p)
		p.pending, _ = p.next()
	}
	w.judge.tidy(&w.ghost, w.stances())
	return w, nil
}

func (w *world) close() {
	for _, p := range w.players {
		p.stop()
	}
	w.s.Close()
	if w.probe != nil {
		w.probe.close()
	}
}

func (w *world) stances() *stances {
	var st stances
	for i, p := range w.players {
		st[i] = &p.stance
	}
	return &st
}

// key reads what is under the key.
func (w *world) key() keyState {
	for _, e := range w.s.Snapshot().Entries(w.s) {
		if e.DB == 0 && e.Key == w.c.Key {
			k := keyState{present: true, alive: !e.Unreaped, value: w.value(e.Type + e.Value + strings.Join(e.Elements, "\x00"))}
			if !e.Expires.IsZero() {
				k.dies = millis(e.Expires)
			}
			return k
		}
	}
	return keyState{}
}

// onKeys is what stands on the key, by server.
func (w *world) onKeys() map[string]string {
	on := map[string]string{}
	for _, e := range w.s.Snapshot().Entries(w.s) {
		if n := serverOf(e.Key); e.DB == 0 && (e.Key == w.c.Key || n > 0 && e.Key == keyOn(w.c.Key, n)) {
			on[e.Key] = e.Type + e.Value + strings.Join(e.Elements, "\x00")
		}
	}
	return on
}

// writes notes that what was on the key has been changed by somebody. The invariants know less of
// it: a ghost forgets who can't act on it any more.
func (w *world) writes(was map[string]string, by uint8) {
	is := w.onKeys()
	maps.DeleteFunc(w.writers, func(key string, _ uint8) bool { _, ok := is[key]; return !ok })
	for key, v := range is {
		if old, ok := was[key]; !ok || old != v {
			w.writers[key] = by
		}
	}
}

func (w *world) value(v string) uint32 {
	n, ok := w.values[v]
	if !ok {
		n = uint32(len(w.values))
		w.values[v] = n
	}
	return n
}

// A deed is what one choice did, for the narrator.
type deed struct {
	choice  Choice
	read    bool // the client read its clock
	write   bool // it wrote to the storage,
	taken   bool // which accepted it
	cmds    [][]string
	replies []any
	lost    string // as in Event
	phase   phase  // in which the client was when it sent
	results []result
	breach  breach
}

// errDisabled is why a choice can't be made.
type errDisabled struct{ why string }

func (e errDisabled) Error() string { return "race: not enabled: " + e.why }

func disabled(format string, args ...any) error { return errDisabled{fmt.Sprintf(format, args...)} }

// apply makes one choice. Run is for the caller to repeat.
func (w *world) apply(c Choice) (*deed, error) {
	d := &deed{choice: c}
	var err error
	if c.clients() {
		if c.Client >= len(w.players) {
			return nil, disabled("there is no C%d", c.Client+1)
		}
		err = w.act(d, c)
	} else {
		err = w.serve(d, c)
	}
	if err != nil {
		return nil, err
	}
	st := w.stances()
	w.judge.tidy(&w.ghost, st)
	d.broke(w.judge.state(st, w.now))
	if d.breach.how == none && w.judge.progress && (w.crashes || w.atRest()) && !w.free() {
		d.broke(breach{how: stuck})
	}
	return d, nil
}

// fault notes the first breach of a step.
func (d *deed) broke(b breach) {
	if d.breach.how == none {
		d.breach = b
	}
}

// atRest reports whether all clients are idle or dead.
func (w *world) atRest() bool {
	for _, p := range w.players {
		if !p.dead && p.phase != idle && p.phase != finished {
			return false
		}
	}
	return true
}

func (w *world) free() bool {
	if w.probe == nil {
		w.probe = newProbe(w.c)
	}
	return w.probe.free(w.s.Snapshot())
}

// serve is a choice of the server's or of time.
func (w *world) serve(d *deed, c Choice) error {
	if several := w.c.servers() > 0; several != (c.Server > 0) && (c.Verb == Evict || c.Verb == Restart || c.Verb == Failover || c.Verb == Down) {
		return disabled("of one server it is said of redis, of several of S1, S2, S3")
	}
	was := w.onKeys()
	switch c.Verb {
	case Pass, PassUnreaped:
		if c.Verb == Pass {
			w.s.Advance(c.By)
		} else {
			w.s.AdvanceLazy(c.By)
		}
		w.now += c.By.Milliseconds()
		for i := range w.players {
			w.ghost.mark[i].bits &^= stall
		}
	case Reap:
		w.s.Reap()
	case Jump:
		w.jump(c.By)
	case Evict:
		if !w.s.Evict(keyOn(w.c.Key, c.Server)) {
			return disabled("there is no key to evict")
		}
	case Down:
		if down(w.s.Snapshot().Entries(w.s))&(1<<c.Server) != 0 {
			return disabled("%s is gone already", nth(c.Server))
		}
		takeDown(w.s, c.Server)
	case Restart:
		if c.Server > 0 {
			forget(w.s, c.Server)
			break
		}
		w.restart()
		w.s.Restart(oldredis.Empty)
	case Failover:
		w.restart()
		w.s.Restore(w.before.At(w.s.Now()))
		w.s.Restart(oldredis.Keeping)
		w.ghost.writer = w.ghost.prevWriter
		w.writers = maps.Clone(w.wrote)
		was = w.onKeys()
	}
	w.writes(was, nobody)
	w.judge.server(&w.ghost, w.key())
	return nil
}

// restart cuts the connections that are in use.
func (w *world) restart() {
	for _, p := range w.players {
		if p.conn != nil {
			p.conn, p.cut = nil, true
		}
	}
	w.late, w.ghost.late = nil, nobody
}
