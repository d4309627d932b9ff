package race

import (
	"context"
	"slices"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A proof is one search with every question that it asked of the server. On
// another server that gives the same answers to all of them the search would
// have been the same, step by step: it need not be made.
type proof struct {
	c        *Config
	result   Result
	ways     []way
	log      []asked
	contents []content
	replies  *replies
}

// A way is a schedule that breaks an invariant.
type way struct {
	invariant string
	choices   []Choice
}

// An asked is one question with its answer.
type asked struct {
	what          question
	content       uint32
	now, until    int32
	verb          Verb
	conn, watcher uint16
	refused       int
	r             *request
	rename        *rename
	st            oldredis.ConnState

	ran executed
	got uint32
}

type question uint8

const (
	askRun        question = iota // what does the request do?
	askWatched                    // what becomes of a connection that watches?
	askAct                        // what does time, or the server, do?
	askActWatched                 // and what becomes of a connection that watches?
	askRename                     // what is this content called under other names?
	askConn                       // and this connection?
	askFree                       // can a client acquire in time?
)

func (t *transitions) note(q asked) {
	if t.logs {
		t.log = append(t.log, q)
	}
}

// prove searches c.
func prove(ctx context.Context, c *Config, rs *runs) (*proof, error) {
	x, b, err := examine(ctx, c, rs, true)
	if err != nil {
		return nil, err
	}
	defer x.close()
	p := &proof{c: c, result: x.result(b), log: x.trans.log, contents: x.trans.contents, replies: rs.replies}
	for _, w := range x.broken {
		p.ways = append(p.ways, way{w.breach.how.invariant(), x.schedule(w)})
	}
	return p, nil
}

// holdsOn reports whether c, which differs from what was searched in its server
// only, gives the same answers.
func (p *proof) holdsOn(c *Config, a *archive) (bool, error) {
	t, err := newTransitions(c, p.replies, a)
	if err != nil {
		return false, err
	}
	defer t.close()
	probe := newProbe(c)
	defer probe.s.Close()
	known := 0
	for i := range p.log {
		if q := &p.log[i]; !t.answers(q, probe) {
			return false, nil
		}
		// The numbers of contents are given in order: they must stand for the same.
		for ; known < len(t.contents); known++ {
			if known == len(p.contents) || !t.contents[known].like(&p.contents[known]) {
				return false, nil
			}
		}
	}
	return len(t.contents) == len(p.contents), nil
}

func (c *content) like(o *content) bool {
	return c.key == o.key && c.ends == o.ends && c.stamp == o.stamp && slices.Equal(c.scores, o.scores) && slices.Equal(c.deaths, o.deaths) &&
		c.snap.ContentKey() == o.snap.ContentKey()
}

// answers asks a question again.
func (t *transitions) answers(q *asked, p *probe) bool {
	switch q.what {
	case askRun:
		return t.run(q.content, q.now, q.r, q.conn, q.refused) == q.ran
	case askWatched:
		return uint32(t.watch(q.content, q.now, q.r, q.conn, q.refused, q.watcher)) == q.got
	case askAct:
		return t.acted(q.content, q.now, q.verb, q.until) == q.got
	case askActWatched:
		return uint32(t.watchAct(q.content, q.now, q.verb, q.until, q.watcher)) == q.got
	case askRename:
		return t.number(t.contents[q.content].snap.Rename(q.rename.text)) == q.got
	case askConn:
		return uint32(t.connNumber(q.st)) == q.got
	}
	return t.free(p, q.content, q.now) == (q.got == 1)
}
