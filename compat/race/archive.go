package race

import (
	"fmt"
	"sync"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// An archive keeps what servers did beyond one search: another fault asks much of the same again, and so
// does the next server, of which a proof is to hold. What a server does with a request depends on its
// version, on what it holds, on the time and on the connection, and on nothing else.
type archive struct {
	mu      sync.Mutex
	shelves map[string]*shelf
}

// archives are those of families of locks, each as long as there is something to explore in the family.
type archives struct {
	mu   sync.Mutex
	all  map[string]*archive
	left map[string]int // lists of cells
}

func newArchives(lists [][]*Cell) *archives {
	as := &archives{all: map[string]*archive{}, left: map[string]int{}}
	for _, l := range lists {
		as.left[l[0].family()]++
	}
	return as
}

func (as *archives) of(c *Cell) *archive {
	as.mu.Lock()
	defer as.mu.Unlock()
	a := as.all[c.family()]
	if a == nil {
		a = &archive{shelves: map[string]*shelf{}}
		as.all[c.family()] = a
	}
	return a
}

// done says that a list of cells has been computed.
func (as *archives) done(c *Cell) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if as.left[c.family()]--; as.left[c.family()] == 0 {
		delete(as.all, c.family())
	}
}

// A shelf is what one server did.
type shelf struct {
	mu       sync.Mutex
	contents catalog[oldredis.Snapshot]
	conns    catalog[oldredis.ConnState]
	replies  catalog[[]any]
	requests catalog[struct{}]
	probes   catalog[struct{}] // who asks whether it can acquire
	answers  map[inquiry]answered
}

// An inquiry is a question with everything that the answer depends on, in the shelf's numbers.
type inquiry struct {
	what          question
	verb          Verb
	refused       uint8
	content       uint32
	conn, watcher uint32
	request       uint32 // or who asks
	now, until    int32
}

// answered is what a server answered, in the shelf's numbers.
type answered struct {
	content, reply, conn uint32
	cut                  bool // the server closed the connection instead of answering
	yes                  bool // of a run: a WATCH of the key would have noticed
}

// A catalog numbers things by texts that two share exactly if they are equal.
type catalog[T any] struct {
	byText map[string]uint32
	list   []T
}

func (c *catalog[T]) number(text string, v T) uint32 {
	n, ok := c.byText[text]
	if !ok {
		if c.byText == nil {
			c.byText = map[string]uint32{}
		}
		n = uint32(len(c.list))
		c.byText[text], c.list = n, append(c.list, v)
	}
	return n
}

// shelf is that of c's server; nil if there is no archive.
func (a *archive) shelf(c *Config) *shelf {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	name := c.Server + " " + c.Key
	s := a.shelves[name]
	if s == nil {
		s = &shelf{answers: map[inquiry]answered{}}
		a.shelves[name] = s
	}
	return s
}

// A reader is one search's view of a shelf: it knows what the shelf's numbers are in the search.
type reader struct {
	t        *transitions
	s        *shelf
	asker    uint32
	contents []uint32          // of each of the search's, the shelf's
	ours     map[uint32]uint32 // and the other way round
	conns    []uint32          // 1 + the shelf's; 0: not asked for yet
}

func newReader(t *transitions, s *shelf) *reader {
	if s == nil {
		return nil
	}
	c := t.c
	s.mu.Lock()
	defer s.mu.Unlock()
	asker := s.probes.number(fmt.Sprint(c.Algorithm, c.Bare, c.Fence, c.TTL, c.Within, c.Clients), struct{}{})
	return &reader{t: t, s: s, asker: asker, ours: map[uint32]uint32{}}
}

// met notes a content that the search has numbered.
func (r *reader) met(n uint32, text string, snap oldredis.Snapshot) {
	if r == nil {
		return
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	id := r.s.contents.number(text, snap)
	r.contents, r.ours[id] = append(r.contents, id), n
}

// conn is the shelf's number of one of the search's connections. The shelf is locked.
func (r *reader) conn(n uint16) uint32 {
	r.conns = room(r.conns, int(n))
	if r.conns[n] == 0 {
		st := r.t.conns[n]
		r.conns[n] = 1 + r.s.conns.number(st.Key(), st)
	}
	return r.conns[n] - 1
}

// ask looks an answer up. It completes the question with what the search calls by other numbers.
func (r *reader) ask(q *inquiry, n uint32, conn, watcher uint16, req *request) (answered, bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	q.content = r.contents[n]
	if conn > noConn {
		q.conn = 1 + r.conn(conn)
	}
	if watcher > noConn {
		q.watcher = 1 + r.conn(watcher)
	}
	if req != nil {
		q.request = r.s.requests.number(req.says(), struct{}{})
	}
	a, ok := r.s.answers[*q]
	return a, ok
}

func (r *reader) keep(q *inquiry, a answered) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.answers[*q] = a
}

// content is the search's number of one of the shelf's.
func (r *reader) content(id uint32) uint32 {
	if n, ok := r.ours[id]; ok {
		return n
	}
	r.s.mu.Lock()
	snap := r.s.contents.list[id]
	r.s.mu.Unlock()
	return r.t.number(snap)
}

// run is transitions.run, with what is known from before.
func (r *reader) run(n uint32, now int32, req *request, conn uint16, refused int) executed {
	q := inquiry{what: askRun, now: now, refused: uint8(refused)}
	a, ok := r.ask(&q, n, conn, noConn, req)
	if !ok {
		x := r.t.execute(n, now, req, conn, refused)
		a = answered{content: r.contents[x.content], cut: x.reply == inputLost, yes: x.touched}
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		if !a.cut {
			replies := r.t.replies.values[x.reply]
			a.reply, a.conn = r.s.replies.number(replyKey(replies), replies), r.conn(x.conn)
		}
		r.s.answers[q] = a
		return x
	}
	x := executed{touched: a.yes}
	if !a.cut {
		r.s.mu.Lock()
		replies, st := r.s.replies.list[a.reply], r.s.conns.list[a.conn]
		r.s.mu.Unlock()
		x.reply, x.conn = r.t.replies.number(replies), r.t.connNumber(st)
	}
	x.content = r.content(a.content)
	return x
}

// watch is transitions.watch, with what is known from before.
func (r *reader) watch(n uint32, now int32, req *request, conn uint16, refused int, watcher uint16) uint16 {
	q := inquiry{what: askWatched, now: now, refused: uint8(refused)}
	a, ok := r.ask(&q, n, conn, watcher, req)
	if !ok {
		after := r.t.onlook(n, now, req, conn, refused, watcher)
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		r.s.answers[q] = answered{conn: r.conn(after)}
		return after
	}
	r.s.mu.Lock()
	st := r.s.conns.list[a.conn]
	r.s.mu.Unlock()
	return r.t.connNumber(st)
}

// acted is transitions.acted, with what is known from before.
func (r *reader) acted(at uint32, now int32, verb Verb, n int32) uint32 {
	q := inquiry{what: askAct, verb: verb, now: now, until: n}
	a, ok := r.ask(&q, at, noConn, noConn, nil)
	if !ok {
		to := r.t.change(at, now, verb, n)
		r.keep(&q, answered{content: r.contents[to]})
		return to
	}
	return r.content(a.content)
}

// free is probe.free, with what is known from before.
func (t *transitions) free(p *probe, n uint32, now int32) bool {
	ask := func() bool { return p.free(t.contents[n].snap.At(instant(int64(now)))) }
	r := t.past
	if r == nil {
		return ask()
	}
	q := inquiry{what: askFree, request: r.asker, now: now}
	a, ok := r.ask(&q, n, noConn, noConn, nil)
	if !ok {
		a.yes = ask()
		r.keep(&q, a)
	}
	return a.yes
}
