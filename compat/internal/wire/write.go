package wire

import (
	"fmt"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// A Write is commands that are sent together. Their arguments are one piece of memory: what
// a connection keeps of them is that, so that the commands need not outlive the call, and cost
// nothing.
type Write struct {
	Args []any // of the commands so far

	c    *Conn
	n    int
	err  error
	held string // the last command: if it stays the only one, its reply comes without a list
	from int    // where its arguments begin
}

// Compose begins a write of so many arguments.
func (c *Conn) Compose(arguments int) Write {
	// The Conn's room is free again when the replies are here; if they never came, the
	// goroutine that was to send may still read it.
	if arguments <= len(c.args) && c.Err() == nil {
		return Write{c: c, Args: c.args[:0]}
	}
	return Write{c: c, Args: make([]any, 0, arguments)}
}

// Arguments is how many cmds have.
func Arguments[C ~[]any](cmds []C) int {
	n := 0
	for _, m := range cmds {
		n += len(m) - 1
	}
	return n
}

// Add adds a command.
func (w *Write) Add(name string, args ...any) { w.Put(name, append(w.Args, args...)) }

// Put adds a command whose arguments are what args has beyond Args.
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

// Multi adds MULTI, and the commands of that transaction.
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

// Replies sends what is left, and returns the replies to all. An error the server gave for one of
// them is a redis.Error in its place; the error returned is the connection's, and then any of them
// may have run.
func (w *Write) Replies() ([]any, error) {
	if w.n == 1 {
		reply, err := w.c.Do(w.held, w.Args...)
		if answer.Refused(err) {
			reply, err = err, nil
		}
		return w.c.alone(reply), err
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

// alone is one reply as a list, in the Conn's room as long as there is any in this step.
func (c *Conn) alone(reply any) []any {
	if c.few == len(c.single) {
		return []any{reply}
	}
	c.single[c.few] = reply
	c.few++
	return c.single[c.few-1 : c.few : c.few]
}

// Short is the error of a pipeline that was answered in part.
func Short(got, want int, what string) error {
	return fmt.Errorf("setnxlock: %d replies to %d %s", got, want, what)
}

// Exec sends a write that is all of a transaction but for its EXEC: see Transacted.
func (w *Write) Exec() ([]any, error) {
	w.Add("EXEC")
	replies, err := w.Replies()
	if err != nil {
		return nil, err
	}
	return w.c.Transacted(replies)
}

// Executed is Transacted, and the first error among the replies.
func (c *Conn) Executed(replies []any) ([]any, error) {
	done, err := c.Transacted(replies)
	if err != nil {
		return nil, err
	}
	return done, answer.First(done)
}

// Transacted makes of the replies to MULTI, commands and EXEC those to the commands; nil if EXEC did nothing because a
// watched key was touched. It looks at every reply: before 2.6.5 a command that could not be queued is left out and the rest
// runs (tx/half-queued), and errors inside an EXEC are values, not errors. An error among the replies is that of a command
// which could not be queued, or did not run. The error returned is EXEC's own.
//
// Redis 2.0–2.4 refuse EXEC itself when they are over maxmemory, and stay in MULTI; redigo
// believes that MULTI ended when EXEC was sent, so its pool would hand out a connection that
// answers QUEUED to everything. Hence the DISCARD.
func (c *Conn) Transacted(replies []any) ([]any, error) {
	last := len(replies) - 1
	queued, ran := replies[1:last], replies[last]
	if e, refused := ran.(redis.Error); refused {
		c.Do("DISCARD") //nolint:errcheck // "without MULTI" is as good; a dead connection says so by itself
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
