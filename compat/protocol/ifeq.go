package protocol

import (
	"fmt"
	"slices"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/session"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// IfEq lets the server compare and set: Redis 8.4 and Valkey 9.0 and later. One command, without a script or WATCH:
//
//	SET key next IFEQ value PX ttl GET     value: done; another value: lost; nil: gone
//	DELIFEQ key value                      Valkey 9.0: 1: done; 0: lost
//	DELEX key IFEQ value                   Redis 8.4, Valkey 9.2: the same
//
// A fence is taken in a MULTI around the command, and counts only if the SET was done. GET answers with next if
// the SET was sent twice, and done the first time.
//
// [Script] takes the place of IfEq for a change with other commands in Do, on a server without one of the three
// commands, and on a server over its maxmemory. [Watch] does where scripts are refused. A held lock may meet a
// server without the commands after a failover. A full server refuses SET, but lets Script and Watch move the
// end.
//
// A lock with IfEq asks first whether the server compares ([Traits].Check): a server that ignores the word IFEQ
// would overwrite another client's value.
var IfEq Condition = ifEq{}

type ifEq struct{}

func (ifEq) carryOut(c *Conn, list []*task) {
	list, others := splitComparable(list)
	for _, r := range removals(c.wire.Compares.Removal()) {
		var full []*task
		list, full = c.compare(list, r)
		if others = append(others, full...); slices.ContainsFunc(list, func(s *task) bool { return !s.removes() }) {
			break // the SET was refused, and has no second form
		}
	}
	if len(list) > 0 {
		c.wire.Compares.Answers(wire.ByNone)
	}
	if others = append(others, list...); len(others) > 0 {
		c.compareOtherwise(others)
	}
}

// splitComparable splits list into the changes that the server's own commands can make, and others. A change
// without a value fails.
func splitComparable(list []*task) (can, others []*task) {
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

// removals lists the removal commands to try: the known one first, and also the other, for a cluster's servers
// may differ.
func removals(known wire.Removal) []wire.Removal {
	switch known {
	case wire.ByNone:
		return nil
	case wire.ByDELEX:
		return []wire.Removal{wire.ByDELEX, wire.ByDELIFEQ}
	}
	return []wire.Removal{wire.ByDELIFEQ, wire.ByDELEX}
}

// comparing returns the command that changes the key if it holds the value.
func (s *task) comparing(by wire.Removal, key any) Cmd {
	if !s.removes() {
		ms, _ := Whole(s.TTL, 1e6) // valid has checked the ttl
		return Cmd{"SET", key, s.next(), "IFEQ", s.Value, "PX", ttlArg(ms), "GET"}
	}
	if by == wire.ByDELEX {
		return Cmd{"DELEX", key, "IFEQ", s.Value}
	}
	return Cmd{"DELIFEQ", key, s.Value}
}

// compare sends the comparing commands of list. It returns the tasks refused for an unknown command, and the
// tasks refused for memory. Neither ran.
func (c *Conn) compare(list []*task, by wire.Removal) (lacking, full []*task) {
	if len(list) == 0 {
		return nil, nil
	}
	w := c.wire.Compose(8 * len(list))
	for _, s := range list {
		m := s.comparing(by, c.keyArg(s.Key, nil))
		if s.sent = 1; s.TakeFence {
			w.Add("MULTI")
			s.sent = 4
		}
		w.Add(m[0].(string), m[1:]...)
		if s.TakeFence {
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
		case s.replies == nil && (answer.Lacks(s.err) || answer.Misused(s.err)): // the server does not know the word IFEQ
			lacking = append(lacking, s)
		case s.replies == nil && answer.Of(s.err) == answer.Memory: // EXPIRE needs none
			full = append(full, s)
		case s.err == nil && s.removes():
			if c.wire.Compares.Answers(by); s.replies[0] == int64(0) {
				refused = append(refused, s)
			}
		}
	}
	c.readRefused(refused)
	return lacking, full
}

// compared judges the server's answer to s.
func (c *Conn) compared(s *task, replies []any) {
	if s.TakeFence {
		if replies, s.err = c.wire.Transacted(replies); s.err == nil && replies == nil {
			s.err = ErrAborted // no key was watched; but an EXEC that answers nil did not run
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
	case replies[0] == "OK" || err != nil && err != redis.ErrNil: // not the old value
		s.err = session.Unfit("SET … IFEQ … GET", replies[0])
	case !exists || was != s.Value && was != s.next():
		s.err = lostTo(s.Key, was, exists)
	case s.err == nil:
		replies[0] = int64(1)
	}
}

// readRefused reads the keys of refused removals, for the error: the server only said that they did not hold
// the values.
func (c *Conn) readRefused(list []*task) {
	if len(list) == 0 {
		return
	}
	replies, err := c.values(list)
	if err != nil { // the removal itself was answered
		fail(list, ErrLost)
		return
	}
	fail(holding(list, replies), ErrAborted) // the value is there after all
}

// compareOtherwise carries out list by Script, and by Watch where scripts are refused.
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
