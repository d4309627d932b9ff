package search

import (
	"fmt"
	"strings"
	"sync"

	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/embedded"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// An Archive keeps what servers did beyond one search: another fault asks much of the same again, and so
// does the next server, of which a proof is to hold. What a server does with a request depends on its
// version, on what it holds, on the time and on the connection, and on nothing else. Everything has one
// number for all servers, by which their answers compare.
type Archive struct {
	mu        sync.Mutex
	contents  catalog[string, oldredis.Snapshot]
	conns     catalog[string, oldredis.ConnState]
	requests  catalog[string, [][]string]
	replies   catalog[string, []any]
	moments   catalog[string, []int32]
	probes    catalog[string, struct{}] // who asks whether it can acquire
	inquiries catalog[inquiry, inquiry]
	answers   catalog[answered, answered]
	shelves   map[string]*shelf
}

// NewArchive keeps nothing yet.
func NewArchive() *Archive { return &Archive{shelves: map[string]*shelf{}} }

// A catalog numbers things by what two share exactly if they are equal.
type catalog[K comparable, V any] struct {
	by   map[K]uint32
	list []V
}

func (c *catalog[K, V]) number(k K, v V) uint32 {
	n, ok := c.by[k]
	if !ok {
		if c.by == nil {
			c.by = map[K]uint32{}
		}
		n = uint32(len(c.list))
		c.by[k], c.list = n, append(c.list, v)
	}
	return n
}

// A question is what a server is asked.
type question uint8

const (
	askRun        question = iota // what does the request do?
	askWatched                    // what becomes of a connection that watches?
	askAct                        // what does time, or the server, do?
	askActWatched                 // and what becomes of a connection that watches?
	askDeaths                     // when are its keys dead?
	askFree                       // can a client acquire in time?
	askRename                     // what is this content called under other names?
	askConn                       // and this connection?
)

// An inquiry is a question with everything that the answer depends on, in the archive's numbers.
type inquiry struct {
	what          question
	verb          plan.Verb
	refused       uint8
	rename        uint8 // see packed
	content       uint32
	conn, watcher uint32 // 1 + the number; 0: none
	request       uint32 // or who asks
	now, until    int32
}

// answered is what a server answered, in the archive's numbers.
type answered struct {
	content, reply, conn uint32
	cut                  bool // the server closed the connection instead of answering
	yes                  bool // of a run: a WATCH of the key would have noticed
}

// A noted is a question that was asked, and its answer.
type noted struct{ inquiry, answer uint32 }

// A shelf is what one server did.
type shelf struct {
	*Archive
	answers []uint32          // of each inquiry, 1 + the number of its answer; 0: it was not asked
	first   map[string]uint32 // by what was given, the content in the beginning
}

// shelf returns c's server's shelf.
func (a *Archive) shelf(c *plan.Setup) *shelf {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := strings.TrimSpace(c.Server+" "+c.Successor) + " " + c.Key
	s := a.shelves[name]
	if s == nil {
		s = &shelf{Archive: a, first: map[string]uint32{}}
		a.shelves[name] = s
	}
	return s
}

// ask returns the server's earlier answer, or asks the probeServer.
func (s *shelf) ask(q inquiry, w *probeServer) (answered, noted) {
	s.mu.Lock()
	id := s.inquiries.number(q, q)
	if n := s.known(id); n > 0 {
		defer s.mu.Unlock()
		return s.Archive.answers.list[n-1], noted{id, n - 1}
	}
	s.mu.Unlock()
	got := w.answer(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.Archive.answers.number(got, got)
	s.answers = memo.Room(s.answers, int(id))
	s.answers[id] = 1 + n
	return got, noted{id, n}
}

// known returns 1 + the number of the answer to an inquiry; 0: it was not asked. The archive is
// locked.
func (s *shelf) known(id uint32) uint32 {
	if int(id) < len(s.answers) {
		return s.answers[id]
	}
	return 0
}

// begins returns the server's content at the beginning.
func (s *shelf) begins(c *plan.Setup, call func() (*probeServer, error)) (uint32, error) {
	given := strings.Join(c.Given, "\n")
	s.mu.Lock()
	n, ok := s.first[given]
	s.mu.Unlock()
	if ok {
		return n, nil
	}
	w, err := call()
	if err == nil {
		n, err = w.begin()
	}
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first[given] = n
	return n, nil
}

// agrees reports whether the server gave no other answer than these, and lists the unasked ones.
func (s *shelf) agrees(log []noted) (unasked []noted, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range log {
		switch s.known(n.inquiry) {
		case 1 + n.answer:
		case 0:
			unasked = append(unasked, n)
		default:
			return nil, false
		}
	}
	return unasked, true
}

// numberOf numbers a thing; numbered maps back.
func numberOf[K comparable, V any](a *Archive, c *catalog[K, V], k K, v V) uint32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.number(k, v)
}

func numbered[K comparable, V any](a *Archive, c *catalog[K, V], n uint32) V {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.list[n]
}

func (a *Archive) content(snap oldredis.Snapshot) uint32 {
	return numberOf(a, &a.contents, snap.ContentKey(), snap)
}

func (a *Archive) snapshot(n uint32) oldredis.Snapshot { return numbered(a, &a.contents, n) }

func (a *Archive) connection(st oldredis.ConnState) uint32 {
	return numberOf(a, &a.conns, st.Key(), st)
}

// state returns a connection's state by 1 + its number; 0: unknown.
func (a *Archive) state(n uint32) oldredis.ConnState {
	if n == 0 {
		return oldredis.ConnState{}
	}
	return numbered(a, &a.conns, n-1)
}

func (a *Archive) reply(v []any) uint32 { return numberOf(a, &a.replies, embedded.ReplyKey(v), v) }

func (a *Archive) replied(n uint32) []any { return numbered(a, &a.replies, n) }

func (a *Archive) request(r *client.Request) uint32 {
	return numberOf(a, &a.requests, r.Says(), r.Cmds)
}

func (a *Archive) commands(n uint32) [][]string { return numbered(a, &a.requests, n) }

func (a *Archive) inquiry(n uint32) inquiry { return numbered(a, &a.inquiries, n) }

func (a *Archive) deaths(list []int32) uint32 {
	return numberOf(a, &a.moments, fmt.Sprint(list), list)
}

func (a *Archive) dead(n uint32) []int32 { return numbered(a, &a.moments, n) }

// asker numbers the client with the question "can I acquire?" in c.
func (a *Archive) asker(c *plan.Setup) uint32 {
	return numberOf(a, &a.probes, fmt.Sprint(c.Algorithm, c.Bare, c.Fence, c.TTL, c.Within, c.Clients), struct{}{})
}
