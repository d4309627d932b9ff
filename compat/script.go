package compat

import (
	"fmt"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"
)

// The condition kept by a script, Redis 2.6 and later where scripts are allowed. One round
// trip:
//
//	EVALSHA sha 1 key value arguments…     nil: not the value
//
// The script is made of the change: one for each sequence of commands, of which there are a
// handful. It compares, stops at a first command that answers 0, and returns all replies.
//
// A server that does not know it yet, or has forgotten it (a restart, a failover, SCRIPT
// FLUSH), answers NOSCRIPT without having run anything, and gets the source. With a wake-up
// the source is sent at once: what wakes a client would run behind a NOSCRIPT, too.
func (c *Conn) script(ch *Change) ([]any, error) {
	s, cmds := scriptOf(ch)
	if c.wake != nil {
		return c.evaluate("EVAL", s, ch, cmds)
	}
	replies, err := c.evaluate("EVALSHA", s, ch, cmds)
	if noScript(err) {
		replies, err = c.evaluate("EVAL", s, ch, cmds)
	}
	return replies, err
}

// evaluate sends one script.
func (c *Conn) evaluate(by string, s *luaScript, ch *Change, cmds []Cmd) ([]any, error) {
	w := c.compose(arguments(cmds) + 3)
	s.send(&w, by, ch, cmds)
	all, err := w.decided(func(replies []any) bool {
		_, refused := replies[0].(redis.Error)
		return !refused
	})
	if err != nil {
		return nil, err
	}
	return scripted(ch, all[:1])
}

// scripted are the replies to a script's commands, of which it returned one or a list.
func scripted(ch *Change, returned []any) ([]any, error) {
	switch r := returned[0].(type) {
	case nil:
		return nil, ErrLost
	case redis.Error:
		return nil, foreign(ch.Key, r)
	case []any:
		return r, nil
	}
	return returned, nil
}

// allScripts sends many in one write; those that the server does not know follow one by one.
func (c *Conn) allScripts(changes []Change, replies [][]any, errs []error) {
	n := 0
	for i := range changes {
		n += arguments(changes[i].Do) + 5
	}
	w := c.compose(n)
	for i := range changes {
		s, cmds := scriptOf(&changes[i])
		s.send(&w, "EVALSHA", &changes[i], cmds)
	}
	all, err := w.replies()
	for i := range changes {
		if err != nil {
			errs[i] = err
			continue
		}
		if e, ok := all[i].(redis.Error); ok && noScript(e) {
			replies[i], errs[i] = c.script(&changes[i]) // it did not run; the first of these teaches the server
			continue
		}
		replies[i], errs[i] = scripted(&changes[i], all[i:i+1])
	}
}

func noScript(err error) bool {
	e, ok := err.(redis.Error)
	return ok && strings.HasPrefix(string(e), "NOSCRIPT")
}

// A luaScript carries out the changes of one shape.
type luaScript struct {
	source, sha any // strings, boxed once
	keys        int
}

var (
	deletion = newLua(&Change{Key: "k"}, []Cmd{{"DEL", "k"}})

	scriptsMu sync.RWMutex
	scripts   = map[string]*luaScript{} // by shape
)

// scriptOf is the script for ch, and the commands that it runs.
func scriptOf(ch *Change) (*luaScript, []Cmd) {
	if ch.removes() && !ch.Draw { // most often
		return deletion, nil
	}
	cmds := ch.cmds()
	var room [64]byte
	shape := room[:0]
	for _, m := range cmds {
		shape = append(append(shape, m[0].(string)...), byte('0'+len(m)))
		if m[1] != any(ch.Key) {
			shape = append(shape, '+') // another key
		}
	}
	scriptsMu.RLock()
	known := scripts[string(shape)]
	scriptsMu.RUnlock()
	if known == nil {
		known = newLua(ch, cmds)
		scriptsMu.Lock()
		scripts[string(shape)] = known
		scriptsMu.Unlock()
	}
	return known, cmds
}

func newLua(ch *Change, cmds []Cmd) *luaScript {
	var b strings.Builder
	b.WriteString("if redis.call('GET', KEYS[1]) ~= ARGV[1] then\n\treturn false\nend\n")
	keys, arg := 1, 1
	for i, m := range cmds {
		key := 1
		if m[1] != any(ch.Key) {
			keys++
			key = keys
		}
		fmt.Fprintf(&b, "local r%d = redis.call('%s', KEYS[%d]", i+1, m[0], key)
		for range m[2:] {
			arg++
			fmt.Fprintf(&b, ", ARGV[%d]", arg)
		}
		b.WriteString(")\n")
		if i == 0 {
			b.WriteString("if r1 == 0 then\n\treturn false\nend\n") // before 2.8 a key can expire while a script runs
		}
	}
	if len(cmds) == 1 {
		b.WriteString("return r1\n")
	} else {
		b.WriteString("return {r1")
		for i := range cmds[1:] {
			fmt.Fprintf(&b, ", r%d", i+2)
		}
		b.WriteString("}\n")
	}
	s := redis.NewScript(-1, b.String())
	return &luaScript{source: b.String(), sha: s.Hash(), keys: keys}
}

// send sends the script, by its hash or with its source.
func (s *luaScript) send(w *write, by string, ch *Change, cmds []Cmd) {
	if w.err != nil {
		return
	}
	from := len(w.args)
	text := s.sha
	if by == "EVAL" {
		text = s.source
	}
	w.args = append(w.args, text, s.keys, ch.Key)
	for _, m := range cmds {
		if m[1] != any(ch.Key) {
			w.args = append(w.args, m[1])
		}
	}
	w.args = append(w.args, ch.Value)
	for _, m := range cmds {
		w.args = append(w.args, m[2:]...)
	}
	w.err = w.c.Send(by, w.args[from:len(w.args):len(w.args)]...)
	w.n++
}
