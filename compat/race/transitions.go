package race

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A content is what the server holds, apart from the time.
type content struct {
	snap   oldredis.Snapshot
	key    keyState // alive is for the asker to find out: see transitions.key
	ends   int32    // first ms at which the key is dead; never if it has no TTL
	deaths []int32  // first ms at which each key is dead, in order
	busy   bool     // there is more than fences
	down   uint8    // which servers of several are gone, by their numbers
	keys   uint8    // and which have the key
	stamp  int64    // the time that the value says, in ms; 0: none
	scores []int64  // and the scores of sorted sets
}

const never int32 = 1<<31 - 1

// An executed is what the real server did with one request.
type executed struct {
	content uint32
	reply   uint32 // inputLost if it closed the connection instead
	conn    uint16
	touched bool // a WATCH of the key would have noticed
}

// transitions remembers what the server did. It is asked each thing once.
type transitions struct {
	c        *Config
	s        *oldredis.Server
	actor    *oldredis.Conn
	watcher  *oldredis.Conn
	contents []content
	byKey    map[string]uint32
	values   map[string]uint32
	conns    []oldredis.ConnState
	connKeys map[string]uint16
	execs    []executed
	done     table // content, request, now, conn → exec
	acts     table // content, now, verb, until → content
	seen     table // exec or act, conn → what becomes of a watcher's connection
	leases   map[string]uint32
	stood    table // content, lease → whether its value stands
	replies  *replies
	past     *reader // nil: nothing is known from before
	ran      int
	frozen   frozen

	logs bool
	log  []asked // every question, in order, if logs
}

func newTransitions(c *Config, r *replies, a *archive) (*transitions, error) {
	s, err := oldredis.New(c.Server, oldredis.Options{Start: epoch})
	if err != nil {
		return nil, err
	}
	t := &transitions{c: c, s: s, replies: r, byKey: map[string]uint32{}, values: map[string]uint32{"": 0}, connKeys: map[string]uint16{}, leases: map[string]uint32{}}
	t.actor, t.watcher = s.Dial().(*oldredis.Conn), s.Dial().(*oldredis.Conn)
	t.conns = make([]oldredis.ConnState, newConn+1)
	t.connKeys[oldredis.ConnState{}.Key()] = newConn
	t.past = newReader(t, a.shelf(c))
	if err := given(c, s); err != nil {
		s.Close()
		return nil, err
	}
	t.number(s.Snapshot())
	return t, nil
}

func (t *transitions) close() { t.s.Close() }

// number returns the number of a content.
func (t *transitions) number(snap oldredis.Snapshot) uint32 {
	k := snap.ContentKey()
	n, ok := t.byKey[k]
	if !ok {
		n = uint32(len(t.contents))
		t.byKey[k] = n
		t.contents = append(t.contents, t.describe(snap))
		t.past.met(n, k, snap)
	}
	return n
}

func (t *transitions) describe(snap oldredis.Snapshot) content {
	entries := snap.Entries(t.s)
	ct := content{snap: snap, ends: never, busy: t.c.busy(entries), down: down(entries)}
	for _, e := range entries {
		end := never
		if !e.Expires.IsZero() {
			end = t.death(snap, e)
			ct.deaths = append(ct.deaths, end)
		}
		if e.Type == "zset" {
			for i := 1; i < len(e.Elements); i += 2 {
				if ms := stampOfScore(e.Elements[i]); ms != 0 {
					ct.scores = append(ct.scores, ms)
				}
			}
		}
		if t.c.servers() > 0 && strings.HasSuffix(e.Key, ":"+t.c.Key) {
			ct.keys |= 1 << serverOf(e.Key)
		}
		if e.DB != 0 || e.Key != t.c.Key {
			continue
		}
		text := e.Type + e.Value + strings.Join(e.Elements, "\x00")
		v, ok := t.values[text]
		if !ok {
			v = uint32(len(t.values))
			t.values[text] = v
		}
		ct.key, ct.ends, ct.stamp = keyState{present: true, value: v}, end, stampOf(e.Value)
		if !e.Expires.IsZero() {
			ct.key.dies = millis(e.Expires)
		}
	}
	slices.Sort(ct.deaths)
	return ct
}

// death is the first moment at which the server takes the key for dead.
func (t *transitions) death(snap oldredis.Snapshot, e oldredis.Entry) int32 {
	after := millis(e.Expires) + 1
	for _, other := range snap.At(instant(after)).Entries(t.s) {
		if other.DB == e.DB && other.Key == e.Key && !other.Unreaped {
			after = (millis(e.Expires)/1000 + 1) * 1000 // whole seconds
		}
	}
	return int32(after)
}

// key is the state of the key at a moment.
func (t *transitions) key(n uint32, now int32) keyState {
	c := &t.contents[n]
	k := c.key
	k.alive = k.present && now < c.ends
	return k
}

func (t *transitions) connNumber(st oldredis.ConnState) uint16 {
	k := st.Key()
	n, ok := t.connKeys[k]
	if !ok {
		if len(t.conns) > 60000 {
			panic("race: too many states of connections")
		}
		n = uint16(len(t.conns))
		t.conns = append(t.conns, st)
		t.connKeys[k] = n
	}
	return n
}

// do returns what the server does with a request, and the number under which
// it is remembered. It refuses one of its commands, counted from 1; 0: none.
func (t *transitions) do(n uint32, now int32, req uint32, r *request, conn uint16, refused int) (uint32, *executed) {
	a, b := uint64(n)<<32|uint64(req), uint64(refused)<<48|uint64(uint32(now))<<16|uint64(conn)
	id, ok := t.done.get(a, b)
	if !ok {
		t.frozen.check()
		id = uint32(len(t.execs))
		t.done.put(a, b, id)
		x := t.run(n, now, r, conn, refused)
		t.execs = append(t.execs, x)
		t.note(asked{what: askRun, content: n, now: now, r: r, conn: conn, refused: refused, ran: x})
	}
	return id, &t.execs[id]
}

func (t *transitions) run(n uint32, now int32, r *request, conn uint16, refused int) executed {
	t.ran++
	if t.past != nil {
		return t.past.run(n, now, r, conn, refused)
	}
	return t.execute(n, now, r, conn, refused)
}

// execute asks the server.
func (t *transitions) execute(n uint32, now int32, r *request, conn uint16, refused int) executed {
	t.s.Restore(t.contents[n].snap.At(instant(int64(now))))
	t.actor.SetState(t.conns[conn])
	t.watcher.SetState(oldredis.ConnState{Watched: []oldredis.WatchedKey{{Key: t.c.Key}}})
	replies, err := runRefusing(t.s, t.actor, r.cmds, refused)
	x := executed{touched: t.watcher.Dirty()}
	t.watcher.SetState(oldredis.ConnState{})
	if err == nil {
		x.reply, x.conn = t.replies.number(replies), t.connNumber(t.actor.State())
	}
	t.actor.SetState(oldredis.ConnState{})
	x.content = t.number(t.s.Snapshot())
	return x
}

// watched returns what becomes of a connection that watches while another
// client's request runs.
func (t *transitions) watched(id uint32, n uint32, now int32, r *request, conn uint16, refused int, watcher uint16) uint16 {
	if v, ok := t.seen.get(uint64(id), uint64(watcher)); ok {
		return uint16(v)
	}
	t.frozen.check()
	v := t.watch(n, now, r, conn, refused, watcher)
	t.seen.put(uint64(id), uint64(watcher), uint32(v))
	t.note(asked{what: askWatched, content: n, now: now, r: r, conn: conn, refused: refused, watcher: watcher, got: uint32(v)})
	return v
}

func (t *transitions) watch(n uint32, now int32, r *request, conn uint16, refused int, watcher uint16) uint16 {
	if t.past != nil {
		return t.past.watch(n, now, r, conn, refused, watcher)
	}
	return t.onlook(n, now, r, conn, refused, watcher)
}

// onlook asks the server.
func (t *transitions) onlook(n uint32, now int32, r *request, conn uint16, refused int, watcher uint16) uint16 {
	t.s.Restore(t.contents[n].snap.At(instant(int64(now))))
	t.actor.SetState(t.conns[conn])
	t.watcher.SetState(t.conns[watcher])
	runRefusing(t.s, t.actor, r.cmds, refused) //nolint:errcheck // the watcher is what counts
	return t.watcherAfter()
}

func (t *transitions) watcherAfter() uint16 {
	v := t.connNumber(t.watcher.State())
	t.actor.SetState(oldredis.ConnState{})
	t.watcher.SetState(oldredis.ConnState{})
	return v
}

// act returns what the server holds after something that no client asked for.
func (t *transitions) act(at uint32, now int32, verb Verb, n int32) uint32 {
	a, b := uint64(at)<<32|uint64(uint32(now)), uint64(verb)<<32|uint64(uint32(n))
	if v, ok := t.acts.get(a, b); ok {
		return v
	}
	t.frozen.check()
	v := t.acted(at, now, verb, n)
	t.acts.put(a, b, v)
	t.note(asked{what: askAct, content: at, now: now, verb: verb, until: n, got: v})
	return v
}

func (t *transitions) acted(at uint32, now int32, verb Verb, n int32) uint32 {
	if t.past != nil {
		return t.past.acted(at, now, verb, n)
	}
	return t.change(at, now, verb, n)
}

// change asks the server.
func (t *transitions) change(at uint32, now int32, verb Verb, n int32) uint32 {
	t.s.Restore(t.contents[at].snap.At(instant(int64(now))))
	t.perform(verb, now, n)
	return t.number(t.s.Snapshot())
}

// perform does it. n is until when time passes, or which server of several does it.
func (t *transitions) perform(verb Verb, now, n int32) {
	passes := time.Duration(n-now) * time.Millisecond
	switch verb {
	case Pass:
		t.s.Advance(passes)
	case PassUnreaped:
		t.s.AdvanceLazy(passes)
	case Reap:
		t.s.Reap()
	case Evict:
		t.s.Evict(keyOn(t.c.Key, int(n)))
	case Down:
		takeDown(t.s, int(n))
	case Restart:
		if n > 0 {
			forget(t.s, int(n))
			break
		}
		t.s.Restart(oldredis.Empty)
	case Failover:
		t.s.Restart(oldredis.Keeping)
	default:
		panic(fmt.Sprint("race: no act of the server: ", verb))
	}
}

// actWatched is watched, for an act.
func (t *transitions) actWatched(at uint32, now int32, verb Verb, n int32, watcher uint16) uint16 {
	id := 1<<63 | uint64(verb)<<56 ^ mix(uint64(at)<<32|uint64(uint32(now)), uint64(uint32(n)))>>8
	if v, ok := t.seen.get(id, uint64(watcher)); ok {
		return uint16(v)
	}
	t.frozen.check()
	v := t.watchAct(at, now, verb, n, watcher)
	t.seen.put(id, uint64(watcher), uint32(v))
	t.note(asked{what: askActWatched, content: at, now: now, verb: verb, until: n, watcher: watcher, got: uint32(v)})
	return v
}

func (t *transitions) watchAct(at uint32, now int32, verb Verb, n int32, watcher uint16) uint16 {
	t.s.Restore(t.contents[at].snap.At(instant(int64(now))))
	t.watcher.SetState(t.conns[watcher])
	t.perform(verb, now, n)
	return t.watcherAfter()
}
