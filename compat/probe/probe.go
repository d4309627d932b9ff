// Package probe asks a server what it can do for a lock, and chooses the safest lock of this module
// that it supports:
//
//	locks, choice, err := probe.New(ctx, compat.Pooled(pool), compat.Options{})
//	report, err := probe.Ask(ctx, compat.Pooled(pool), probe.Options{})
//	choice, err := probe.Choose(ctx, compat.Pooled(pool), report, probe.Options{})
//	offset, uncertainty, err := probe.Offset(ctx, compat.Pooled(pool), nil, probe.Options{})
//
// It asks by trying: the server has a command if the command did what it should on a scratch key.
// What INFO says is only a hint. PING, INFO, CONFIG and EVAL may all be refused or renamed, and the
// connection may break: many proxies close it on a command that they don't know. Package ability
// has what a lock may need, and the questions; package locks has what each lock needs.
//
// It chooses by asking each lock whether it is safe there, in the order of locks.Preferred:
//
//	set:ifeq         SET NX PX, SET IFEQ, DELIFEQ or DELEX      Redis 8.4, Valkey 9.0
//	set:lua          SET NX PX, scripts                         Redis 2.6.12
//	set:watch        SET NX PX, WATCH                           2.6.12 that forbids scripts
//	tx:renamed       TTLs hold, WATCH, RENAMENX keeps the TTL   2.4
//	tx:guarded       TTLs hold, WATCH                           2.2
//	set:script       scripts, no transactions                   twemproxy 0.2
//	getset:guarded   WATCH                                      to join a fleet of timestamp locks
//	getset:listed    MULTI, in which list commands compare      2.0
//	getset:classic   SETNX and GETSET                           1.2, other proxies
//
// Redis 2.6.0–2.6.11 has scripts and no SET NX PX: there the choice is tx:renamed and not
// set:script. tx:renamed acquires in as few round trips, and the AOF has the moment at which each of
// its leases ends. A script is in the AOF as it was sent, so that after a restart each lease would
// begin again.
//
// A choice is for one server. Clients that share keys must all choose tokens, or all choose
// timestamps. All locks of txlock and setlock write the same tokens, so their clients exclude each
// other even if some reach the server through a proxy, or only some have been updated. If some
// clients could choose tokens and others timestamps, name the lock instead.
package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
)

// ErrAuth means that the server asks for a password, or for another one.
var ErrAuth = errors.New("setnxlock: the server does not let us in")

// Options are for asking and for choosing. The zero value is ready to use: it chooses the safest lock
// that the server supports.
type Options struct {
	// Prefix begins the name of every scratch key, for servers whose ACL lets a user have certain
	// names only: the prefix of the locks' keys, or the key to be locked if they have none in common.
	Prefix string

	// Timeout bounds each question and the cleaning up. No answer by then counts as a refusal.
	// Default: 2 s.
	Timeout time.Duration

	// Brief asks what the server is, not what it can do: Report.Answers is empty.
	Brief bool

	// Memory remembers what servers answered. nil: one Memory for the whole process.
	Memory *Memory

	// Where names the way to the server for a [Memory], if there are several: for example directly,
	// and through a proxy that allows fewer commands.
	Where string

	// Fence asks for a lock that draws fences. A server without MULTI and scripts can't, and is refused.
	Fence bool

	// Dialect, if it is not the zero value, is how a fleet writes its
	// timestamps, with which keys are shared: then only getsetlock is chosen.
	Dialect getsetlock.Dialect

	// Owner names the holder in the lock's tokens. Once promises a single acquisition. See locks.Options.
	Owner string
	Once  bool
}

// beside returns the beginning of every scratch key.
func (o Options) beside() string { return o.Prefix + "setnxlock-probe-" }

func (o Options) timeout() time.Duration {
	if o.Timeout > 0 {
		return o.Timeout
	}
	return 2 * time.Second
}

// A Report is what [Ask] found out about a server.
type Report struct {
	Version string // redis_version of INFO, where other servers say which Redis they are like; "" if it does not say
	Kind    string // "redis", "proxy", the name of another server, or "" if unknown
	Own     string // another server's own version, as INFO says; "" if it does not
	Why     string // how Kind is known
	Role    string // "master", "replica", another server's own word, or "" if it does not say
	Master  string // host:port of a replica's master, as INFO says; "" if it does not

	Writable bool  // it lets us write: no replica, memory left
	Refused  error `json:"-"` // why not: compat.ErrDenied if the server says so; nil if it lets us

	Several string // what shows that other connections lead to another server, as a balancer's do; "" if nothing does
	Moved   string // what a node of a cluster answered to a key of another node, if the Source does not follow it

	Answers   map[ability.Ability]ability.Answer // none of what was not asked: it refuses writes, or Options.Brief
	Warnings  []Warning
	Questions []Question // all that was asked, in order

	who identity // "": it is not remembered

	_ struct{} // no positional literals
}

// A Warning is something about a server that a lock's user should know.
type Warning struct {
	ID   string `json:"id"`   // for programs: "eviction-volatile", …; see the constants
	Text string `json:"text"` // for people: one sentence, without a full stop
}

// A Question is one that was asked, and its answer. The scratch keys are called a and b in it.
type Question struct {
	Name   string `json:"name"`
	Asked  string `json:"asked"`  // the commands, as sent in one write
	Answer string `json:"answer"` // the replies
	OK     bool   `json:"ok"`     // the server can do it
}

// Can reports whether the server showed the ability.
func (r Report) Can(a ability.Ability) bool { return r.Answers[a].Verdict == ability.Yes }

// Has reports whether the report has the warning of this ID.
func (r Report) Has(id string) bool {
	return slices.ContainsFunc(r.Warnings, func(w Warning) bool { return w.ID == id })
}

// Ask finds out what the server behind source can do. It sends about thirty writes, some more for each command on
// which the server closes the connection. It uses one connection at a time. Only the question whether other
// connections lead to the same server takes four more, or as many as the pool has. It writes to two scratch keys
// of random names and removes them, also when it fails or ctx ends. Each has a TTL as soon as anybody can see it:
// if the connection is lost for good at any point, what is left expires after two minutes.
//
// It returns an error, with the report so far, if the server can't be reached (the connection's error), asks for a
// password ([ErrAuth]), refuses even a GET ([compat.ErrDenied]: an ACL, a server that is loading), answers it as no
// Redis since 1.2 does ([compat.ErrUnsafeServer], a [*compat.UnsafeServerError]), answers only one of several
// commands in a write ([compat.ErrUnanswered]), or if ctx ends (its error). It is no error if the server refuses
// writes: Writable is then false, Refused says why, and Answers has nothing that needs a write.
func Ask(ctx context.Context, source compat.Source, o Options) (Report, error) {
	p := newProber(ctx, source, o)
	p.run()
	if p.err == nil {
		p.r.Kind, p.r.Own, p.r.Why = kind(p)
		p.r.Warnings = warnings(p)
	}
	return *p.r, p.err
}

// Unsafe explains why no lock excludes anybody on the server, whatever commands it has. It is a replica, or has a role
// that is not known; other connections lead to another server; or it is one node of a cluster that is not followed.
// nil: nothing of the kind was seen. The error is a [*compat.UnsafeServerError]. docs/servers.md has what can't be
// seen.
func (r Report) Unsafe() error {
	switch {
	case r.Role == "replica":
		return refuse(r, "it is a replica: a lock taken here excludes nobody", "its master"+at(r.Master))
	case r.Several != "":
		return refuse(r, r.Several, "the address of one server")
	case r.Moved != "":
		return refuse(r, fmt.Sprintf("it is a node of a cluster, whose other nodes have other keys (%s)", r.Moved), "package cluster")
	case r.Role != "" && r.Role != "master":
		const what = "its role is %q, neither a master's nor a replica's: others may take the same locks elsewhere"
		return refuse(r, fmt.Sprintf(what, text(r.Role)), "a server whose role is master")
	}
	return nil
}

func refuse(r Report, why, use string) error {
	return &compat.UnsafeServerError{Version: r.Version, Why: why, Use: use}
}

// A prober is a Report in the making.
type prober struct {
	*session
	o       Options
	asker   *ability.Asker
	a, b    string
	r       *Report
	info    map[string]string // what INFO said; nil: nothing
	conf    map[string]string // what CONFIG GET said
	wrote   bool              // there may be scratch keys
	closers []string          // the questions on which the connection was closed

	question       string   // under way
	asked, answers []string // of question
}

func newProber(ctx context.Context, source compat.Source, o Options) *prober {
	p := &prober{r: &Report{Answers: map[ability.Ability]ability.Answer{}}, o: o}
	p.session = newSession(ctx, source, o.timeout(), "")
	p.observe = p.note
	p.scratch(o.beside() + protocol.NewToken())
	return p
}

// scratch begins with new scratch keys: a, and one in its slot.
func (p *prober) scratch(a string) {
	p.a, p.b, p.key = a, protocol.Aux(a, "b"), a
	p.asker = ability.New(nil, p.a, p.b, false)
	p.asker.Again = func() { p.asked, p.answers = nil, nil } // one account of it is enough
}

func (p *prober) run() {
	defer p.close()
	defer p.cleanUp()
	for _, q := range questions() {
		name := cmp.Or(q.name, string(q.of))
		refused := q.writes && !p.r.Writable
		if p.err != nil || refused || p.o.Brief && q.of != "" {
			why := "not asked"
			if refused && p.err == nil {
				why += ": writes are refused"
			}
			p.r.Questions = append(p.r.Questions, Question{Name: name, Asked: "–", Answer: why})
			continue
		}
		p.question, p.asked, p.answers = name, nil, nil
		ok := false
		if q.run != nil {
			ok = q.run(p)
		} else {
			ok = p.finds(q.of)
		}
		p.r.Questions = append(p.r.Questions, Question{name, strings.Join(p.asked, "; "), strings.Join(p.answers, ", "), ok && p.err == nil})
	}
}

// note records questions and answers.
func (p *prober) note(cmds []protocol.Cmd, replies []any) {
	if replies[0] == Closed && !slices.Contains(p.closers, p.question) {
		p.closers = append(p.closers, p.question)
	}
	for i, m := range cmds {
		p.asked = append(p.asked, p.spell(m))
		if i == 0 || !lost(replies) {
			p.answers = append(p.answers, text(replies[i]))
		}
	}
}

func (p *prober) dels() []protocol.Cmd { return []protocol.Cmd{{"DEL", p.a}, {"DEL", p.b}} }

// cleanUp removes the scratch keys in any case, on another connection if need be.
func (p *prober) cleanUp() {
	if !p.wrote {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), p.timeout)
	defer cancel()
	s := newSession(ctx, p.source, p.timeout, p.a)
	if p.err == nil {
		s.c, s.sure = p.c, p.sure
		p.c = nil
	} else {
		p.drop() // it may still owe replies
	}
	s.ask(p.dels()...)
	s.close()
}

// spell writes a command with the scratch keys' short names.
func (p *prober) spell(m protocol.Cmd) string {
	s := strings.TrimSuffix(fmt.Sprintln(m...), "\n")
	return strings.NewReplacer(p.b, "b", p.a, "a").Replace(s)
}
