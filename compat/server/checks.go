package server

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
)

// life is the TTL, in seconds, of the scratch keys that tell the clock.
const life = 60

// checks are all questions, in the order in which they are asked. Those that
// write need a server that lets us write. A question about an ability is the
// ability's own, unless run says how else.
var checks = []struct {
	name   string
	of     ability.Ability
	writes bool
	run    func(p *probe) bool
}{
	{"GET", "", false, (*probe).get},
	{"PING", "", false, (*probe).ping},
	{"INFO", "", false, (*probe).askInfo},
	{"ROLE", "", false, (*probe).role},
	{"CONFIG", "", false, (*probe).config},
	{"TIME", ability.Time, false, nil},
	{"a write", "", false, (*probe).write},
	{"MULTI", ability.Multi, true, (*probe).multi},
	{"EVAL", ability.Scripts, true, (*probe).eval},
	{"SETNX", ability.Setnx, true, nil},
	{"SETNX and a TTL", ability.SetnxOnTTL, true, nil},
	{"GETSET", ability.Getset, true, nil},
	{"GETSET and a TTL", "", true, (*probe).getsetTTL},
	{"EXPIRE twice", ability.ExpireAgain, true, nil},
	{"SETEX", ability.Setex, true, nil},
	{"RENAMENX", ability.Renamenx, true, nil},
	{"WATCH", ability.Watch, true, nil},
	{"lists", ability.Lists, true, (*probe).lists},
	{"milliseconds", ability.Milliseconds, true, nil},
	{"SET NX PX", ability.SetNXPX, true, nil},
}

// finds asks for an ability and notes the answer.
func (p *probe) finds(a ability.Ability) (ok bool, err error) {
	why := ""
	err = p.question(func(q *ability.Asker) (err error) {
		why, err = q.Ask(a)
		return err
	})
	ok = err == nil && why == "" && p.err == nil
	*p.r.field(a) = ok
	if errors.Is(err, ability.ErrNotAsked) {
		p.r.NotAsked = append(p.r.NotAsked, a)
		p.notAsked(strings.TrimPrefix(err.Error(), "setnxlock: "))
	}
	return ok, err
}

// notAsked is the account of a question that was not.
func (p *probe) notAsked(why string) bool {
	p.asked, p.answers = []string{"–"}, []string{"not asked: " + why}
	return false
}

// question asks anew as long as the connection breaks in the middle: what had been done by then
// was tidied up.
func (p *probe) question(ask func(q *ability.Asker) error) (err error) {
	for try, lost := 0, -1; try < 3 && lost != p.lost && p.err == nil; try++ {
		lost = p.lost
		p.conn = &conn{ask: p.asks, failed: func() error { return p.err }}
		err = ask(p.asker.On(p.conn.over()))
	}
	return err
}

// get finds out whether the server lets us in, and what kind of server it is. It sends the same GET five times
// in one write, which every server that reads the request protocol answers
// alike. Redis 1.0 takes each of a request's five lines for a command and
// answers them all, so that among five replies in a row, wherever they begin,
// there is one to "$3" and one to "GET" without its key.
func (p *probe) get() bool {
	get := compat.Cmd{"GET", p.a}
	r := p.ask(get, get, get, get, get)
	p.asked = []string{"GET a, five times"}
	all := strings.ToLower(fmt.Sprint(r...))
	first, refused := r[0].(redis.Error)
	s := strings.ToLower(string(first))
	switch {
	case p.err != nil:
	case strings.Contains(all, "unknown command") && strings.Contains(all, "wrong number of arguments"):
		p.drop() // it has more to say
		p.r.Kind, p.r.Version = "redis", "1.0"
		p.err = &compat.UnsafeServerError{
			Version: "1.0",
			Why:     "it does not read the request protocol (which came with 1.2), so that its replies belong to other questions",
			Use:     "a server of 1.2 or later",
		}
	case strings.HasPrefix(s, "noauth"), strings.HasPrefix(s, "wrongpass"), strings.Contains(s, "operation not permitted"):
		p.err = fmt.Errorf("%w: %w", ErrAuth, first)
	case refused:
		p.err = p.denied(first)
		var denied *compat.DeniedError
		if errors.As(p.err, &denied) {
			denied.Command = "GET"
		} else {
			p.err = fmt.Errorf("setnxlock: probing the server: GET answers %w", first)
		}
	case r[0] != nil:
		p.drop()
		p.err = fmt.Errorf("setnxlock: probing the server: it answers %q to a GET of a key that nobody has: not to our question", text(r[0]))
	default:
		return true
	}
	return false
}

func (p *probe) ping() bool {
	p.r.Ping = p.ask(compat.Cmd{"PING"})[0] == "PONG"
	return p.r.Ping
}

// write is the first, and finds out whether this is a replica or a full server.
func (p *probe) write() bool {
	p.wrote, p.tidy = true, p.dels()
	err := p.question((*ability.Asker).Prepare)
	p.r.Writable = err == nil && p.err == nil
	errors.As(err, &p.refusal)
	if err != nil {
		p.r.Refused = p.denied(err)
	}
	if strings.HasPrefix(string(p.refusal), "READONLY") {
		p.r.Role = "replica"
	}
	return p.r.Writable
}

// denied is what a refusal of the first questions means. What the user's ACL has to cover is not
// our scratch keys alone, but what their prefix says: the locks.
func (p *probe) denied(err error) error {
	err = p.conn.denied(p.o.beside(), err)
	var d *compat.DeniedError
	if errors.As(err, &d) && d.Key != "" {
		d.Remedy = "the user's ACL does not cover the scratch keys of these questions: ask under a prefix that it covers (--prefix)"
		if p.o.Prefix != "" {
			d.Remedy = "the user's ACL does not cover keys that begin with " + strconv.Quote(p.o.Prefix) + ": ACL SETUSER … ~" + p.o.Prefix + "*"
		}
	}
	return err
}

// multi is what a fence needs: a transaction in which INCR counts.
func (p *probe) multi() bool {
	ok, err := p.finds(ability.Multi)
	if refused := redis.Error(""); errors.As(err, &refused) && strings.HasPrefix(string(refused), "NOPERM") {
		p.forbidden = true
	}
	if !ok {
		p.drop() // MULTI may have begun
	}
	p.asker.Without(!ok, false)
	return ok
}

func (p *probe) eval() bool {
	ok, _ := p.finds(ability.Scripts)
	p.asker.Without(!p.r.Multi, !ok)
	return ok
}

func (p *probe) getsetTTL() bool {
	if !p.r.Getset {
		return p.notAsked("there is no GETSET")
	}
	err := p.question(func(q *ability.Asker) (err error) {
		p.r.GetsetClearsTTL, err = q.ClearsTTL()
		return err
	})
	p.getsetAsked = err == nil
	if errors.Is(err, ability.ErrNotAsked) {
		p.notAsked(strings.TrimPrefix(err.Error(), "setnxlock: "))
	}
	return p.r.GetsetClearsTTL
}

// lists asks by the very commands that a lock sends. It is for servers
// that have transactions.
func (p *probe) lists() bool {
	if !p.r.Multi {
		return p.notAsked("there is no MULTI")
	}
	why := ""
	err := p.question(func(q *ability.Asker) (err error) {
		why, err = q.Ask(ability.Lists)
		return err
	})
	p.r.Lists = err == nil && why == "" && p.err == nil
	p.asked = []string{"RPUSH; SORT; LREM; RENAMENX; RPOPLPUSH; RENAME; MSETNX; DEL in MULTI, on a value that is equal, another, and none"}
	p.answers = []string{"each as it should"}
	switch {
	case why != "":
		p.answers = []string{why}
	case err != nil:
		p.answers = []string{err.Error()}
	}
	return p.r.Lists
}

// text is a reply for a table: short, on one line.
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
