package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/race"
)

// holds reports whether the client counts as a holder now.
func (c *client) holds(now time.Time) bool {
	return c.state == race.Holds && (c.until.IsZero() || c.until.After(now))
}

// lapse ends the holds with expired leases.
func (r *run) lapse() {
	for _, c := range r.clients {
		if c.state == race.Holds && !c.holds(r.now) {
			c.state = race.RunOut
		}
	}
}

// holder returns the client that counts as the holder; of several the writer of the key.
func (r *run) holder() *client {
	if r.writer != nil && r.writer.holds(r.now) {
		return r.writer
	}
	if i := slices.IndexFunc(r.clients, func(c *client) bool { return c.holds(r.now) }); i >= 0 {
		return r.clients[i]
	}
	return nil
}

func (c *client) belief(r *run) race.Belief {
	b := race.Belief{State: c.state, Until: -1, Now: r.since(r.now)}
	if (c.state == race.Holds || c.state == race.RunOut) && !c.until.IsZero() {
		b.Until = r.since(c.until)
	}
	return b
}

// take makes the client the holder.
func (r *run) take(c *client, value string, lease time.Duration) {
	c.state, r.writer, c.until = race.Holds, c, time.Time{}
	if lease > 0 {
		c.until = r.now.Add(lease)
	} else if until, ok := deadline(r.key, value, r.now); ok {
		c.until = until
	}
}

// An executed is a command of a client, with its answer and its circumstances.
type executed struct {
	args    []string
	answer  any
	held    *client // who held the lock before
	watched bool    // the client watches the key
	script  bool    // it ran in one
}

// believe notes a client's conclusion from an answer, and returns it in words. known: locks are known to send
// this command.
func (r *run) believe(c *client, e executed) (says string, known bool) {
	args, answer := e.args, e.answer
	name := strings.ToUpper(args[0])
	on := len(args) > 1 && args[1] == r.key
	one := answer == int64(1)
	looked := c.looks // with the command before this one
	c.looks = name == "GET" && on
	if _, failed := answer.(redis.Error); failed {
		return c.name + " gets an error", true
	}
	switch {
	case name == "WATCH" && on:
		return c.name + " watches the key", true
	case name == "GET" && on:
		return c.name + " looks at the key", true
	case name == "SETNX" && on && len(args) > 2, name == "RENAMENX" && len(args) == 3 && args[2] == r.key, name == "MSETNX" && on && len(args) > 2:
		c.does(e.script, "takes it with "+name)
		if !one {
			return r.refused(c, e.held), true
		}
		value := ""
		if name != "RENAMENX" {
			value = args[2]
		}
		r.take(c, value, 0)
		return c.name + " takes the lock: the key was free", true
	case name == "SET" && on && len(args) > 2, (name == "SETEX" || name == "PSETEX") && on && len(args) == 4:
		return r.sets(c, e), true
	case name == "GETSET" && on && len(args) > 2:
		return r.getset(c, e), true
	case on && len(args) > 2 && slices.Contains([]string{"EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"}, name):
		return r.expires(c, e), true
	case on && (name == "HINCRBY" || name == "HSET" || name == "HSETNX" || name == "HDEL"):
		return r.hash(c, e), true
	case on && (name == "PTTL" || name == "TTL" || name == "EXISTS" || name == "HEXISTS" || name == "HGET" || name == "HGETALL"):
		if name == "PTTL" && e.script && e.held != nil && e.held != c { // how a script tells for how long it is refused
			return r.refused(c, e.held), true
		}
		return "", true
	case (name == "DELIFEQ" || name == "DELEX") && on:
		c.does(e.script, "releases it with "+name)
		if answer == int64(0) {
			c.state, c.until = race.Idle, time.Time{}
			return c.name + " removes nothing: the key is gone, or holds another value", true
		}
		return r.removes(c, true), true
	case name == "GETDEL" && on:
		c.does(e.script, "releases it with GETDEL")
		return r.removes(c, answer != nil), true
	case (name == "DEL" || name == "UNLINK") && slices.Contains(args[1:], r.key):
		switch {
		case e.script:
			c.does(false, "releases it in a script")
		case e.watched:
			c.does(false, "releases it with WATCH and EXEC")
		case looked:
			c.does(false, "releases it with GET, then DEL")
		default:
			c.does(false, "releases it with DEL, without looking")
		}
		return r.removes(c, answer != int64(0)), true
	}
	return "", false
}

// unknownCommand notes the effect of an unknown command on the lock, if it had any.
func (r *run) unknownCommand(c *client, had string, e executed) string {
	is := r.content()
	switch {
	case is == had:
		return ""
	case is == "":
		c.does(e.script, "releases it with other commands")
		return r.removes(c, true)
	case e.held == c:
		c.does(e.script, "extends it with other commands")
		r.take(c, is, 0)
		return c.name + " extends its lease"
	}
	c.does(e.script, "takes it with other commands")
	r.take(c, is, 0)
	return c.name + " takes the lock"
}

func (r *run) refused(c *client, held *client) string {
	if c.state != race.Holds && c.state != race.RunOut {
		c.state = race.Asking
	}
	if held != nil && held != c {
		return fmt.Sprintf("%s is refused: %s holds the lock", c.name, held.name)
	}
	return c.name + " is refused: the key is there"
}

// sets judges a SET, with or without a condition and a TTL.
func (r *run) sets(c *client, e executed) string {
	o, held := r.options(e.args), e.held
	value, _ := written(e.args, r.key)
	holds := c.holds(r.now)
	switch {
	case o.same != nil && !holds:
		c.does(e.script, "sets it with IFEQ")
	case o.nx && o.lease > 0:
		c.does(e.script, "takes it with SET NX and a TTL")
	case o.nx:
		c.does(e.script, "takes it with SET NX")
	case e.watched && !holds:
		c.does(e.script, "takes it with WATCH and EXEC")
	case !holds:
		c.does(e.script, "sets it without a condition")
	}
	if !o.done(e.answer) {
		if o.same != nil && holds {
			c.state, c.until = race.Lost, time.Time{}
			return c.name + " learns that the key holds another value"
		}
		return r.refused(c, e.held)
	}
	mine := holds && held == c
	r.take(c, value, o.lease)
	if o.keeps {
		c.until = r.ends()
	}
	switch {
	case mine && o.same != nil:
		c.does(e.script, "extends it with IFEQ")
		return c.name + " extends its lease"
	case mine:
		c.does(false, "extends it by writing it anew")
		return c.name + " extends its lease"
	case held != nil && held != c:
		return fmt.Sprintf("%s takes the lock, which %s holds", c.name, held.name)
	}
	return c.name + " takes the lock"
}

func (r *run) getset(c *client, e executed) string {
	value := e.args[2]
	old, had := e.answer.([]byte)
	mine := e.held == c && c.holds(r.now)
	if !mine {
		c.does(false, map[bool]string{false: "takes it over with GETSET", true: "takes it with WATCH and EXEC"}[e.watched])
	}
	until, timed := deadline(r.key, string(old), r.now)
	switch {
	case mine && had:
		r.take(c, value, 0)
		return c.name + " extends its lease"
	case !had:
		r.take(c, value, 0)
		return c.name + " takes the lock: the key was free"
	case timed && !until.After(r.now):
		r.take(c, value, 0)
		return c.name + " takes the lock over: the time on the key was past"
	}
	r.writer = c
	return r.refused(c, e.held) + ", and its value is on the key now"
}

func (r *run) expires(c *client, e executed) string {
	lease := r.lease(e.args[2], map[string]string{"EXPIRE": "EX", "PEXPIRE": "PX", "EXPIREAT": "EXAT", "PEXPIREAT": "PXAT"}[strings.ToUpper(e.args[0])])
	switch {
	case lease <= 0 || e.answer != int64(1):
		return "there is no key whose TTL " + c.name + " could set"
	case c.state == race.Holds && r.writer == c:
		if c.until.IsZero() {
			c.does(e.script, "sets its TTL with a second command")
		} else {
			c.does(e.script, "extends it with "+map[bool]string{false: "EXPIRE", true: "WATCH and EXEC"}[e.watched && !e.script])
		}
		c.until = r.now.Add(lease)
		return fmt.Sprintf("%s's lease ends %v from now", c.name, lease)
	case e.held != nil && e.held != c:
		return fmt.Sprintf("%s sets a TTL on the lock of %s", c.name, e.held.name)
	}
	c.does(e.script, "sets a TTL on a key that has none")
	return c.name + " sets a TTL on the key"
}

func (r *run) removes(c *client, there bool) string {
	had := c.state
	c.state, c.until = race.Idle, time.Time{}
	owner := r.writer
	if there {
		r.writer = nil
	}
	switch {
	case !there:
		return c.name + " finds nothing to remove"
	case owner != nil && owner != c && owner.holds(r.now):
		return fmt.Sprintf("%s removes the lock of %s", c.name, owner.name)
	case had == race.Holds || had == race.RunOut:
		return c.name + " releases the lock"
	}
	return c.name + " removes the key"
}

// broken returns the invariant that a step broke.
func (r *run) broken(by *client, before race.Server) *race.Violation {
	if r.unjudged != "" {
		return nil
	}
	var holders []string
	for _, c := range r.clients {
		if c.holds(r.now) {
			holders = append(holders, c.name)
		}
	}
	if len(holders) > 1 && by.holds(r.now) && !r.readers() && !r.shownBefore(holders) {
		both := "both hold"
		if len(holders) > 2 {
			both = "all hold"
		}
		return &race.Violation{Invariant: "exclusion", Text: fmt.Sprintf("%s %s the lock", strings.Join(holders, " and "), both)}
	}
	if before.Writer != "" && before.Writer != by.name && r.writer != nil != (before.Value != "") {
		if i := slices.IndexFunc(r.clients, func(c *client) bool { return c.name == before.Writer }); i >= 0 && r.clients[i].holds(r.now) {
			return &race.Violation{Invariant: "ownership", Text: fmt.Sprintf("%s removed the lock of %s", by.name, before.Writer)}
		}
	}
	return nil
}

// shownBefore reports whether the step before showed the same holders.
func (r *run) shownBefore(holders []string) bool {
	if len(r.trace.Events) == 0 {
		return false
	}
	last := r.trace.Events[len(r.trace.Events)-1]
	for _, h := range holders {
		if b := last.Belief[h]; b.State != race.Holds {
			return false
		}
	}
	return true
}
