package wire

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Write sends commands together. Their arguments share one piece of memory, and the connection keeps only
// that: the commands need not outlive the call, and cost no allocation.
type Write struct {
	Args []any // of the commands so far

	c    *Conn
	n    int
	err  error
	held string // the last command: the reply to a single command comes without a list
	from int    // where held's arguments begin
}

// Compose begins a write with room for so many arguments.
func (c *Conn) Compose(arguments int) Write {
	// The Conn's room is free again after the replies. If they never came, redigo's goroutine may still read
	// the room.
	if arguments <= len(c.args) && c.Err() == nil {
		return Write{c: c, Args: c.args[:0]}
	}
	return Write{c: c, Args: make([]any, 0, arguments)}
}

// Arguments counts the arguments of cmds.
func Arguments[C ~[]any](cmds []C) int {
	n := 0
	for _, m := range cmds {
		n += len(m) - 1
	}
	return n
}

// Add adds a command.
func (w *Write) Add(name string, args ...any) { w.Put(name, append(w.Args, args...)) }

// Put adds a command. Its arguments are the part of args beyond w.Args.
func (w *Write) Put(name string, args []any) {
	w.pass()
	w.held, w.from, w.Args = name, len(w.Args), args
	w.n++
}

// All adds commands.
func All[C ~[]any](w *Write, cmds []C) {
	for _, m := range cmds {
		w.Add(m[0].(string), m[1:]...)
	}
}

// Multi adds MULTI and cmds.
func Multi[C ~[]any](w *Write, cmds []C) {
	w.Add("MULTI")
	All(w, cmds)
}

// pass hands the last command to the connection.
func (w *Write) pass() {
	if w.held != "" && w.err == nil {
		w.err = w.c.Send(w.held, w.Args[w.from:len(w.Args):len(w.Args)]...)
	}
	w.held = ""
}

// Replies sends the last command, and returns the replies to all. A server's error stands among the replies, as a
// redis.Error. The returned error is the connection's: any of the commands may then have run.
func (w *Write) Replies() ([]any, error) {
	if w.n == 1 {
		reply, err := w.c.Do(w.held, w.Args...)
		if answer.Refused(err) {
			reply, err = err, nil
		}
		return w.c.list(reply), err
	}
	if w.pass(); w.err != nil {
		return nil, w.err
	}
	replies, err := redis.Values(w.c.Do(""))
	if err == nil && len(replies) != w.n {
		err = Short(len(replies), w.n, "commands")
	}
	return replies, err
}

// list makes a list of a single reply. It allocates only when the Conn's room is used up in this step.
func (c *Conn) list(reply any) []any {
	if c.used == len(c.single) {
		return []any{reply}
	}
	c.single[c.used] = reply
	c.used++
	return c.single[c.used-1 : c.used : c.used]
}

// Short returns the error for a pipeline with too few replies, or too many.
func Short(got, want int, what string) error {
	return fmt.Errorf("setnxlock: %d replies to %d %s", got, want, what)
}

// Exec adds EXEC to a write that begins with MULTI, and sends it. It returns the results of Transacted.
func (w *Write) Exec() ([]any, error) {
	w.Add("EXEC")
	replies, err := w.Replies()
	if err != nil {
		return nil, err
	}
	return w.c.Transacted(replies)
}

// Executed returns the results of Transacted, and the first error among the replies.
func (c *Conn) Executed(replies []any) ([]any, error) {
	done, err := c.Transacted(replies)
	if err != nil {
		return nil, err
	}
	return done, answer.First(done)
}

// Transacted turns the replies to MULTI, commands and EXEC into the replies to the commands. It returns nil if
// EXEC did nothing: a watched key was touched. Transacted looks at every reply. Before 2.6.5 the server leaves
// out a command that it could not queue, and runs the rest (tx/half-queued); and errors inside an EXEC are
// values, not errors. An error among the replies belongs to a command that was not queued, or did not run. The
// returned error is EXEC's own.
//
// Redis 2.0–2.4 over maxmemory refuse EXEC itself, and stay in MULTI. redigo takes MULTI for ended after EXEC:
// its pool would hand out a connection that answers QUEUED to everything. Transacted sends a DISCARD against
// that.
func (c *Conn) Transacted(replies []any) ([]any, error) {
	last := len(replies) - 1
	queued, ran := replies[1:last], replies[last]
	if e, refused := ran.(redis.Error); refused {
		c.Do("DISCARD") //nolint:errcheck // "without MULTI" proves as much; a dead connection reports itself
		if earlier := answer.First(replies[:last]); earlier != nil {
			return nil, earlier
		}
		return nil, e
	}
	if err := answer.First(replies[:1]); err != nil {
		return nil, err
	}
	if ran == nil && c.Session.Aborted() {
		return nil, nil
	}
	done, err := redis.Values(ran, nil)
	for i, q := range queued {
		if _, refused := q.(redis.Error); refused {
			continue
		}
		if err != nil || len(done) == 0 {
			return nil, Short(i, len(queued), "commands of an EXEC")
		}
		queued[i], done = done[0], done[1:]
	}
	if len(done) > 0 {
		return nil, Short(len(queued)+len(done), len(queued), "commands of an EXEC")
	}
	return queued, nil
}
