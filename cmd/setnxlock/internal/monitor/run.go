package monitor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/race"
)

// longest is for how long nothing may happen in a log.
const longest = 30 * 24 * time.Hour

// A run executes a log again.
type run struct {
	key     string
	server  *oldredis.Server
	conns   map[int]redis.Conn // by database
	db      int                // of the key, as it is first seen
	began   time.Time          // the first command that concerns the key
	now     time.Time
	clients []*client
	trace   race.Trace
	names   map[string]string // of values: "«C1»", "t=10s"
	writer  *client           // of what is on the key

	stamps   bool   // values are times
	unjudged string // why nothing is judged any more
}

// A client is an address of the log, or several: a sender with the holder's token has it from the holder.
type client struct {
	name      string
	addresses []string
	id        string // the field of a hash that is its; "": it is known by its addresses
	queued    []line // since MULTI
	multi     bool
	watches   bool // the key
	state     string
	until     time.Time // zero: its lease has no end that is known
	tokens    int
	habits
}

func newRun(key, version string, begins time.Time) (*run, error) {
	s, err := oldredis.New(version, oldredis.Options{Start: begins})
	if err != nil {
		return nil, err
	}
	return &run{key: key, server: s, conns: map[int]redis.Conn{}, db: -1, now: begins, names: map[string]string{}, trace: race.Trace{
		Format: race.TraceFormat, Title: "what MONITOR saw", Algorithm: "as MONITOR saw it", Server: version, Key: key,
		Start: race.Server{TTL: -1},
		Text: "MONITOR prints no replies: those here are what an embedded Redis " + version + " answers to the same commands at the same times, on a key that was free at first. " +
			"A client is taken to hold the lock until it removes it or its lease is over, by the server's clock.",
	}}, nil
}

// concerns reports a command with the key, or a key beside it, among its arguments.
func (r *run) concerns(l line) bool {
	return slices.ContainsFunc(l.args[1:], func(a string) bool {
		return a == r.key || strings.Contains(a, "{"+r.key+"}") || strings.HasPrefix(a, r.key+":")
	})
}

// runAll runs the lines, each with its script's.
func (r *run) runAll(lines []line) error {
	for i := 0; i < len(lines); {
		script := i + 1
		for script < len(lines) && lines[script].client == "lua" {
			script++
		}
		if lines[i].client != "lua" { // else its EVAL was before the log
			if err := r.step(lines[i], lines[i+1:script]); err != nil {
				return err
			}
		}
		i = script
	}
	return nil
}

func (r *run) step(l line, script []line) error {
	name := strings.ToUpper(l.args[0])
	id := r.field(l, script)
	c := r.client(l.client, id)
	concerns := r.concerns(l)
	if concerns && r.db < 0 {
		r.db = l.db
	}
	concerns = concerns && l.db == r.db
	switch {
	case name == "MULTI" && c != nil:
		c.multi, c.queued = true, nil
		return nil
	case name == "DISCARD" && c != nil:
		c.multi, c.watches = false, false
		return nil
	case name == "UNWATCH" && c != nil:
		c.watches = false
		return nil
	case name == "EXEC" && c != nil && c.multi:
		queued := c.queued
		c.multi, c.queued = false, nil
		watched := c.watches
		c.watches = false
		if queued == nil && !watched {
			return nil
		}
		return r.event(c, write{at: l.at, lines: queued, exec: true, watched: watched})
	case !concerns, c == nil && channels(name):
		return nil
	}
	if c == nil {
		if value := r.content(); id == "" && r.writer != nil && scripted(name) && slices.Contains(l.args[1:], value) {
			c = r.writer
			c.addresses = append(c.addresses, l.client)
		} else {
			c = &client{name: fmt.Sprintf("C%d", len(r.clients)+1), addresses: []string{l.client}, id: id, state: race.Idle}
			r.clients = append(r.clients, c)
		}
	}
	if c.multi {
		c.queued = append(append(c.queued, l), script...)
		return nil
	}
	c.watches = c.watches || name == "WATCH"
	return r.event(c, write{at: l.at, lines: []line{l}, script: script, watched: c.watches})
}

// channels reports a command about messages: a client of nothing else is no client of the lock.
func channels(name string) bool {
	return strings.HasSuffix(name, "SUBSCRIBE") || name == "PUBLISH" || name == "SPUBLISH"
}

// client finds the sender: by the holder's name in a hash, if the command has one, which may come over any
// connection.
func (r *run) client(address, id string) *client {
	i := slices.IndexFunc(r.clients, func(c *client) bool { return id != "" && c.id == id })
	if i < 0 {
		i = slices.IndexFunc(r.clients, func(c *client) bool { return slices.Contains(c.addresses, address) && (id == "" || c.id == "") })
	}
	if i < 0 {
		return nil
	}
	c := r.clients[i]
	if c.id = cmp.Or(c.id, id); !slices.Contains(c.addresses, address) {
		c.addresses = append(c.addresses, address)
	}
	return c
}

// A write is one sending of a client: a command with its script's commands, or the commands between MULTI and
// EXEC.
type write struct {
	at            time.Time
	lines, script []line
	exec, watched bool
}

// event adds one step to the trace: a command, with its script, or an EXEC with its commands.
func (r *run) event(c *client, w write) error {
	at, lines := w.at, w.lines
	if r.began.IsZero() {
		r.began = at
	}
	if len(r.trace.Events) == most {
		return fmt.Errorf("more than %d commands concern the key %q: cut the log", most, r.key)
	}
	if at.Sub(r.now) > longest {
		return fmt.Errorf("nothing happens for %v: cut the log, it holds several", at.Sub(r.now))
	}
	if at.After(r.now) {
		r.server.Advance(at.Sub(r.now))
		r.now = at
	}
	e := race.Event{N: len(r.trace.Events) + 1, At: r.since(r.now), Who: c.name}
	before := r.onKey()
	r.lapse()
	var cmds, replies, whys []string
	named := false
	for _, l := range lines {
		text, reply, err := r.do(c, l, w, &whys)
		if err != nil {
			return err
		}
		cmds, replies = append(cmds, text), append(replies, reply)
		named = named || slices.Contains(l.args[1:], r.key)
	}
	if lines != nil && !named { // of what stands beside the key: it ran, and is not shown
		return nil
	}
	if w.exec {
		cmds = append(append([]string{"MULTI"}, cmds...), "EXEC")
		if lines == nil {
			replies = []string{"nil"}
			whys = []string{"something had touched the key since its WATCH, and nothing ran"}
			if c.state == race.Asking {
				c.state = race.Idle
			}
		}
	}
	e.Cmd, e.Reply = strings.Join(cmds, "; "), strings.Join(replies, "; ")
	e.Why = sentence(whys)
	e.Server = r.onKey()
	if c.state == race.Holds && r.writer == c && c.until.IsZero() && e.Server.TTL >= 0 {
		c.until = r.now.Add(time.Duration(e.Server.TTL) * time.Millisecond)
	}
	e.Changed = changed(before, e.Server)
	e.Belief = map[string]race.Belief{}
	for _, c := range r.clients {
		e.Belief[c.name] = c.belief(r)
	}
	e.Violation = r.broken(c, before)
	if r.polls(e) {
		return nil
	}
	r.trace.Events = append(r.trace.Events, e)
	return nil
}

// polls reports a repeated look with the same result: the client polls.
func (r *run) polls(e race.Event) bool {
	looks := func(e race.Event) bool {
		name, _, _ := strings.Cut(e.Cmd, " ")
		return slices.Contains([]string{"GET", "TTL", "PTTL", "EXISTS"}, strings.ToUpper(name))
	}
	if !looks(e) || e.Violation != nil {
		return false
	}
	for _, old := range slices.Backward(r.trace.Events) {
		if old.Who == e.Who && old.Cmd == e.Cmd && (old.Reply == e.Reply || strings.HasSuffix(strings.ToUpper(e.Cmd), "TTL")) {
			return true
		}
		if len(old.Changed) > 0 || old.Who == e.Who && !looks(old) {
			return false
		}
	}
	return false
}

// do runs one command, or those of its script, and returns its effects in words.
func (r *run) do(c *client, l line, w write, whys *[]string) (text, reply string, err error) {
	run := []line{l}
	if scripted(strings.ToUpper(l.args[0])) {
		run = w.script
	}
	var answers []string
	for _, x := range run {
		r.named(c, x.args)
		e, had := executed{args: x.args, held: r.holder(), watched: w.watched, script: len(w.script) > 0}, r.content()
		if e.answer, err = r.send(x); err != nil {
			return "", "", err
		}
		r.noteUnknown(x, e.answer)
		why, known := r.believe(c, e)
		if !known {
			why = r.unknownCommand(c, had, e)
		}
		if why != "" {
			*whys = append(*whys, why)
		}
		says := r.readable(oldredis.Readable(e.answer))
		if e.script {
			says = r.command(x.args) + " → " + says
		}
		answers = append(answers, says)
	}
	return r.command(race.Script(l.args, r.key)), strings.Join(answers, ", "), nil
}

// send runs a command on the embedded server. What it can't run, such as a blocking one, it answers with an error.
func (r *run) send(l line) (any, error) {
	name := strings.ToUpper(l.args[0])
	switch name {
	case "WATCH", "BLPOP", "BRPOP", "BRPOPLPUSH", "BLMOVE", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "WAIT", "WAITAOF", "QUIT":
		return "OK", nil // nothing waits here
	case "DELIFEQ": // Valkey's, which the model of Redis has by another name
		if len(l.args) == 3 {
			l.args = []string{"DELEX", l.args[1], "IFEQ", l.args[2]}
		}
	}
	if channels(name) || scripted(name) {
		return "OK", nil // a script's commands are run by themselves
	}
	conn := r.conns[l.db]
	if conn == nil {
		conn = r.server.Dial()
		r.conns[l.db] = conn
		if _, err := conn.Do("SELECT", l.db); err != nil {
			return nil, err
		}
	}
	reply, err := conn.Do(l.args[0], redis.Args{}.AddFlat(l.args[1:])...)
	var refused redis.Error
	if errors.As(err, &refused) {
		return refused, nil
	}
	return reply, err
}

// finish adds to the trace its clients, its verdict and its argument.
func (r *run) finish() race.Trace {
	t := r.trace
	for _, c := range r.clients {
		t.Clients = append(t.Clients, race.Client{Name: c.name, Note: strings.Join(c.addresses, ", ")})
	}
	for i := range t.Events {
		e := &t.Events[i]
		for _, c := range r.clients { // those that come later are idle before
			if _, ok := e.Belief[c.name]; !ok {
				e.Belief[c.name] = race.Belief{State: race.Idle, Until: -1, Now: e.At}
			}
		}
		if v := e.Violation; v != nil && (t.Verdict.Violated == "" || t.Verdict.Violated != "exclusion" && v.Invariant == "exclusion") {
			t.Verdict = race.Verdict{Violated: v.Invariant, Step: e.N}
		}
		for _, b := range e.Belief {
			if b.State == race.Holds {
				t.TTL = max(t.TTL, b.Until-e.At)
			}
		}
	}
	if v := t.Verdict; v.Violated != "" {
		t.Argument = race.Argument{Then: []string{t.Events[v.Step-1].Why}, So: t.Events[v.Step-1].Violation.Text + "."}
	} else if r.unjudged != "" {
		t.Argument.So = r.unjudged + "."
	}
	return t
}

func sentence(whys []string) string {
	s := strings.Join(whys, "; ")
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}
