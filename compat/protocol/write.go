package protocol

import (
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Cmd holds a command and its arguments: Cmd{"EXPIRE", key, 30}.
type Cmd []any

// A Write sends commands together, in one round trip. The commands in Do decide its outcome. They run in
// MULTI/EXEC if Exec or TakeFence is set. After [Conn.Watch] the EXEC does nothing if another client has touched the
// key.
type Write struct {
	Before    []Cmd
	Do        []Cmd
	Exec      bool
	TakeFence bool // take a fence: INCR Aux(key, "fence") in the EXEC
	After     []Cmd

	// Read reads the key after everything else.
	Read bool

	// Pins says that the connection may stay with the lease, under a WATCH begun before the read: the lease can
	// then be released in one round trip. The algorithm must send nothing after this Write, and no other client
	// may write the lease's value.
	Pins bool
}

// Written holds the server's answers to a [Write].
type Written struct {
	Before  []any
	Done    []any // replies to Do; nil if an EXEC was aborted
	Fence   int64 // the fence taken by TakeFence
	Reading Reading
}

// Write sends m for key. It returns the connection's error, after which any of the commands may have run, or
// the first error among the replies to m.Do.
func (c *Conn) Write(key string, m Write) (Written, error) {
	own := len(m.Do)
	if c.extra != nil {
		m.Do, c.replies = append(m.Do[:own:own], c.extra...), nil
	}
	exec, pins := m.Exec || m.TakeFence || c.extra != nil, c.wire.Pins && m.Pins
	reads := m.Read || pins
	w := c.wire.Compose(wire.Arguments(m.Before) + wire.Arguments(m.Do) + wire.Arguments(m.After) + 3)
	wire.All(&w, m.Before)
	if exec {
		w.Add("MULTI")
	}
	wire.All(&w, m.Do)
	if m.TakeFence {
		w.Add("INCR", Aux(key, "fence"))
	}
	if exec {
		w.Add("EXEC")
	}
	wire.All(&w, m.After)
	var k any
	if reads {
		k = c.keyArg(key, m.Do)
	}
	if pins {
		w.Add("WATCH", k)
	}
	if reads {
		w.Add("GET", k)
	}
	replies, err := w.Replies()
	if err != nil {
		return Written{}, err
	}
	var out Written
	if reads {
		out.Reading.of.Get, replies = replies[len(replies)-1], replies[:len(replies)-1]
	}
	if pins {
		out.Reading.of.Watch, replies = replies[len(replies)-1], replies[:len(replies)-1]
		c.wire.Saw = out.Reading.of
	}
	out.Before, replies = replies[:len(m.Before)], replies[len(m.Before):]
	if !exec {
		out.Done = replies[:len(m.Do)]
		return out, answer.First(out.Done)
	}
	out.Done, err = c.wire.Executed(replies[:len(replies)-len(m.After)])
	if last := len(out.Done) - 1; m.TakeFence && last >= 0 && answer.First(out.Done[:last]) == nil {
		out.Fence, err = c.Fence(key, out.Done[last])
		out.Done = out.Done[:last]
	}
	if c.extra != nil && out.Done != nil && err == nil {
		out.Done, c.replies = out.Done[:own], out.Done[own:]
	}
	return out, err
}

// Fence returns the fence in drawn: the reply to an INCR of Aux(key, "fence"), or the same digits as a string.
// It returns an error if the counter can't give a fence: it is no number, or below 1.
func (c *Conn) Fence(key string, drawn any) (int64, error) {
	switch e, refused := drawn.(redis.Error); {
	case refused && answer.Proves(e): // the server refuses the command, whatever the counter holds
		return 0, e
	case refused:
		return 0, noFence(key, e)
	}
	n, err := redis.Int64(drawn, nil)
	if err == nil && n < 1 {
		return 0, noFence(key, fmt.Errorf("its counter is at %d, and the first fence is 1", n))
	}
	return n, err
}

func noFence(key string, why error) error {
	return fmt.Errorf("setnxlock: no fence can be drawn for %q: %w", key, why)
}

// A Reading shows the key as a Write read it, after all its commands.
type Reading struct{ of wire.WatchReplies }

// Value returns the key's value; exists is false if there was no such key. The error is ErrForeign for a key
// that is not a string, or the server's refusal.
func (r Reading) Value(key string) (value string, exists bool, err error) {
	if e, refused := r.of.Watch.(redis.Error); refused {
		return "", false, e
	}
	value, err = redis.String(r.of.Get, nil)
	if err == redis.ErrNil {
		return "", false, nil
	}
	return value, err == nil, Foreign(key, err)
}

// Holds reports whether the key held value.
func (r Reading) Holds(value string) bool { return r.of.Holds(value) }

// Gone reports whether the key was read, and did not hold value.
func (r Reading) Gone(value string) bool {
	_, refused := r.of.Get.(redis.Error)
	return !refused && !r.Holds(value)
}

// Watches reports whether the connection was under a WATCH at the reading.
func (r Reading) Watches() bool { return r.of.Watch == "OK" }

// Refused returns the error of a refused attempt on key: a *HeldError with the value on the key, or ErrForeign
// if the key is not a string.
func (r Reading) Refused(key string) error {
	value, _, err := r.Value(key)
	if err != nil {
		return err
	}
	return &HeldError{Key: key, Value: value}
}

// Pipe sends cmds in one write and returns their replies in order. A server's error stands among the replies, as a
// [redis.Error]. The returned error is the connection's: any of the commands may then have run.
func (c *Conn) Pipe(cmds ...Cmd) ([]any, error) {
	w := c.wire.Compose(wire.Arguments(cmds))
	wire.All(&w, cmds)
	return w.Replies()
}

// Exec runs cmds in one MULTI/EXEC, in one write, and returns their replies. It returns nil if EXEC did
// nothing: another client had touched a watched key. The error is the first error among the server's replies:
// before Redis 2.6.5 the other commands have run all the same (tx/half-queued).
func (c *Conn) Exec(cmds ...Cmd) ([]any, error) {
	w := c.wire.Compose(wire.Arguments(cmds))
	wire.Multi(&w, cmds)
	replies, err := w.Exec()
	if err == nil {
		err = answer.First(replies)
	}
	return replies, err
}

// Watch starts to WATCH key and reads it, in one write. exists is false if there is no such key.
// (On Redis 2.2.0–2.2.9 this read makes the server notice an expired key; a SETNX does not.)
func (c *Conn) Watch(key string) (value string, exists bool, err error) {
	k := c.keyArg(key, nil)
	replies, err := c.Pipe(Cmd{"WATCH", k}, Cmd{"GET", k})
	if err != nil {
		return "", false, err
	}
	if value, exists, err = (Reading{wire.WatchReplies{Watch: replies[0], Get: replies[1]}}).Value(key); err != nil {
		c.Unwatch()
	}
	return value, exists, err
}

// Unwatch ends a WATCH without an EXEC. A connection that returned to a pool under WATCH could abort its next
// user's EXEC (tx/stale-watch-in-pool).
func (c *Conn) Unwatch() {
	if c.wire.Session.Watching {
		c.Do("UNWATCH") //nolint:errcheck // a dead connection watches nothing
	}
}

// keyArg converts key to an argument without an allocation, if it can: it takes the argument from cmds, or from
// the call before.
func (c *Conn) keyArg(key string, cmds []Cmd) any {
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

// named reports whether m runs the command name, in upper or lower case.
func named(m Cmd, name string) bool {
	s, ok := m[0].(string)
	return ok && strings.EqualFold(s, name)
}
