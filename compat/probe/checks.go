package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// life is the TTL, in seconds, of the scratch keys that tell the clock.
const life = 60

// A step is one question. If it is about an ability, it is the ability's own.
type step struct {
	name   string
	of     ability.Ability
	writes bool // it needs a server that lets us write
	run    func(p *prober) bool
}

// questions lists all questions in the order to ask them: MULTI and EVAL come before the questions that need them.
func questions() []step {
	list := []step{
		{name: "GET", run: (*prober).get},
		{name: "PING", run: (*prober).ping},
		{name: "INFO", run: (*prober).askInfo},
		{name: "ROLE", run: (*prober).role},
		{name: "CONFIG", run: (*prober).config},
		{of: ability.Time},
		{name: "a write", run: (*prober).write},
		{of: ability.Multi, writes: true},
		{name: "one server", writes: true, run: (*prober).one},
		{of: ability.Scripts, writes: true},
	}
	for _, a := range ability.All() {
		if !slices.ContainsFunc(list, func(s step) bool { return s.of == a }) {
			list = append(list, step{of: a, writes: true})
		}
	}
	return list
}

// errNo has a question asked anew if the connection broke before the answer was no.
var errNo = errors.New("no")

// finds asks for an ability and notes the answer.
func (p *prober) finds(a ability.Ability) bool {
	var answer ability.Answer
	err := p.try(p.o.beside(), patient, func(c *protocol.Conn) (err error) {
		if answer, err = p.asker.On(c).Ask(a); answer.Verdict == ability.No {
			err = errNo
		}
		return err
	})
	var broke *UnansweredError
	switch {
	case p.err != nil:
		return false
	case answer.Verdict == ability.Refused && errors.As(err, &broke):
		answer.Why = broke.why()
	case answer.Verdict == ability.No:
		p.answers = append(p.answers, "that is: "+answer.Why)
	case answer.Verdict == ability.NotAsked:
		p.notAsked(answer.Why)
	}
	p.r.Answers[a] = answer
	p.asker.Knowing(p.r.Can)
	return answer.Verdict == ability.Yes
}

// notAsked notes a question left out.
func (p *prober) notAsked(why string) bool {
	p.asked, p.answers = []string{"–"}, []string{"not asked: " + why}
	return false
}

// get finds out whether the server lets us in, and its kind. It sends the same GET five times in one write, which every
// server that reads the request protocol answers alike. Redis 1.0 takes each of a request's five lines for a command
// and answers them all, so that among five replies in a row, wherever they begin, there is one to "$3" and one to "GET"
// without its key.
func (p *prober) get() bool {
	get := protocol.Cmd{"GET", p.a}
	r := p.ask(get, get, get, get, get)
	p.asked = []string{"GET a, five times"}
	first, refused := r[0].(redis.Error)
	_, lacks := answer.Among(r, answer.Lacks)
	_, misused := answer.Among(r, answer.Misused)
	switch {
	case p.err != nil:
	case lacks && misused:
		p.drop() // it has more to say
		p.r.Kind, p.r.Version = "redis", "1.0"
		p.unfit("it does not read the request protocol (which came with 1.2), so that its replies belong to other questions",
			"a server of 1.2 or later")
	case answer.Of(first) == answer.Password:
		p.err = fmt.Errorf("%w: %w", ErrAuth, first)
	case answer.Of(first) == answer.Node:
		return p.node()
	case first == silent: // one is answered
		p.err = fmt.Errorf("%w: it answers a GET, and not five in one write, twice", protocol.ErrUnanswered)
	case first == Closed:
		p.err = fmt.Errorf("setnxlock: probing the server: it %w on five GETs", first)
	case refused:
		p.err = p.o.denied(first)
		var denied *protocol.DeniedError
		if errors.As(p.err, &denied) {
			denied.Command = "GET"
		} else {
			p.err = nil
			p.unfit(fmt.Sprintf("it answers a GET with %q", text(first)), another)
		}
	case !slices.ContainsFunc(r, func(r any) bool { return r != nil }):
		return p.node()
	default:
		p.drop()
		p.unfit(fmt.Sprintf("it answers %q to five GETs of a key that nobody has: not to our question", text(r)), another)
	}
	return false
}

const another = "another server"

// unfit ends the questions: the server does not answer as every Redis does.
func (p *prober) unfit(why, use string) {
	p.err = refuse(*p.r, why, use)
}

// slots is of how many keys a server is asked whether it has them: a node with half of the slots passes for
// the whole once in 2^64.
const slots = 64

// node finds out whether this is a node of a cluster, without a client to follow redirections: some keys are then
// another node's. It goes on with scratch keys of its own.
func (p *prober) node() bool {
	if p.source.Slots {
		return true
	}
	gets := make([]protocol.Cmd, slots)
	for i := range gets {
		gets[i] = protocol.Cmd{"GET", fmt.Sprint(p.a, "-", i)}
	}
	mine := ""
	for i, r := range p.ask(gets...) {
		switch e, _ := r.(redis.Error); {
		case r == nil:
			mine = gets[i][1].(string)
		case answer.Of(e) == answer.Node:
			p.r.Moved = text(e)
		}
	}
	p.asked = []string{"GET a, five times; GET of keys in other slots"}
	p.answers = p.answers[:5]
	if p.r.Moved == "" || p.err != nil {
		return p.err == nil
	}
	p.answers = append(p.answers, p.r.Moved)
	if mine == "" {
		p.err = p.r.Unsafe()
		return false
	}
	p.scratch(mine)
	return true
}

func (p *prober) ping() bool { return text(p.ask(protocol.Cmd{"PING"})[0]) == "PONG" }

// write sends the first write, and finds out whether this is a replica or a full server.
func (p *prober) write() bool {
	p.wrote, p.tidy = true, p.dels()
	err := p.try(p.o.beside(), patient, func(c *protocol.Conn) error { return p.asker.On(c).Prepare() })
	p.r.Writable = err == nil
	if err != nil {
		p.r.Refused = p.o.denied(err)
	}
	if answer.Of(err) == answer.Replica {
		p.r.Role = "replica"
	}
	return p.r.Writable
}

// others is how many more connections are looked at: of two servers to which chance deals them out, one in
// sixteen is missed.
const others = 4

// one finds out whether other connections lead to the same server: a balancer over several masters has each client lock
// on its own. A no is asked twice, because a server may be replaced meanwhile.
func (p *prober) one() bool {
	looked := false
	for range 2 {
		if looked, p.r.Several = p.severalServers(); p.r.Several == "" || p.err != nil {
			break
		}
		p.ask(p.dels()...)
		p.drop()
	}
	if !looked {
		return p.notAsked("no other connection was to be had, or nothing could be written")
	}
	p.asked = []string{fmt.Sprintf("SETEX a 60 …; then INFO and GET a over %d more connections", others)}
	p.answers = []string{cmp.Or(p.r.Several, "the same run_id, as far as there is one, and what was set")}
	return p.r.Several == "" && p.err == nil
}

// severalServers compares another connection with this one, and reports whether one was looked at.
func (p *prober) severalServers() (looked bool, why string) {
	mark, id := protocol.NewToken(), ""
	if p.info != nil {
		id = runID(p.ask(protocol.Cmd{"INFO"})[0])
	}
	set, err := p.make(p.a, mark, protocol.Cmd{"EXPIRE", p.a, life})
	if _, kept := set.(int64); err != nil || !kept {
		return false, "" // no server is known to keep it
	}
	for range others {
		s := newSession(p.ctx, p.source, p.timeout, p.a)
		defer s.close()
		full := s.borrow() != nil
		if full { // a pool that has no more: ours makes room
			p.drop()
		}
		look := []protocol.Cmd{{"GET", p.a}}
		if id != "" {
			look = append(look, protocol.Cmd{"INFO"})
		}
		r := s.ask(look...)
		_, refused := r[0].(redis.Error)
		theirs := runID(r[len(r)-1])
		switch {
		case s.err != nil || refused:
		case id != "" && theirs != "" && theirs != id:
			return true, fmt.Sprintf("%s: INFO says run_id:%s over one connection and run_id:%s over another",
				several, text(id), text(theirs))
		case text(r[0]) != mark:
			return true, several + ": what is written over one connection is not read over another"
		default:
			looked = true
		}
		if full {
			break
		}
	}
	return looked, ""
}

const several = "more than one server answers there"

func runID(info any) string {
	told, _ := redis.String(info, nil) //nolint:errcheck // then there is none
	return answer.Info(told, "run_id")
}

// denied explains a refusal of the first questions. What the user's ACL has to cover is not our scratch keys alone, but
// what their prefix says: the locks.
func (o Options) denied(err error) error {
	err = protocol.NewConn(&conn{}).Denied(o.beside(), err)
	var d *protocol.DeniedError
	if errors.As(err, &d) && d.Key != "" {
		d.Remedy = "the user's ACL does not cover the scratch keys of these questions: ask under a prefix that it covers (--prefix)"
		if o.Prefix != "" {
			d.Remedy = "the user's ACL does not cover keys that begin with " + strconv.Quote(o.Prefix) + ": ACL SETUSER … ~" + o.Prefix + "*"
		}
	}
	return err
}

// text writes a reply for a table: short, on one line.
func text(reply any) string {
	switch r := reply.(type) {
	case nil:
		return "nil"
	case redis.Error:
		return short(string(r))
	case []byte:
		return short(string(r))
	case string:
		return short(r)
	case []any:
		if len(r) > 12 {
			return fmt.Sprintf("[%d values]", len(r))
		}
		parts := make([]string, len(r))
		for i := range r {
			parts[i] = text(r[i])
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprint(reply)
}

func short(s string) string {
	line, _, more := strings.Cut(strings.TrimLeft(s, "\r\n"), "\n")
	line = strings.TrimRight(line, "\r")
	if len(line) > 70 {
		line, more = line[:70], true
	}
	if more {
		line += " …"
	}
	return strings.ToValidUTF8(line, "?")
}
