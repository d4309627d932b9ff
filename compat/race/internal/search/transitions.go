package search

import (
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/embedded"
	"github.com/setnxlock/setnxlock/compat/race/internal/judge"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// A content is what the server holds, apart from the time.
type content struct {
	id     uint32 // in the archive
	snap   oldredis.Snapshot
	key    judge.KeyState // alive is for the asker to find out: see transitions.key
	ends   int32          // first ms at which the key is dead; never if it has no TTL
	deaths []int32        // first ms at which each key is dead, in order
	busy   bool           // there is more than fences
	down   uint8          // which servers of several are gone, by their numbers
	keys   uint8          // and which have the key
	stamp  int64          // the time that the value says, in ms; 0: none
	scores []int64        // and the scores of sorted sets
}

const never int32 = 1<<31 - 1

// An executed is what the real server did with one request.
type executed struct {
	content uint32
	reply   uint32 // inputLost if it closed the connection instead
	conn    uint16
	touched bool // a WATCH of the key would have noticed
}

// transitions remembers what the server did. It asks each thing once, of the archive, and has its own
// numbers, which come in the order in which things were met.
type transitions struct {
	c           *plan.Setup
	archive     *Archive
	shelf       *shelf
	probeServer *probeServer
	contents    []content
	values      map[string]uint32
	conns       []oldredis.ConnState
	execs       []executed
	done        memo.Table[memo.Pair, uint32] // content, request, now, conn → exec
	acts        memo.Table[memo.Pair, uint32] // content, now, verb, until → content
	seen        memo.Table[memo.Pair, uint16] // exec or act, conn → what becomes of a watcher's connection
	leases      map[string]uint32
	stood       memo.Table[memo.Pair, bool] // content, lease → whether its value stands
	replies     *replies
	asker       uint32
	frozen      memo.Frozen
	ran         int

	// What the archive's numbers are here, and the other way round.
	ourContents, ourConns, ourReplies memo.Names[uint32]
	connIDs                           []uint32
	requestIDs                        memo.Names[uint32]

	logs bool
	log  []noted // every question, in order, if logs
}

func newTransitions(c *plan.Setup, r *replies, a *Archive) (*transitions, error) {
	if a == nil {
		a = NewArchive()
	}
	w, err := newProbeServer(c, a)
	if err != nil {
		return nil, err
	}
	t := &transitions{c: c, archive: a, shelf: a.shelf(c), probeServer: w, replies: r, asker: a.asker(c),
		values: map[string]uint32{"": 0}, leases: map[string]uint32{}}
	t.conns, t.connIDs = make([]oldredis.ConnState, newConn), make([]uint32, newConn)
	t.conn(a.connection(oldredis.ConnState{})) // newConn
	first, err := t.shelf.begins(c, func() (*probeServer, error) { return w, nil })
	if err != nil {
		w.close()
		return nil, err
	}
	t.content(first)
	return t, nil
}

func (t *transitions) close() { t.probeServer.close() }

// ask asks a question for the first time in this search.
func (t *transitions) ask(q inquiry) answered {
	got, n := t.shelf.ask(q, t.probeServer)
	if t.logs {
		t.log = append(t.log, n)
	}
	return got
}

// content numbers one of the archive's contents.
func (t *transitions) content(id uint32) uint32 {
	return t.ourContents.Find(id, &t.frozen, func() uint32 {
		snap := t.archive.snapshot(id)
		ct := t.describe(snap, t.archive.dead(t.ask(inquiry{what: askDeaths, content: id}).content))
		ct.id = id
		t.contents = append(t.contents, ct)
		return uint32(len(t.contents) - 1)
	})
}

// describe collects a content's properties, with the deaths of its keys.
func (t *transitions) describe(snap oldredis.Snapshot, deaths []int32) content {
	entries := snap.Entries(t.probeServer.s)
	ct := content{snap: snap, ends: never, busy: embedded.Busy(t.c, entries), down: embedded.Down(entries)}
	for i, e := range entries {
		if deaths[i] != never {
			ct.deaths = append(ct.deaths, deaths[i])
		}
		if e.Type == "zset" {
			for i := 1; i < len(e.Elements); i += 2 {
				if ms := embedded.StampOfScore(e.Elements[i]); ms != 0 {
					ct.scores = append(ct.scores, ms)
				}
			}
		}
		if t.c.Servers() > 0 && strings.HasSuffix(e.Key, ":"+t.c.Key) {
			ct.keys |= 1 << plan.ServerOf(e.Key)
		}
		if e.DB != 0 || e.Key != t.c.Stands() {
			continue
		}
		text := e.Type + e.Value + strings.Join(e.Elements, "\x00")
		v, ok := t.values[text]
		if !ok {
			v = uint32(len(t.values))
			t.values[text] = v
		}
		ct.key, ct.ends, ct.stamp = judge.KeyState{Present: true, Value: v}, deaths[i], embedded.StampOf(e.Value)
		if !e.Expires.IsZero() {
			ct.key.Dies = plan.Millis(e.Expires)
		}
	}
	slices.Sort(ct.deaths)
	return ct
}

// key returns the state of the key at a moment.
func (t *transitions) key(n uint32, now int32) judge.KeyState {
	c := &t.contents[n]
	k := c.key
	k.Alive = k.Present && now < c.ends
	return k
}

// conn numbers one of the archive's connections.
func (t *transitions) conn(id uint32) uint16 {
	return uint16(t.ourConns.Find(id, &t.frozen, func() uint32 {
		if len(t.conns) > 60000 {
			panic("race: too many states of connections")
		}
		t.conns, t.connIDs = append(t.conns, t.archive.state(1+id)), append(t.connIDs, id)
		return uint32(len(t.conns) - 1)
	}))
}

// connID names a connection for an inquiry.
func (t *transitions) connID(n uint16) uint32 {
	if n < newConn {
		return 0
	}
	return 1 + t.connIDs[n]
}

// request returns the archive's number of a request.
func (t *transitions) request(n uint32, r *client.Request) uint32 {
	return t.requestIDs.Find(n, &t.frozen, func() uint32 { return t.archive.request(r) })
}

// reply returns the input of one of the archive's replies.
func (t *transitions) reply(id uint32) uint32 {
	return t.ourReplies.Find(id, &t.frozen, func() uint32 { return t.replies.number(t.archive.replied(id)) })
}

// An execution is a request that the server runs.
type execution struct {
	content uint32
	now     int32
	req     uint32
	of      *client.Request // req
	conn    uint16
	refused int // the one of its commands that is refused, counted from 1; 0: none
}

func (t *transitions) inquiry(what question, e execution) inquiry {
	return inquiry{what: what, content: t.contents[e.content].id, now: e.now, request: t.request(e.req, e.of), conn: t.connID(e.conn), refused: uint8(e.refused)}
}

// do returns the server's answer to a request, and its number in memory.
func (t *transitions) do(e execution) (uint32, *executed) {
	a, b := uint64(e.content)<<32|uint64(e.req), uint64(e.refused)<<48|uint64(uint32(e.now))<<16|uint64(e.conn)
	id := t.done.Find(memo.PairOf(a, b), &t.frozen, func() uint32 {
		t.ran++
		got := t.ask(t.inquiry(askRun, e))
		x := executed{touched: got.yes}
		if !got.cut {
			x.reply, x.conn = t.reply(got.reply), t.conn(got.conn)
		}
		x.content = t.content(got.content)
		t.execs = append(t.execs, x)
		return uint32(len(t.execs) - 1)
	})
	return id, &t.execs[id]
}

// watched returns the fate of a watching connection while another client's request runs.
func (t *transitions) watched(id uint32, e execution, watcher uint16) uint16 {
	return t.seen.Find(memo.PairOf(uint64(id), uint64(watcher)), &t.frozen, func() uint16 {
		q := t.inquiry(askWatched, e)
		q.watcher = t.connID(watcher)
		return t.conn(t.ask(q).conn)
	})
}

// act returns the server's content after an act of its own; see probeServer.perform.
func (t *transitions) act(at uint32, now int32, verb plan.Verb, n int32) uint32 {
	a, b := uint64(at)<<32|uint64(uint32(now)), uint64(verb)<<32|uint64(uint32(n))
	return t.acts.Find(memo.PairOf(a, b), &t.frozen, func() uint32 {
		return t.content(t.ask(inquiry{what: askAct, content: t.contents[at].id, now: now, verb: verb, until: n}).content)
	})
}

// actWatched does watched, for an act.
func (t *transitions) actWatched(at uint32, now int32, verb plan.Verb, n int32, watcher uint16) uint16 {
	id := 1<<63 | uint64(verb)<<56 ^ memo.Mix(uint64(at)<<32|uint64(uint32(now)), uint64(uint32(n)))>>8
	return t.seen.Find(memo.PairOf(id, uint64(watcher)), &t.frozen, func() uint16 {
		return t.conn(t.ask(inquiry{what: askActWatched, content: t.contents[at].id, now: now, verb: verb, until: n,
			watcher: t.connID(watcher)}).conn)
	})
}

// free reports whether a client can acquire in time.
func (t *transitions) free(n uint32, now int32) bool {
	return t.ask(inquiry{what: askFree, content: t.contents[n].id, now: now, request: t.asker}).yes
}

// renamed renames a content.
func (t *transitions) renamed(n uint32, r *rename) uint32 {
	return t.content(t.ask(inquiry{what: askRename, content: t.contents[n].id, rename: uint8(packed(r.to))}).content)
}

// connRenamed renames a connection.
func (t *transitions) connRenamed(n uint16, r *rename) uint16 {
	return t.conn(t.ask(inquiry{what: askConn, conn: t.connID(n), rename: uint8(packed(r.to))}).conn)
}

// stands reports whether a value is on the server, dead or alive.
func (t *transitions) stands(n uint32, value string) bool {
	if value == "" {
		return false
	}
	lease, ok := t.leases[value]
	if !ok {
		t.frozen.Check()
		lease = uint32(len(t.leases))
		t.leases[value] = lease
	}
	return t.stood.Find(memo.PairOf(uint64(n), uint64(lease)), &t.frozen, func() bool {
		return judge.Stands(t.contents[n].snap.Entries(t.probeServer.s), value)
	})
}
