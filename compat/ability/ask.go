package ability

import (
	"errors"
	"fmt"
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
func (q *Asker) Ask(a Ability) (Answer, error) {
	answer, err := q.once(a)
	if answer.Verdict == No {
		if q.Again != nil {
			q.Again()
		}
		return q.once(a)
	}
	return answer, err
}

func (q *Asker) once(a Ability) (Answer, error) {
	why, err := a.row().ask(q)
	answer := Answer{Why: why}
	var odd *protocol.UnsafeServerError
	errors.As(err, &answer.Reply)
	switch {
	case errors.As(err, &odd): // no key could be made
		return Answer{No, odd.Why, ""}, nil
	case errors.Is(err, ErrNotAsked):
		answer.Why = unasked
	case err != nil:
		answer.Verdict = Refused
	case why == "":
		answer.Verdict = Yes
	default:
		answer.Verdict = No
	}
	return answer, err
}

// Prepare finds out how a key with a TTL is made here, and with it whether the server lets us
// write at all. The error is the server's refusal, the connection's error, or a
// [*protocol.UnsafeServerError] if the server makes a key in no way of Redis's.
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
			err = q.c.Unsafe(odd(fmt.Sprint(cmds[0][0], ", DEL"), replies), "another server")
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

// transaction sends commands that end with an EXEC in one write, and leaves the connection outside of MULTI
// whatever they were answered. The error is the first that the server answered with, or the connection's.
func (q *Asker) transaction(cmds []protocol.Cmd) ([]any, error) {
	r, err := q.c.Pipe(cmds...)
	if err != nil {
		return nil, err
	}
	if answer.Refused(answer.First(r[len(r)-1:])) {
		q.c.Do("DISCARD") //nolint:errcheck // it may still be in MULTI
	}
	return r, answer.First(r)
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

// hasCommand asks for a command without its arguments, which writes nothing. A server that has it says
// that they are missing; one that says it otherwise may have it or not.
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

// watch touches what it watches: its own writes count too.
func (q *Asker) watch() (string, error) {
	if _, err := q.make(q.a, "x"); err != nil {
		return "", err
	}
	r, err := q.transaction([]protocol.Cmd{{"WATCH", q.a}, {"UNWATCH"}, {"WATCH", q.a}, {"DEL", q.a}, {"MULTI"}, {"GET", q.a}, {"EXEC"}})
	if err != nil {
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
