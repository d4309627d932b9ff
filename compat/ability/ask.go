package ability

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// An Asker asks a server, over one connection, what it can do.
type Asker struct {
	c      *protocol.Conn
	a, b   string // scratch keys, in one slot, which nobody else has
	millis bool   // TTLs are given and read in milliseconds

	made string // makes $1 with the value $2 and a TTL: one command, or two that need MULTI; "": not known yet

	transacts bool // there are MULTI and EXEC
	noMulti   bool // MULTI is not to be had: what has to be done as one goes into a script
	noEval    bool // nor are scripts

	Again func() // called before a question, or a part of one that stands for all, is asked anew
}

// New returns an Asker over c, with scratch keys of new random names, in one slot. With millis its questions count TTLs
// in milliseconds, as the lock does.
func New(c *protocol.Conn, a, b string, millis bool) *Asker {
	return &Asker{c: c, a: a, b: b, millis: millis, Again: func() {}}
}

// On returns q over another connection.
func (q *Asker) On(c *protocol.Conn) *Asker {
	q.c = c
	return q
}

// Knowing tells the Asker the server's abilities: without MULTI or scripts it asks without them.
func (q *Asker) Knowing(can func(Ability) bool) { q.noMulti, q.noEval = !can(Multi), !can(Scripts) }

// ErrNotAsked means that the question could leave a key behind that never expires, because the
// server has neither MULTI nor scripts.
var ErrNotAsked = errors.New("setnxlock: " + unasked)

const unasked = "can't be asked without MULTI or scripts: a key without an end might be left behind"

// An Answer is what a server answered when it was asked for an ability. The zero Answer says that nobody
// has asked.
type Answer struct {
	Verdict Verdict     `json:"verdict"`
	Why     string      `json:"why,omitempty"`   // what it does instead, or why it could not be asked, for the middle of a sentence
	Reply   redis.Error `json:"reply,omitempty"` // what it refused with, if that is known
}

// A Verdict is what an answer proves.
type Verdict string

const (
	NotAsked Verdict = ""        // nothing is known
	Yes      Verdict = "yes"     // it has the ability
	No       Verdict = "no"      // it answers, and not as it should
	Refused  Verdict = "refused" // it answers no, or breaks the connection
)

// Ask asks for one ability. A no is asked twice, because a server of a cluster may be replaced between
// two commands by one that lacks what the first has written. An error means that it could not be
// learned: the server's refusal, [ErrNotAsked], or the connection's error.
func (q *Asker) Ask(a Ability) (answer Answer, err error) {
	if answer, err = q.once(a); answer.Verdict == No {
		q.Again()
		return q.once(a)
	}
	return answer, err
}

func (q *Asker) once(a Ability) (Answer, error) {
	why, err := q.pose(a.row().question)
	answer := Answer{Verdict: Yes, Why: why}
	var odd *protocol.UnsafeServerError
	errors.As(err, &answer.Reply)
	switch {
	case errors.As(err, &odd): // no key could be made
		return Answer{No, odd.Why, ""}, nil
	case errors.Is(err, ErrNotAsked):
		answer.Verdict, answer.Why = NotAsked, unasked
	case err != nil:
		answer.Verdict = Refused
	case why != "":
		answer.Verdict = No
	}
	return answer, err
}

// Prepare finds out how a key with a TTL is made here, and with it whether the server lets us
// write at all. The error is the server's refusal, the connection's error, or a
// [*protocol.UnsafeServerError] if none of Redis's ways makes a key here.
func (q *Asker) Prepare() (refused error) {
	if q.made != "" {
		return nil
	}
	ways := []string{"SETEX $1 60 $2", "PSETEX $1 60000 $2", "SET $1 $2; EXPIRE $1 60"}
	if q.millis {
		ways = ways[1:]
	}
	for _, q.made = range ways {
		cmds := q.commands("+ a x; DEL a")
		replies, err := q.run(cmds...)
		switch {
		case err == nil && replies[0] == "OK" && replies[len(replies)-1] == int64(1):
			return nil
		case err == nil:
			err = q.c.Unsafe(odd(fmt.Sprint(cmds[0][0], ", DEL"), []string{fmt.Sprint(replies...)}), "another server")
		}
		if refused == nil || final(err) || tells(err) && !tells(refused) {
			refused = err
		}
		if final(err) {
			break
		}
	}
	q.made = ""
	return refused
}

// final reports whether the server's answer would be the same to every write: it is a replica, full,
// or not ready.
func final(err error) bool {
	r := answer.Known(err)
	return r != nil && (r.CannotServe || r.Passes)
}

// tells reports whether an error says more than "unknown command": it is forbidden, or the connection broke.
func tells(err error) bool { return !answer.Refused(err) || answer.Of(err) == answer.Permission }

// run sends commands that begin by making a key: in one write, or in one transaction.
func (q *Asker) run(cmds ...protocol.Cmd) ([]any, error) {
	if strings.Contains(q.made, ";") {
		return q.exec(cmds...)
	}
	return q.pipe(cmds...)
}

// pipe sends commands in one write, each harmless by itself. The error is the server's first, or the connection's.
func (q *Asker) pipe(cmds ...protocol.Cmd) ([]any, error) {
	replies, err := q.c.Pipe(cmds...)
	if err != nil {
		return nil, err
	}
	return replies, answer.First(replies)
}

// atomic runs commands on the scratch keys as one; the last remove them. It uses a transaction, or a script where there
// is none.
func (q *Asker) atomic(cmds ...protocol.Cmd) ([]any, error) {
	switch {
	case !q.noMulti:
		return q.exec(cmds...)
	case q.noEval:
		return nil, ErrNotAsked
	}
	const value = "asking"
	if err := q.make(value); err != nil {
		return nil, err
	}
	cmds = append(q.commands("EXISTS a; DEL a"), cmds...)
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

// make makes a, with a TTL.
func (q *Asker) make(value string) error {
	err := q.Prepare()
	if err == nil {
		_, err = q.run(q.commands("+ a " + value)...)
	}
	return err
}

// hasCommand asks for a command without its arguments, so it writes nothing. A server that has it says that they are
// missing; one that says it otherwise may have it or not.
func (q *Asker) hasCommand(name string) (string, error) {
	switch _, err := q.c.Do(name, q.a); {
	case answer.Misused(err):
		return "", nil
	case answer.Refused(err) && !answer.Lacks(err) && answer.Known(err) == nil:
		return "", fmt.Errorf("%w, and %s without its value is answered: %w", ErrNotAsked, name, err)
	case err == nil:
		return name + " works without its value", nil
	default:
		return "", err
	}
}

// watch watches a key and touches it itself: its own writes count too.
func (q *Asker) watch() (string, error) {
	if err := q.make("x"); err != nil {
		return "", err
	}
	r, err := q.pipe(q.commands("WATCH a; UNWATCH; WATCH a; DEL a; MULTI; GET a; EXEC")...)
	if err != nil {
		if len(r) > 0 && answer.Refused(answer.First(r[6:])) {
			q.c.Do("DISCARD") //nolint:errcheck // it may still be in MULTI
		}
		return "", err
	}
	switch ran, list := r[6].([]any); {
	case r[6] == nil:
		return "", nil
	case list && len(ran) == 0:
		return "EXEC answers an empty list when a watched key was touched, where Redis answers nil", nil
	}
	return "EXEC runs although a watched key was touched", nil
}

func (q *Asker) time() (string, error) {
	reply, err := q.c.Do("TIME")
	_, told := answer.Time(reply)
	if err != nil || told {
		return "", err
	}
	return fmt.Sprintf("TIME answers %.80q, which is no time", fmt.Sprintf("%s", reply)), nil
}

// scripts runs the scripts of a lock: they compare, and extend, count, replace and remove.
func (q *Asker) scripts() (string, error) {
	const held, extend = "1", "PEXPIRE a 120000"
	script := func(value, do string) error {
		_, err := q.c.Run(protocol.Change{If: protocol.Script, Key: q.a, Value: value, Do: q.commands(do)})
		return err
	}
	// A script that nobody has sent is asked for as well: after that error the connection has to live on.
	r, err := q.c.Pipe(q.commands("EVALSHA " + strings.Repeat("0", 40) + " 1 a; PSETEX a 60000 " + held)...)
	if err != nil {
		return "", err
	}
	if answer.NoScript(answer.First(r[:1])) {
		r = r[1:]
	}
	if err = answer.First(r); err == nil {
		err = script("another's", extend)
	}
	if err == nil {
		return "a script compares, and changes what holds another value", nil
	}
	if errors.Is(err, protocol.ErrLost) {
		for _, do := range []string{extend, extend + "; PSETEX a 60000 " + held, ""} {
			if err = script(held, do); err != nil {
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
