package ability

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// life is the TTL of scratch keys.
const (
	life       = 60
	lifeMillis = life * 1000
)

// An Asker asks a server, over one connection, what it can do.
type Asker struct {
	c      *protocol.Conn
	a, b   string // scratch keys, in one slot, which nobody else has
	millis bool   // TTLs are given and read in milliseconds

	prepared bool
	made     func(key, value string) []protocol.Cmd // makes a key with a TTL: one command, or two that need MULTI

	transacts bool // there are MULTI and EXEC
	noMulti   bool // MULTI is not to be had: what has to be done as one goes into a script
	noEval    bool // nor are scripts

	Again func() // if set, called before a question is asked for the second time
}

// New returns an Asker over c, with scratch keys of random names that nobody else has, in one
// slot. millis says that the lock which is asked for counts TTLs in milliseconds: then the
// questions do.
func New(c *protocol.Conn, a, b string, millis bool) *Asker {
	return &Asker{c: c, a: a, b: b, millis: millis}
}

// On returns q over another connection.
func (q *Asker) On(c *protocol.Conn) *Asker {
	q.c = c
	return q
}

// Without tells the Asker that the server lacks MULTI or EVAL, so that it asks without them.
func (q *Asker) Without(multi, eval bool) { q.noMulti, q.noEval = multi, eval }

// ErrNotAsked means that the question could leave a key behind that never expires, because the
// server has neither MULTI nor scripts.
var ErrNotAsked = errors.New("setnxlock: can't be asked without MULTI or scripts: a key without an end might be left behind")

// Ask asks for one ability. why is "" if the server has it, or else what it does instead. A no is
// asked twice, because a server of a cluster may be replaced between two commands by one that lacks
// what the first has written. An error means that it could not be learned: the server's refusal,
// [ErrNotAsked], or the connection's error.
func (q *Asker) Ask(a Ability) (why string, err error) {
	ask := a.row().ask
	if why, err = ask(q); why == "" || err != nil {
		return why, err
	}
	if q.Again != nil {
		q.Again()
	}
	return ask(q)
}

// Prepare finds out how a key with a TTL is made here, and with it whether the server lets us
// write at all.
func (q *Asker) Prepare() error {
	if q.prepared {
		return nil
	}
	var refused error
	ways := []func(key, value string) []protocol.Cmd{bySetex, byPsetex, bySet}
	if q.millis {
		ways = []func(key, value string) []protocol.Cmd{byPsetex, bySet}
	}
	for _, made := range ways {
		cmds := append(made(q.a, "x"), protocol.Cmd{"DEL", q.a})
		var replies []any
		var err error
		if len(cmds) == 2 {
			replies, err = q.pipe(cmds...)
		} else {
			replies, err = q.exec(cmds...)
		}
		if err == nil && replies[0] == "OK" && replies[len(replies)-1] == int64(1) {
			q.prepared, q.made = true, made
			return nil
		}
		if err == nil {
			err = fmt.Errorf("setnxlock: %s", odd(fmt.Sprint(cmds[0][0], ", DEL"), replies))
		}
		if refused == nil || !final(refused) {
			refused = prefer(refused, err)
		}
		if final(err) {
			break
		}
	}
	return refused
}

// final reports that the server's answer would be the same to every write: it is a replica, full,
// or not ready.
func final(err error) bool {
	r := answer.Known(err)
	return r != nil && (r.Elsewhere || r.Passes)
}

// prefer is the error that tells more: that a command is forbidden rather than that another
// is not there, that the connection broke rather than either.
func prefer(a, b error) error {
	if a == nil || final(b) {
		return b
	}
	tells := b != nil && (!answer.Refused(b) || answer.Of(b) == answer.Permission)
	if tells && answer.Refused(a) && answer.Of(a) != answer.Permission {
		return b
	}
	return a
}

func bySetex(key, value string) []protocol.Cmd { return []protocol.Cmd{{"SETEX", key, life, value}} }
func byPsetex(key, value string) []protocol.Cmd {
	return []protocol.Cmd{{"PSETEX", key, lifeMillis, value}}
}
func bySet(key, value string) []protocol.Cmd {
	return []protocol.Cmd{{"SET", key, value}, {"EXPIRE", key, life}}
}

// pipe sends commands in one write, each of which is harmless by itself. The error is the first
// that the server answered with, or the connection's.
func (q *Asker) pipe(cmds ...protocol.Cmd) ([]any, error) {
	replies, err := q.c.Pipe(cmds...)
	if err != nil {
		return nil, err
	}
	return replies, answer.First(replies)
}

// atomic runs commands on the scratch keys as one, the last of which remove them: in a
// transaction, or in a script where there is none.
func (q *Asker) atomic(cmds ...protocol.Cmd) ([]any, error) {
	switch {
	case !q.noMulti:
		return q.exec(cmds...)
	case q.noEval:
		return nil, ErrNotAsked
	}
	const value = "asking"
	if _, err := q.make(q.a, value); err != nil {
		return nil, err
	}
	cmds = append([]protocol.Cmd{{"EXISTS", q.a}, {"DEL", q.a}}, cmds...)
	replies, err := q.c.Run(protocol.Change{If: protocol.Script, Key: q.a, Value: value, Do: cmds})
	if err != nil {
		return nil, err
	}
	return replies[2:], nil
}

// exec runs commands in a transaction. That there are transactions is asked before, by one that
// changes nothing: where MULTI is refused, what follows it would run one by one.
func (q *Asker) exec(cmds ...protocol.Cmd) ([]any, error) {
	if !q.transacts {
		if _, err := q.c.Exec(protocol.Cmd{"GET", q.a}); err != nil {
			return nil, err
		}
		q.transacts = true
	}
	replies, err := q.c.Exec(cmds...)
	if err == nil && len(replies) != len(cmds) {
		err = fmt.Errorf("setnxlock: %d replies to %d commands of an EXEC", len(replies), len(cmds))
	}
	return replies, err
}

// make makes a key with a TTL.
func (q *Asker) make(key, value string) ([]any, error) {
	if err := q.Prepare(); err != nil {
		return nil, err
	}
	cmds := q.made(key, value)
	if len(cmds) > 1 {
		return q.exec(cmds...)
	}
	return q.pipe(cmds...)
}

// withKey runs commands on a, which is made before them and removed behind them. They leave it
// its TTL. The replies are theirs.
func (q *Asker) withKey(cmds ...protocol.Cmd) ([]any, error) {
	if err := q.Prepare(); err != nil {
		return nil, err
	}
	made := q.made(q.a, "x")
	all := append(append(made, cmds...), protocol.Cmd{"DEL", q.a})
	run := q.pipe
	if len(made) > 1 {
		run = q.exec
	}
	replies, err := run(all...)
	if err != nil {
		return nil, err
	}
	return replies[len(made) : len(replies)-1], nil
}

// unless is an answer: why not, unless it is as it should be, or an error.
func unless(err error, right func() bool, why string) (string, error) {
	if err != nil || right() {
		return "", err
	}
	return why, nil
}

// odd is the answer of a server that answers commands in no way of Redis's.
func odd(commands string, replies []any) string {
	said := make([]string, len(replies))
	for i, r := range replies {
		said[i] = fmt.Sprint(r)
		if bulk, ok := r.([]byte); ok {
			said[i] = strconv.Quote(string(bulk))
		}
	}
	return fmt.Sprintf("%s are answered %.80s, not as Redis does", commands, fmt.Sprint(said))
}

func (q *Asker) setnx() (string, error) {
	r, err := q.atomic(protocol.Cmd{"SETNX", q.a, "held"}, protocol.Cmd{"SETNX", q.a, "taken"}, protocol.Cmd{"DEL", q.a})
	if errors.Is(err, ErrNotAsked) {
		return q.known("SETNX")
	}
	return unless(err, func() bool { return r[0] == int64(1) && r[1] == int64(0) }, "SETNX sets a key that is held")
}

func (q *Asker) getset() (string, error) {
	r, err := q.atomic(protocol.Cmd{"SETNX", q.a, "old"}, protocol.Cmd{"GETSET", q.a, "new"}, protocol.Cmd{"DEL", q.a})
	if errors.Is(err, ErrNotAsked) {
		return q.known("GETSET")
	}
	return unless(err, func() bool { return is(r[1], "old") }, "GETSET does not return the old value")
}

// known asks for a command without its arguments, which writes nothing. A server that has it says
// that they are missing; one that says it otherwise may have it or not.
func (q *Asker) known(name string) (string, error) {
	_, err := q.c.Do(name, q.a)
	e, refused := err.(redis.Error)
	switch {
	case refused && strings.Contains(string(e), "wrong number of arguments"):
		return "", nil
	case refused && !answer.Lacks(e) && answer.Known(e) == nil:
		return "", fmt.Errorf("%w, and %s without its value is answered %q", ErrNotAsked, name, string(e))
	case err == nil:
		return name + " works without its value", nil
	}
	return "", err
}

// ClearsTTL asks whether GETSET removes a key's TTL, as on Redis; SSDB keeps it.
func (q *Asker) ClearsTTL() (bool, error) {
	if err := q.Prepare(); err != nil {
		return false, err
	}
	made := q.made(q.a, "old")
	r, err := q.atomic(append(made, protocol.Cmd{"GETSET", q.a, "newer"}, protocol.Cmd{"TTL", q.a}, protocol.Cmd{"DEL", q.a})...)
	if err != nil {
		return false, err
	}
	return r[len(made)+1] == int64(-1), nil
}

// multi is what a fence needs: a transaction in which INCR counts.
func (q *Asker) multi() (string, error) {
	r, err := q.exec(protocol.Cmd{"INCR", q.a}, protocol.Cmd{"DEL", q.a})
	return unless(err, func() bool { return r[0] == int64(1) && r[1] == int64(1) }, "INCR does not count in MULTI")
}

func (q *Asker) setex() (string, error) {
	r, err := q.pipe(protocol.Cmd{"SETEX", q.a, life, "x"}, protocol.Cmd{"TTL", q.a}, protocol.Cmd{"DEL", q.a})
	if err == nil && r[0] == "OK" && r[1] == int64(-1) {
		return "SETEX does not give the key its TTL, so a dead holder's lock would last for ever", nil
	}
	return unless(err, func() bool { return r[0] == "OK" && within(r[1], 1, life) }, odd("SETEX, TTL", r))
}

// setnxOnTTL asks for what every token lock rests on where there is no SET NX PX.
func (q *Asker) setnxOnTTL() (string, error) {
	if err := q.Prepare(); err != nil {
		return "", err
	}
	made := q.made(q.a, "held")
	r, err := q.atomic(append(made, protocol.Cmd{"SETNX", q.a, "taken"}, protocol.Cmd{"DEL", q.a})...)
	return unless(err, func() bool { return r[len(made)] == int64(0) },
		"SETNX deletes a key that has a TTL and takes it (mended in 2.2)")
}

func (q *Asker) expireAgain() (string, error) {
	again, ask, unit := protocol.Cmd{"EXPIRE", q.a, 2 * life}, protocol.Cmd{"TTL", q.a}, int64(1)
	if q.millis {
		again, ask, unit = protocol.Cmd{"PEXPIRE", q.a, 2 * lifeMillis}, protocol.Cmd{"PTTL", q.a}, 1000
	}
	r, err := q.withKey(again, ask)
	return unless(err, func() bool { return r[0] == int64(1) && within(r[1], life*unit+1, 2*life*unit) },
		"EXPIRE does not move the end of a key that has one (mended in 2.2), so no lease can be extended")
}

// watch touches what it watches: its own writes count too.
func (q *Asker) watch() (string, error) {
	if _, err := q.make(q.a, "x"); err != nil {
		return "", err
	}
	r, err := q.c.Pipe(protocol.Cmd{"WATCH", q.a}, protocol.Cmd{"UNWATCH"}, protocol.Cmd{"WATCH", q.a}, protocol.Cmd{"DEL", q.a},
		protocol.Cmd{"MULTI"}, protocol.Cmd{"GET", q.a}, protocol.Cmd{"EXEC"})
	if err != nil {
		return "", err
	}
	exec, refused := r[6].(redis.Error)
	if refused {
		q.c.Do("DISCARD") //nolint:errcheck // it may still be in MULTI
	}
	for _, reply := range r[:6] {
		if e, no := reply.(redis.Error); no {
			return "", e
		}
	}
	if refused {
		return "", exec
	}
	switch ran, list := r[6].([]any); {
	case r[6] == nil:
		return "", nil
	case list && len(ran) == 0:
		return "EXEC answers an empty list when a watched key was touched, where Redis answers nil", nil
	}
	return "EXEC runs although a watched key was touched", nil
}

// renamenx asks whether a TTL travels with the name, and then, with b held, whether a key with a
// TTL stands up to it.
func (q *Asker) renamenx() (string, error) {
	if err := q.Prepare(); err != nil {
		return "", err
	}
	ttl := protocol.Cmd{"TTL", q.b}
	if q.millis {
		ttl[0] = "PTTL"
	}
	first := append(q.made(q.a, "x"), protocol.Cmd{"RENAMENX", q.a, q.b}, ttl, protocol.Cmd{"DEL", q.b})
	second := append(append(q.made(q.b, "held"), q.made(q.a, "y")...), protocol.Cmd{"RENAMENX", q.a, q.b}, protocol.Cmd{"DEL", q.a}, protocol.Cmd{"DEL", q.b})
	r, err := q.atomic(append(first, second...)...)
	if r == nil || err != nil && !strings.Contains(err.Error(), "no such key") { // 1.2: a source with a TTL
		return "", err
	}
	left, _ := r[len(first)-2].(int64)
	switch {
	case r[len(first)-3] != int64(1) || left <= 0:
		return "RENAMENX drops the TTL (it travels with the name since 2.4), so a dead holder's lock would last for ever", nil
	case r[len(r)-3] != int64(0):
		return "RENAMENX renames onto a key that is held", nil
	}
	return "", nil
}

func (q *Asker) milliseconds() (string, error) {
	r, err := q.pipe(protocol.Cmd{"PSETEX", q.a, lifeMillis, "x"}, protocol.Cmd{"PEXPIRE", q.a, 2 * lifeMillis}, protocol.Cmd{"PTTL", q.a}, protocol.Cmd{"DEL", q.a})
	return unless(err, func() bool { return r[0] == "OK" && r[1] == int64(1) && within(r[2], lifeMillis+1, 2*lifeMillis) },
		odd("PSETEX, PEXPIRE, PTTL", r))
}

func (q *Asker) time() (string, error) {
	reply, err := q.c.Do("TIME")
	_, told := answer.Time(reply)
	why := fmt.Sprintf("TIME answers %.80q, which is no time", fmt.Sprintf("%s", reply))
	return unless(err, func() bool { return told }, why)
}

const noSetNXPX = "it has no SET … NX PX (it came with 2.6.12)"

func (q *Asker) setNXPX() (string, error) {
	r, err := q.pipe(protocol.Cmd{"SET", q.a, "held", "NX", "PX", lifeMillis}, protocol.Cmd{"SET", q.a, "taken", "NX", "PX", 2 * lifeMillis},
		protocol.Cmd{"PTTL", q.a}, protocol.Cmd{"DEL", q.a})
	var set redis.Error
	if len(r) > 0 {
		set, _ = r[0].(redis.Error)
	}
	switch {
	case len(r) > 0 && r[0] == "OK" && r[1] == "OK":
		return "SET … NX sets a key that is held", nil
	case strings.Contains(string(set), "wrong number of arguments"), strings.Contains(string(set), "syntax error"):
		return noSetNXPX, nil
	case err != nil:
		return "", err
	case r[0] != "OK" || r[1] != nil:
		return odd("SET … NX on a free key, on a held one", r), nil
	case !within(r[2], 1, lifeMillis):
		return "SET … PX does not give the key its TTL, so a dead holder's lock would last for ever", nil
	}
	return "", nil
}

// scripts has a script compare, and extend, count, replace and remove what holds its value: what
// locks do.
func (q *Asker) scripts() (string, error) {
	const held = "1"
	extend := protocol.Cmd{"PEXPIRE", q.a, 2 * lifeMillis}
	// A script that nobody has sent is asked for as well: after that error the connection has to live on.
	r, err := q.c.Pipe(protocol.Cmd{"EVALSHA", strings.Repeat("0", 40), 1, q.a}, protocol.Cmd{"PSETEX", q.a, lifeMillis, held})
	if err != nil {
		return "", err
	}
	if answer.NoScript(answer.First(r[:1])) {
		r = r[1:]
	}
	if err = answer.First(r); err == nil {
		_, err = q.c.Run(protocol.Change{If: protocol.Script, Key: q.a, Value: "another's", Do: []protocol.Cmd{extend}})
	}
	if err == nil {
		return "a script compares, and changes what holds another value", nil
	}
	if errors.Is(err, protocol.ErrLost) {
		for _, do := range [][]protocol.Cmd{{extend}, {extend, {"INCR", q.a}, {"PSETEX", q.a, lifeMillis, held}}, nil} {
			if _, err = q.c.Run(protocol.Change{If: protocol.Script, Key: q.a, Value: held, Do: do}); err != nil {
				break
			}
		}
	}
	if err != nil {
		q.c.Do("DEL", q.a) //nolint:errcheck // it ends by itself
	}
	if errors.Is(err, protocol.ErrLost) {
		return "a script does not find the value that was set", nil
	}
	return "", err
}

func is(reply any, want string) bool {
	b, ok := reply.([]byte)
	return ok && string(b) == want
}

func within(reply any, low, high int64) bool {
	n, ok := reply.(int64)
	return ok && low <= n && n <= high
}
