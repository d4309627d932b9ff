package protocol

import (
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Change is commands that run if, and only if, Key holds Value: an extension, a release, a
// repair. It is data: the engine carries it out and keeps the condition, for one change or many
// together, over a pinned connection if there is one, and with a wake-up behind it.
//
// A change whose first command answers 0 found nothing to change: it ends with [ErrLost].
type Change struct {
	If    Condition
	Key   string
	Value string
	Do    []Cmd // the first argument of each is its key; nil: the key is deleted
	Draw  bool  // draw a number from Aux(Key, "fence") beside it

	Persistent bool // and only if the key has no TTL; by WATCH
	Once       bool // another client can write Value too: an EXEC that was aborted is final; by WATCH

	// By, if it is set, carries the change out instead of the engine, for a lock that is not one
	// value on one key. It returns the replies to Do, the drawn number last, or [ErrLost] if the
	// lock is not ours.
	By func(c *Conn) ([]any, error)

	// Final says that no change which was sent before can take effect once this one has: for a lock that carries its
	// changes out itself. Of a new value, and of a change by WATCH, the engine knows it.
	Final bool

	// After, if it is set, runs on the same connection after the change was done: once for all
	// changes of an algorithm that were carried out together. Its error is the change's.
	After func(c *Conn) error

	// Seen, if it is set, is called with the outcome each time the change has been carried out.
	Seen func(err error)
}

// A Condition is a way to change a key only if it holds a value.
type Condition uint8

const (
	Watch     Condition = iota // WATCH, GET, MULTI, EXEC: Redis 2.2 (watch.go)
	ListCAS                    // one transaction of list commands: Redis 2.0 (listcas.go)
	Script                     // a Lua script: Redis 2.6 (script.go)
	Unguarded                  // GET, then the commands: not safe, as published (unguarded.go)
)

// Run carries ch out and returns the replies to ch.Do, the drawn number last. It returns [ErrLost]
// if the key does not hold ch.Value.
func (c *Conn) Run(ch Change) ([]any, error) {
	if len(ch.Do) == 1 && named(ch.Do[0], "DEL") && len(ch.Do[0]) == 2 {
		ch.Do = nil // what a deletion is called here
	}
	var replies []any
	var err error
	switch {
	case ch.By != nil:
		replies, err = ch.By(c)
	case c.wire.Pinned && ch.removes() && ch.If == Watch && !ch.Once && !ch.Persistent:
		replies, err = c.pinnedRelease(&ch)
	case ch.Persistent || ch.Once: // by WATCH alone
		replies, err = c.ifHolds(&ch)
	case ch.If == ListCAS:
		replies, err = c.listCAS(&ch)
	case ch.If == Script:
		replies, err = c.script(&ch)
	case ch.If == Unguarded:
		replies, err = c.unguarded(&ch)
	default:
		replies, err = c.ifHolds(&ch)
	}
	return ch.ended(c, replies, err, &after{})
}

// RunAll carries out several changes, each with its own outcome. Those with the Condition of the first go together, and
// their After runs once; the others follow one by one.
func (c *Conn) RunAll(changes []Change) ([][]any, []error) {
	replies, errs := make([][]any, len(changes)), make([]error, len(changes))
	var together []Change
	var at, apart []int
	for i, ch := range changes {
		if ch.batches() && (len(together) == 0 || ch.If == together[0].If) {
			together, at = append(together, ch), append(at, i)
		} else {
			apart = append(apart, i)
		}
	}
	if len(together) > 0 {
		r, e := c.runTogether(together)
		for n, i := range at {
			replies[i], errs[i] = r[n], e[n]
		}
	}
	for _, i := range apart {
		replies[i], errs[i] = c.Run(changes[i])
	}
	return replies, errs
}

// runTogether carries out changes of one Condition.
func (c *Conn) runTogether(changes []Change) ([][]any, []error) {
	replies, errs := make([][]any, len(changes)), make([]error, len(changes))
	switch changes[0].If {
	case ListCAS:
		c.allListCAS(changes, replies, errs)
	case Script:
		c.allScripts(changes, replies, errs)
	case Unguarded:
		c.allUnguarded(changes, replies, errs)
	default:
		c.allIfHold(changes, replies, errs)
	}
	var once after
	for i, ch := range changes {
		replies[i], errs[i] = ch.ended(c, replies[i], errs[i], &once)
	}
	return replies, errs
}

// after is whether the After of changes that were carried out together ran, and its error.
type after struct {
	ran bool
	err error
}

// ended is what a change's replies come to.
func (ch *Change) ended(c *Conn, replies []any, err error, once *after) ([]any, error) {
	if err == nil && len(replies) == 0 {
		err = ErrLost
	}
	if e, refused := err.(redis.Error); refused && ch.By == nil && ch.If != ListCAS &&
		(len(ch.Do) < 2 && !ch.Draw || strings.HasPrefix(string(e), "EXECABORT")) {
		err = Refused.Mark(err) // its only command: nothing was changed
	}
	if err == nil && replies[0] == int64(0) {
		err = ErrLost // expired inside the transaction: before 6.0.9 WATCH does not notice
	}
	if ch.After != nil && err == nil {
		if !once.ran {
			once.ran, once.err = true, caught(ch.After, c)
			if o := OutcomeOf(once.err); o == Refused || o == NotSent { // of what runs behind the change, which was done
				once.err = Unknown.Mark(&limit.CallerError{Err: once.err})
			}
		}
		err = once.err
	}
	if ch.Seen != nil {
		ch.Seen(err)
	}
	return replies, err
}

// caught is after's error.
func caught(after func(c *Conn) error, c *Conn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &limit.Panicked{Value: p}
		}
	}()
	return after(c)
}

// cmds are the commands of a change, with the one that draws.
func (ch *Change) cmds() []Cmd {
	do := ch.Do
	if do == nil {
		do = one("DEL", ch.Key)
	}
	if ch.Draw {
		do = append(do[:len(do):len(do)], Cmd{"INCR", Aux(ch.Key, "fence")})
	}
	return do
}

// add adds the commands of a change to w, with the one that draws.
func (ch *Change) add(c *Conn, w *wire.Write) {
	if wire.All(w, ch.Do); ch.Do == nil {
		w.Add("DEL", c.boxed(ch.Key, nil))
	}
	if ch.Draw {
		w.Add("INCR", Aux(ch.Key, "fence"))
	}
}

// arguments is how many those have.
func (ch *Change) arguments() int { return max(wire.Arguments(ch.Do), 1) + 1 }

// batches reports that ch can be carried out together with others of its Condition.
func (ch *Change) batches() bool { return ch.By == nil && !ch.Once && !ch.Persistent }

// removes reports that ch is a release.
func (ch *Change) removes() bool { return ch.By == nil && ch.Do == nil }

// replaces returns the value that ch puts on the key by its first command.
func (ch *Change) replaces() (value string, ok bool) {
	m := ch.Do[0]
	switch {
	case named(m, "GETSET"), named(m, "SET") && len(m) == 3:
		value, ok = m[2].(string)
	case named(m, "SETEX"), named(m, "PSETEX"):
		value, ok = m[3].(string)
	}
	return value, ok
}
