package compat

import (
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Cmd is a command and its arguments: Cmd{"EXPIRE", key, 30}.
type Cmd []any

// one is one command, for a Change: one piece of memory.
func one(name string, args ...any) []Cmd {
	b := new(struct {
		cmd  [1]Cmd
		args [5]any
	})
	b.args[0] = name
	b.cmd[0] = append(b.args[:1], args...)
	return b.cmd[:]
}

// A Write is commands that travel together: one round trip. Do are those that decide. They
// run in MULTI/EXEC if Exec is set or a fence is drawn; under a WATCH that Conn.Watch began
// before, the EXEC does nothing if somebody touched the key.
type Write struct {
	Before []Cmd
	Do     []Cmd
	Exec   bool
	Draw   bool // INCR Aux(key, "fence") in the EXEC
	After  []Cmd

	// Read reads the key behind everything else. Last says that nothing of the algorithm's
	// follows: the engine may then read it under a WATCH, to pin the connection.
	Read, Last bool
}

// written is what the server answered to a Write.
type written struct {
	Before []any
	Done   []any // replies to Do; nil if an EXEC was aborted
	Fence  int64 // the number that was drawn
	Seen   reading
}

// Write sends m, which is about key. An error is the connection's, and then anything may have run; or the first
// that the server answered to Do.
func (c *Conn) Write(key string, m Write) (written, error) {
	exec, pins := m.Exec || m.Draw, c.pins && m.Last
	reads := m.Read || pins
	n := arguments(m.Before) + arguments(m.Do) + arguments(m.After) + 3
	w := c.compose(n)
	w.all(m.Before)
	if exec {
		w.send(Cmd{"MULTI"})
	}
	w.all(m.Do)
	if m.Draw {
		w.send(Cmd{"INCR", Aux(key, "fence")})
	}
	if exec {
		w.send(Cmd{"EXEC"})
	}
	w.all(m.After)
	var k any
	if reads {
		k = c.boxed(key, m.Do)
	}
	if pins {
		w.send(Cmd{"WATCH", k})
	}
	if reads {
		w.send(Cmd{"GET", k})
	}
	replies, err := w.replies()
	if err != nil {
		return written{}, err
	}
	var out written
	if reads {
		out.Seen.get, replies = replies[len(replies)-1], replies[:len(replies)-1]
	}
	if pins {
		out.Seen.watch = replies[len(replies)-1]
		c.seen = out.Seen
	}
	out.Before, replies = replies[:len(m.Before)], replies[len(m.Before):]
	if !exec {
		out.Done = replies[:len(m.Do)]
		return out, first(out.Done, nil)
	}
	all := len(m.Do) + 2
	if m.Draw {
		all++
	}
	out.Done, err = c.executed(replies[:all])
	if err == nil && m.Draw && out.Done != nil {
		last := len(out.Done) - 1
		if out.Fence, err = redis.Int64(out.Done[last], nil); err == nil {
			out.Done = out.Done[:last]
		}
	}
	return out, err
}

// A reading is what a write that ended with GET saw of the key.
type reading struct{ watch, get any }

// Value is what the key held; exists is false if there was no such key. The error is
// ErrForeign if it is not a string, or the server's refusal.
func (r reading) Value(key string) (value string, exists bool, err error) {
	if e, refused := r.watch.(redis.Error); refused {
		return "", false, e
	}
	value, err = redis.String(r.get, nil)
	if err == redis.ErrNil {
		return "", false, nil
	}
	return value, err == nil, foreign(key, err)
}

// Holds reports whether the key held value.
func (r reading) Holds(value string) bool {
	switch v := r.get.(type) {
	case []byte:
		return string(v) == value
	case string:
		return v == value
	}
	return false
}

// Gone reports whether the key was seen, and did not hold value.
func (r reading) Gone(value string) bool {
	_, refused := r.get.(redis.Error)
	return !refused && !r.Holds(value)
}

// Watches reports that the reading was made under a WATCH.
func (r reading) Watches() bool { return r.watch == "OK" }

// watches reports whether the connection watches the key since it held value: the WATCH was
// begun before a GET found it there. A WATCH that nothing proves guards nobody knows what
// (tx/unverified-watch).
func (r reading) watches(value string) bool { return r.watch == "OK" && r.Holds(value) }

// Refused is the error of an attempt on key that was refused: a *HeldError with the value
// that was seen, or ErrForeign if the key is not a string.
func (r reading) Refused(key string) error {
	value, _, err := r.Value(key)
	if err != nil {
		return err
	}
	return &HeldError{Key: key, Value: value}
}

// Pipe sends cmds in one write and returns their replies in order. An error the server gave
// for one of them is a redis.Error in its place; the error returned is the connection's, and
// then any of them may have run.
func (c *Conn) Pipe(cmds ...Cmd) ([]any, error) {
	w := c.compose(arguments(cmds))
	w.all(cmds)
	return w.replies()
}

// A write is commands that are sent together. Their arguments are one piece of memory: what
// a connection keeps of them is that, so that the Cmds need not outlive the call, and cost
// nothing.
type write struct {
	c    *Conn
	args []any
	n    int
	err  error

	held string // the last command: if it stays the only one, its reply comes without a list
	from int    // where its arguments begin
}

func (c *Conn) compose(arguments int) write {
	// The Conn's room is free again when the replies are here; if they never came, the
	// goroutine that was to send may still read it.
	if arguments <= len(c.args) && c.Err() == nil {
		return write{c: c, args: c.args[:0]}
	}
	return write{c: c, args: make([]any, 0, arguments)}
}

func arguments(cmds []Cmd) int {
	n := 0
	for _, m := range cmds {
		n += len(m) - 1
	}
	return n
}

func (w *write) send(m Cmd) {
	w.add(m[0].(string), append(w.args, m[1:]...))
}

// add sends a command whose arguments are what args has beyond those of the commands before.
func (w *write) add(name string, args []any) {
	w.pass()
	w.held, w.from, w.args = name, len(w.args), args
	w.n++
}

// pass hands the last command to the connection.
func (w *write) pass() {
	if w.held != "" && w.err == nil {
		w.err = w.c.Send(w.held, w.args[w.from:len(w.args):len(w.args)]...)
	}
	w.held = ""
}

func (w *write) all(cmds []Cmd) {
	for _, m := range cmds {
		w.send(m)
	}
}

// replies sends what is left, and returns the replies to all.
func (w *write) replies() ([]any, error) {
	if w.n == 1 {
		reply, err := w.c.Do(w.held, w.args...)
		if e, refused := err.(redis.Error); refused {
			reply, err = e, nil
		}
		return w.c.alone(reply), err
	}
	if w.pass(); w.err != nil {
		return nil, w.err
	}
	replies, err := redis.Values(w.c.Do(""))
	if err == nil && len(replies) != w.n {
		err = countError(len(replies), w.n, "commands")
	}
	return replies, err
}

// decided is replies for a write that removes the key if done says so: with it goes the
// wake-up of a client that waits elsewhere.
func (w *write) decided(done func(replies []any) bool) ([]any, error) {
	k := w.c.wake
	if k == nil {
		return w.replies()
	}
	own := w.n
	w.all(k.cmds[:])
	replies, err := w.replies()
	if err != nil {
		k.err = err
		return nil, err
	}
	k.woken = k.woken || replies[own] != nil
	if e := first(replies[own:], nil); e != nil {
		k.woken, k.err = false, e
	}
	if replies = replies[:own:own]; done(replies) {
		w.c.wake = nil
	}
	return replies, nil
}

// aborts is how often an EXEC may be aborted before its change is given up.
const aborts = 8

// Exec runs cmds in one MULTI/EXEC, in one write, and returns their replies, nil if EXEC did
// nothing because a watched key was touched. It looks at every reply: before 2.6.5 a command
// that could not be queued is left out and the rest runs (tx/half-queued), and errors inside
// an EXEC are values, not errors.
//
// Redis 2.0–2.4 refuse EXEC itself when they are over maxmemory, and stay in MULTI; redigo
// believes that MULTI ended when EXEC was sent, so its pool would hand out a connection that
// answers QUEUED to everything. Hence the DISCARD.
func (c *Conn) Exec(cmds ...Cmd) ([]any, error) {
	w := c.compose(arguments(cmds))
	w.multi(cmds)
	return w.exec()
}

// multi is MULTI; cmds…
func (w *write) multi(cmds []Cmd) {
	w.send(Cmd{"MULTI"})
	w.all(cmds)
}

// exec ends a transaction that is all of the write, and returns what Exec does. The replies
// that only say that a command was queued are not kept.
func (w *write) exec() ([]any, error) {
	c := w.c
	if c.wake != nil {
		w.send(Cmd{"EXEC"})
		replies, err := w.decided(execRan)
		if err != nil {
			return nil, err
		}
		return c.executed(replies)
	}
	if w.pass(); w.err != nil {
		return nil, w.err
	}
	reply, err := c.exec()
	_, undone := reply.(redis.Error)
	switch {
	case err != nil && !answer.Refused(err):
		return nil, err
	case undone:
		c.Do("DISCARD") //nolint:errcheck // as in transacted
		return nil, err
	case reply == nil && c.session.Aborted():
		return nil, nil
	}
	done, _ := reply.([]any)
	if err == nil && len(done) != w.n-1 {
		err = countError(len(done), w.n-1, "commands of an EXEC")
	}
	if err == nil {
		err = first(done, nil)
	}
	return done, err
}

// executed is what Exec makes of the replies to MULTI, commands and EXEC.
func (c *Conn) executed(replies []any) ([]any, error) {
	done, err := c.transacted(replies)
	if err != nil {
		return nil, err
	}
	return done, first(done, nil)
}

// transacted is executed for a caller that looks at the replies one by one: an error among
// them is that of a command which could not be queued, or did not run. The error returned is
// EXEC's own.
func (c *Conn) transacted(replies []any) ([]any, error) {
	queued, ran := replies[1:len(replies)-1], replies[len(replies)-1]
	if e, refused := ran.(redis.Error); refused {
		c.Do("DISCARD") //nolint:errcheck // "without MULTI" is as good; a dead connection says so by itself
		return nil, first(replies[:len(replies)-1], e)
	}
	if err := first(replies[:1], nil); err != nil {
		return nil, err
	}
	if ran == nil && c.session.Aborted() {
		return nil, nil
	}
	done, err := redis.Values(ran, nil)
	for i, q := range queued {
		if _, refused := q.(redis.Error); refused {
			continue
		}
		if err != nil || len(done) == 0 {
			return nil, countError(i, len(queued), "commands of an EXEC")
		}
		queued[i], done = done[0], done[1:]
	}
	if len(done) > 0 {
		return nil, countError(len(queued)+len(done), len(queued), "commands of an EXEC")
	}
	return queued, nil
}

// execRan reports that the EXEC whose reply is the last one ran.
func execRan(replies []any) bool {
	last := replies[len(replies)-1]
	_, refused := last.(redis.Error)
	return !refused && last != nil
}

// first returns the first of replies that is an error, or e.
func first(replies []any, e error) error {
	for _, r := range replies {
		if err, ok := r.(redis.Error); ok {
			return err
		}
	}
	return e
}

// Watch starts to WATCH key and reads it, in one write. exists is false if there is no such
// key: on Redis 2.2.0–2.2.9 it is this read, not a SETNX, that makes the server notice an
// expired key.
func (c *Conn) Watch(key string) (value string, exists bool, err error) {
	k := any(key)
	replies, err := c.Pipe(Cmd{"WATCH", k}, Cmd{"GET", k})
	if err != nil {
		return "", false, err
	}
	if err := first(replies, nil); err != nil {
		c.Unwatch()
		return "", false, foreign(key, err)
	}
	value, err = redis.String(replies[1], nil)
	if err == redis.ErrNil {
		return "", false, nil
	}
	return value, true, err
}

// Unwatch ends a WATCH that no EXEC will end. A connection that went back to a pool under
// WATCH would abort its next user's EXEC (tx/stale-watch-in-pool).
func (c *Conn) Unwatch() {
	c.Do("UNWATCH") //nolint:errcheck // a dead connection watches nothing
}

// boxed is key as an argument: the one that stands in cmds, or the one of the step before.
func (c *Conn) boxed(key string, cmds []Cmd) any {
	for _, m := range cmds {
		for _, arg := range m[1:] {
			if s, ok := arg.(string); ok && s == key {
				c.key = arg
			}
		}
	}
	if s, ok := c.key.(string); !ok || s != key {
		c.key = key
	}
	return c.key
}

// alone is one reply as a list, in the Conn's room as long as there is any in this step.
func (c *Conn) alone(reply any) []any {
	if c.few == len(c.single) {
		return []any{reply}
	}
	c.single[c.few] = reply
	c.few++
	return c.single[c.few-1 : c.few : c.few]
}

// named reports whether m is the command of that name.
func named(m Cmd, name string) bool {
	s, ok := m[0].(string)
	return ok && strings.EqualFold(s, name)
}
