package protocol

import (
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/script"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// The condition kept by a script, Redis 2.6 and later where scripts are allowed. One round
// trip:
//
//	EVALSHA sha 1 key value arguments…     [nil value]: not ours, and what the key holds; nil: gone meanwhile
//
// Package script makes it of the change's commands.
//
// A server that does not know it yet, or has forgotten it (a restart, a failover, SCRIPT
// FLUSH), answers NOSCRIPT without having run anything, and gets the source. With a wake-up
// the source is sent at once: what wakes a client would run behind a NOSCRIPT, too.
func (c *Conn) script(ch *Change) ([]any, error) {
	if c.wire.Wake != nil {
		return c.evaluate("EVAL", ch)
	}
	replies, err := c.evaluate("EVALSHA", ch)
	if answer.NoScript(err) {
		replies, err = c.evaluate("EVAL", ch)
	}
	return replies, err
}

// evaluate sends one script, by its hash or with its source.
func (c *Conn) evaluate(by string, ch *Change) ([]any, error) {
	cmds := ch.lua()
	w := c.wire.Compose(wire.Arguments(cmds) + 3)
	ch.addScript(&w, by, cmds)
	all, err := w.Removing(func(replies []any) bool {
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
	cmds := ch.lua()
	switch r := returned[0].(type) {
	case nil:
		return nil, ErrLost
	case redis.Error:
		return nil, Foreign(ch.Key, r)
	case []any:
		if len(r) == 2 && r[0] == nil {
			held, exists := r[1].([]byte)
			return nil, lostTo(ch.Key, string(held), exists)
		}
		returned = r
	}
	if len(cmds) != len(returned) {
		return nil, wire.Short(len(returned), len(cmds), "commands of a script")
	}
	script.Numbers(cmds, returned)
	return returned, nil
}

// allScripts sends many in one write. One that the server does not know did not run: it was refused.
func (c *Conn) allScripts(changes []Change, replies [][]any, errs []error) {
	n := 0
	for i := range changes {
		n += wire.Arguments(changes[i].Do) + 5
	}
	w := c.wire.Compose(n)
	for i := range changes {
		changes[i].addScript(&w, "EVALSHA", changes[i].lua())
	}
	all, err := w.Replies()
	for i := range changes {
		if err != nil {
			errs[i] = err
			continue
		}
		replies[i], errs[i] = scripted(&changes[i], all[i:i+1])
	}
}

var deletion = []Cmd{{"DEL", nil}}

// lua are the commands of the script for ch.
func (ch *Change) lua() []Cmd {
	if ch.removes() && !ch.Draw { // most often
		return deletion
	}
	return ch.cmds()
}

// addScript adds the script for ch, whose commands are cmds.
func (ch *Change) addScript(w *wire.Write, by string, cmds []Cmd) {
	w.Put(by, script.Append(w.Args, script.For(ch.Key, cmds), by == "EVAL", ch.Key, ch.Value, cmds))
}
