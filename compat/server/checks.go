package server

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// life is the TTL, in seconds, of scratch keys.
const life = 60

// checks are all questions, in the order in which they are asked. Those that
// write need a server that lets us write.
var checks = []struct {
	name   string
	writes bool
	run    func(p *probe) bool
}{
	{"GET", false, (*probe).get},
	{"PING", false, (*probe).ping},
	{"INFO", false, (*probe).askInfo},
	{"ROLE", false, (*probe).role},
	{"CONFIG", false, (*probe).config},
	{"TIME", false, (*probe).time},
	{"SET", false, (*probe).set},
	{"SETNX", true, (*probe).setnx},
	{"SETNX and a TTL", true, (*probe).setnxTTL},
	{"GETSET", true, (*probe).getset},
	{"EXPIRE twice", true, (*probe).expireAgain},
	{"SETEX", true, (*probe).setex},
	{"RENAMENX", true, (*probe).renamenx},
	{"MULTI", true, (*probe).multi},
	{"WATCH", true, (*probe).watch},
	{"lists", true, (*probe).lists},
	{"milliseconds", true, (*probe).millis},
	{"SET NX PX", true, (*probe).setNXPX},
	{"EVAL", true, (*probe).eval},
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
	case strings.HasPrefix(s, "noauth"), strings.HasPrefix(s, "noperm"), strings.HasPrefix(s, "wrongpass"), strings.Contains(s, "operation not permitted"):
		p.err = fmt.Errorf("%w: %w", ErrAuth, first)
	case refused:
		p.err = fmt.Errorf("setnxlock: probing the server: GET answers %w", first)
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

// time asks for the server's clock.
func (p *probe) time() bool {
	_, p.r.Time = readTime(p.ask(compat.Cmd{"TIME"})[0])
	return p.r.Time
}

// set is the first write, and finds out whether this is a replica or a full server.
func (p *probe) set() bool {
	p.wrote, p.tidy = true, p.dels()
	r := p.ask(compat.Cmd{"SET", p.a, "x"}, compat.Cmd{"EXPIRE", p.a, life}, compat.Cmd{"DEL", p.a})
	p.r.Writable = isOK(r[0]) && r[2] == int64(1)
	p.refusal, _ = r[0].(redis.Error)
	if strings.HasPrefix(string(p.refusal), "READONLY") {
		p.r.Role = "replica"
	}
	return p.r.Writable
}

func (p *probe) setnx() bool {
	r := p.ask(compat.Cmd{"SETNX", p.a, "held"}, compat.Cmd{"SETNX", p.a, "taken"}, compat.Cmd{"DEL", p.a})
	p.r.Setnx = r[0] == int64(1) && r[1] == int64(0)
	return p.r.Setnx
}

// setnxTTL asks for what every SETNX+EXPIRE lock rests on.
func (p *probe) setnxTTL() bool {
	r := p.ask(compat.Cmd{"SET", p.a, "held"}, compat.Cmd{"EXPIRE", p.a, life}, compat.Cmd{"SETNX", p.a, "taken"}, compat.Cmd{"DEL", p.a})
	p.r.SetnxRespectsTTL = r[1] == int64(1) && r[2] == int64(0)
	return p.r.SetnxRespectsTTL
}

func (p *probe) getset() bool {
	r := p.ask(compat.Cmd{"SET", p.a, "old"}, compat.Cmd{"GETSET", p.a, "new"}, compat.Cmd{"EXPIRE", p.a, life},
		compat.Cmd{"GETSET", p.a, "newer"}, compat.Cmd{"TTL", p.a}, compat.Cmd{"DEL", p.a})
	p.r.Getset = is(r[1], "old")
	p.r.GetsetClearsTTL = p.r.Getset && r[4] == int64(-1)
	return p.r.Getset
}

func (p *probe) expireAgain() bool {
	r := p.ask(compat.Cmd{"SET", p.a, "x"}, compat.Cmd{"EXPIRE", p.a, life}, compat.Cmd{"EXPIRE", p.a, 2 * life},
		compat.Cmd{"TTL", p.a}, compat.Cmd{"DEL", p.a})
	p.r.ExpireAgain = r[2] == int64(1) && within(r[3], life+1, 2*life)
	return p.r.ExpireAgain
}

func (p *probe) setex() bool {
	r := p.ask(compat.Cmd{"SETEX", p.a, life, "x"}, compat.Cmd{"TTL", p.a}, compat.Cmd{"DEL", p.a})
	p.r.Setex = isOK(r[0]) && within(r[1], 1, life)
	return p.r.Setex
}

// renamenx asks whether a TTL travels with the name, and then, with b held,
// whether a key with a TTL stands up to it.
func (p *probe) renamenx() bool {
	r := p.ask(
		compat.Cmd{"SET", p.a, "x"}, compat.Cmd{"EXPIRE", p.a, life}, compat.Cmd{"RENAMENX", p.a, p.b}, compat.Cmd{"TTL", p.b}, compat.Cmd{"DEL", p.b},
		compat.Cmd{"SET", p.b, "held"}, compat.Cmd{"EXPIRE", p.b, life}, compat.Cmd{"SET", p.a, "y"}, compat.Cmd{"RENAMENX", p.a, p.b},
		compat.Cmd{"DEL", p.a}, compat.Cmd{"DEL", p.b})
	p.r.RenamenxKeepsTTL = r[2] == int64(1) && within(r[3], 1, life)
	p.r.RenamenxRefuses = r[8] == int64(0)
	return p.r.RenamenxKeepsTTL
}

// multi is what a fence needs: a transaction in which INCR counts.
func (p *probe) multi() bool {
	r := p.ask(compat.Cmd{"MULTI"}, compat.Cmd{"INCR", p.a}, compat.Cmd{"DEL", p.a}, compat.Cmd{"EXEC"})
	done, _ := r[3].([]any)
	p.r.Multi = isOK(r[0]) && r[1] == "QUEUED" && len(done) == 2 && done[0] == int64(1) && done[1] == int64(1)
	if e, _ := r[0].(redis.Error); strings.HasPrefix(string(e), "NOPERM") {
		p.forbidden = true
	}
	if !p.r.Multi {
		p.drop() // MULTI may have begun
	}
	return p.r.Multi
}

// watch touches what it watches: its own writes count too.
func (p *probe) watch() bool {
	r := p.ask(compat.Cmd{"SET", p.a, "x"}, compat.Cmd{"EXPIRE", p.a, life}, compat.Cmd{"WATCH", p.a}, compat.Cmd{"UNWATCH"},
		compat.Cmd{"WATCH", p.a}, compat.Cmd{"DEL", p.a}, compat.Cmd{"MULTI"}, compat.Cmd{"GET", p.a}, compat.Cmd{"EXEC"})
	p.r.Watch = isOK(r[2]) && isOK(r[3]) && isOK(r[4]) && isOK(r[6]) && r[8] == nil && p.err == nil
	if _, refused := r[8].(redis.Error); refused {
		p.drop() // still in MULTI, perhaps
	}
	return p.r.Watch
}

// lists asks by the very commands that a lock sends. It is for servers
// that have transactions.
func (p *probe) lists() bool {
	if !p.r.Multi {
		p.asked, p.answers = []string{"–"}, []string{"not asked: there is no MULTI"}
		return false
	}
	var err error
	for try, lost := 0, -1; try < 3 && lost != p.lost; try++ { // what broke was tidied up in the middle
		lost = p.lost
		err = compat.NewConn(&conn{ask: p.asks, failed: func() error { return p.err }}).CheckListCAS(p.a, "")
	}
	p.r.Lists = err == nil && p.err == nil
	p.asked = []string{"RPUSH; SORT; LREM; RENAMENX; RPOPLPUSH; RENAME; MSETNX; DEL in MULTI, on a value that is equal, another, and none"}
	p.answers = []string{"each as it should"}
	var unsafe *compat.UnsafeServerError
	switch {
	case errors.As(err, &unsafe):
		p.answers = []string{unsafe.Why}
	case err != nil:
		p.answers = []string{err.Error()}
	}
	return p.r.Lists
}

func (p *probe) millis() bool {
	r := p.ask(compat.Cmd{"PSETEX", p.a, life * 1000, "x"}, compat.Cmd{"PEXPIRE", p.a, 2 * life * 1000}, compat.Cmd{"PTTL", p.a}, compat.Cmd{"DEL", p.a})
	p.r.Millis = isOK(r[0]) && r[1] == int64(1) && within(r[2], life*1000+1, 2*life*1000)
	return p.r.Millis
}

func (p *probe) setNXPX() bool {
	r := p.ask(compat.Cmd{"SET", p.a, "held", "NX", "PX", life * 1000}, compat.Cmd{"SET", p.a, "taken", "NX", "PX", life * 1000},
		compat.Cmd{"TTL", p.a}, compat.Cmd{"DEL", p.a})
	p.r.SetNXPX = isOK(r[0]) && r[1] == nil && within(r[2], 1, life) && p.err == nil
	return p.r.SetNXPX
}

// eval gives the script a key, as a lock's has one: proxies want it. Once a
// script has run it is known by its hash, which is how a lock calls it.
func (p *probe) eval() bool {
	const script, sha1 = "return 1", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"
	r := p.ask(compat.Cmd{"EVAL", script, 1, p.a}, compat.Cmd{"EVALSHA", sha1, 1, p.a})
	p.r.Eval = r[0] == int64(1) && r[1] == int64(1)
	return p.r.Eval
}

func isOK(reply any) bool { return reply == "OK" }

func is(reply any, want string) bool {
	b, ok := reply.([]byte)
	return ok && string(b) == want
}

func within(reply any, low, high int64) bool {
	n, ok := reply.(int64)
	return ok && low <= n && n <= high
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
		if len(r) > 4 {
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
