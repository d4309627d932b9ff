package protocol

import (
	"fmt"
	"slices"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// IfEq is the condition kept by the server's own compare-and-set, Redis 8.4 and Valkey 9.0 and later. One command, which
// needs neither a script nor WATCH:
//
//	SET key next IFEQ value PX ttl GET     value: done; another: it is another's; nil: gone
//	DELIFEQ key value                      Valkey 9.0: 1, or 0: not ours
//	DELEX key IFEQ value                   Redis 8.4, Valkey 9.2: the same
//
// A number is drawn in a MULTI around it, and counts only if the SET was done. GET answers with next if the SET was sent
// twice, and done the first time. On a server that lacks one of these commands, and for a change with other commands
// beside it, it is kept by [Script], or by [Watch] where scripts are refused: a lock that is held may find such a server
// after a failover. So it is on one that is over its maxmemory, which refuses SET and lets both move the end.
//
// A lock that uses it asks first whether the server compares ([Traits].Check): one that only ignores IFEQ would set
// another's key.
var IfEq Condition = ifEq{}

type ifEq struct{}

func (ifEq) carryOut(c *Conn, list []*task) {
	list, others := comparable(list)
	for _, r := range removals(c.wire.Compares.Removal()) {
		var full []*task
		list, full = c.compare(list, r)
		if others = append(others, full...); slices.ContainsFunc(list, func(s *task) bool { return !s.removes() }) {
			break // its SET does not compare
		}
	}
	if len(list) > 0 {
		c.wire.Compares.Answers(wire.ByNone)
	}
	if others = append(others, list...); len(others) > 0 {
		c.compareOtherwise(others)
	}
}

// comparable are the changes of list that the server can compare for by itself, and the others, apart from those that
// nothing can.
func comparable(list []*task) (can, others []*task) {
	for _, s := range list {
		switch {
		case s.Value == "":
			s.err = fmt.Errorf("%w: IfEq can't compare with an empty value", ErrInvalid)
		case len(s.Do) > 0 || s.Whole:
			others = append(others, s)
		default:
			can = append(can, s)
		}
	}
	return can, others
}

// removals are those to try: all, the known one first, for a cluster's servers may differ.
func removals(known wire.Removal) []wire.Removal {
	switch known {
	case wire.ByNone:
		return nil
	case wire.ByDELEX:
		return []wire.Removal{wire.ByDELEX, wire.ByDELIFEQ}
	}
	return []wire.Removal{wire.ByDELIFEQ, wire.ByDELEX}
}

// compares is the command that changes the key if it holds the value: the only place that writes it.
func (s *task) compares(by wire.Removal, key any) Cmd {
	if !s.removes() {
		ms, _ := Whole(s.TTL, 1e6) // valid has looked at it
		return Cmd{"SET", key, s.next(), "IFEQ", s.Value, "PX", boxed(ms), "GET"}
	}
	if by == wire.ByDELEX {
		return Cmd{"DELEX", key, "IFEQ", s.Value}
	}
	return Cmd{"DELIFEQ", key, s.Value}
}

// compare has the server compare for all of list. It returns those of which the server says that it has no such command,
// and those for which it has no room. Neither ran.
func (c *Conn) compare(list []*task, by wire.Removal) (lacking, full []*task) {
	if len(list) == 0 {
		return nil, nil
	}
	w := c.wire.Compose(8 * len(list))
	for _, s := range list {
		m := s.compares(by, c.boxed(s.Key, nil))
		if s.sent = 1; s.Draw {
			w.Add("MULTI")
			s.sent = 4
		}
		w.Add(m[0].(string), m[1:]...)
		if s.Draw {
			w.Add("INCR", Aux(s.Key, "fence"))
			w.Add("EXEC")
		}
	}
	all, err := w.Replies()
	if err != nil {
		fail(list, err)
		return nil, nil
	}
	var refused []*task
	for _, s := range list {
		c.compared(s, all[:s.sent:s.sent])
		switch all = all[s.sent:]; {
		case s.replies == nil && (answer.Lacks(s.err) || answer.Misused(s.err)): // of the word IFEQ
			lacking = append(lacking, s)
		case s.replies == nil && answer.Of(s.err) == answer.Memory: // there may be for what only moves the end
			full = append(full, s)
		case s.err == nil && s.removes():
			if c.wire.Compares.Answers(by); s.replies[0] == int64(0) {
				refused = append(refused, s)
			}
		}
	}
	c.lookAt(refused)
	return lacking, full
}

// compared notes what the server answered to s.
func (c *Conn) compared(s *task, replies []any) {
	if s.Draw {
		if replies, s.err = c.wire.Transacted(replies); s.err == nil && replies == nil {
			s.err = ErrAborted // nothing was watched; but if EXEC says so, it did not run
		}
		if s.err != nil {
			return
		}
	}
	if e, refused := replies[0].(redis.Error); refused {
		s.err = Foreign(s.Key, e)
		return
	}
	if s.replies, s.err = replies, answer.First(replies); s.removes() {
		return
	}
	was, err := redis.String(replies[0], nil)
	switch exists := err == nil; {
	case replies[0] == "OK" || err != nil && err != redis.ErrNil: // it does not tell
		s.err = fmt.Errorf("setnxlock: SET … IFEQ … GET is answered %.40q, not as by Redis", fmt.Sprint(replies[0]))
	case !exists || was != s.Value && was != s.next():
		s.err = lostTo(s.Key, was, exists)
	case s.err == nil:
		replies[0] = int64(1)
	}
}

// lookAt finds out what the keys hold that did not hold the values of list.
func (c *Conn) lookAt(list []*task) {
	if len(list) == 0 {
		return
	}
	w := c.wire.Compose(len(list))
	for _, s := range list {
		w.Add("GET", c.boxed(s.Key, nil))
	}
	replies, err := w.Replies()
	if err != nil { // the removal was answered all the same
		fail(list, ErrLost)
		return
	}
	fail(holding(list, replies), ErrAborted) // it is there after all
}

// compareOtherwise carries out list on a server that does not compare by itself.
func (c *Conn) compareOtherwise(list []*task) {
	for _, s := range list {
		s.replies, s.err = nil, nil
	}
	Script.carryOut(c, list)
	var unscripted []*task
	for _, s := range list {
		if answer.Lacks(s.err) || answer.Of(s.err) == answer.Permission {
			s.replies, s.err = nil, nil
			unscripted = append(unscripted, s)
		}
	}
	if len(unscripted) > 0 {
		Watch.carryOut(c, unscripted)
	}
}
