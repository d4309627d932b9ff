package protocol

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Change is what becomes of Key if, and only if, it holds Value: an extension, a release, a
// repair. It is data: the engine carries it out and keeps the condition, for one change or many
// together, over a pinned connection if there is one, and with a wake-up behind it.
//
// With a TTL the key gets that TTL, and Next: each condition has its own commands for it. With neither TTL nor Do it is
// deleted. A change whose first command answers 0 found nothing to change: it ends with [ErrLost].
type Change struct {
	If    Condition
	Key   string
	Value string
	Next  string        // the new value; "": it stays
	TTL   time.Duration // rounded up to milliseconds (Redis 2.6), or to a second; 0: see Do
	Whole bool          // count the TTL in whole seconds
	Do    []Cmd         // other commands; the first argument of each is its key
	Draw  bool          // draw a number from Aux(Key, "fence") beside it

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

// A Condition is a way to change a key only if it holds a value: [Watch] (no Condition is that one), [ListCAS], [Script],
// [IfEq], [Unguarded].
type Condition interface {
	// carryOut carries out changes, one or many, and notes in each of them what it came to.
	carryOut(c *Conn, list []*task)
}

// A task is a change that is carried out, and what it came to.
type task struct {
	Change
	replies []any
	err     error
	sent    int      // commands of its own transaction
	alone   [1]*task // itself: a list of one
}

var tasks = sync.Pool{New: func() any { return new(task) }}

// Run carries ch out and returns the replies to its commands, the drawn number last. It returns [ErrLost]
// if the key does not hold ch.Value.
func (c *Conn) Run(ch Change) ([]any, error) {
	s := tasks.Get().(*task)
	s.Change, s.alone[0] = ch, s
	if !c.pinnedRelease(s) {
		s.condition().carryOut(c, s.alone[:])
	}
	s.end(c, new(after))
	replies, err := s.replies, s.err
	*s = task{}
	tasks.Put(s)
	return replies, err
}

// RunAll carries out several changes, each with its own outcome. Neighbours with the same Condition go together, and
// their After runs once.
func (c *Conn) RunAll(changes []Change) ([][]any, []error) {
	replies, errs := make([][]any, len(changes)), make([]error, len(changes))
	tasks, list := make([]task, len(changes)), make([]*task, len(changes))
	for i, ch := range changes {
		tasks[i].Change, list[i] = ch, &tasks[i]
	}
	c.carryOut(list)
	for i, s := range tasks {
		replies[i], errs[i] = s.replies, s.err
	}
	return replies, errs
}

func (c *Conn) carryOut(list []*task) {
	for len(list) > 0 {
		first, n := list[0], 1
		for n < len(list) && first.goesWith(&list[n].Change) {
			n++
		}
		first.condition().carryOut(c, list[:n:n])
		var once after
		for _, s := range list[:n] {
			s.end(c, &once)
		}
		list = list[n:]
	}
}

// condition is how ch is carried out.
func (ch *Change) condition() Condition {
	switch {
	case ch.By != nil:
		return byItself{}
	case ch.valid() != nil:
		return nothing{}
	case ch.Watches():
		return Watch
	}
	return ch.If
}

// Watches reports that ch is carried out under WATCH.
func (ch *Change) Watches() bool {
	return ch.By == nil && (ch.If == nil || ch.If == Watch || ch.Persistent || ch.Once)
}

// goesWith reports that both can be carried out together.
func (ch *Change) goesWith(other *Change) bool {
	return ch.condition() == other.condition() && !ch.single() && !other.single()
}

// single reports that ch is not carried out together with others.
func (ch *Change) single() bool { return ch.By != nil || ch.Once || ch.Persistent }

// byItself is the condition of a change that is carried out by its By.
type byItself struct{}

func (byItself) carryOut(c *Conn, list []*task) { list[0].replies, list[0].err = list[0].By(c) }

// nothing is the condition of a change that no server can make.
type nothing struct{}

func (nothing) carryOut(_ *Conn, list []*task) {
	for _, s := range list {
		s.err = s.valid()
	}
}

// after is whether the After of changes that were carried out together ran, and its error.
type after struct {
	ran bool
	err error
}

// end makes of a change's replies what it came to.
func (s *task) end(c *Conn, once *after) {
	if s.err == nil && len(s.replies) == 0 {
		s.err = ErrLost
	}
	if e, refused := s.err.(redis.Error); refused && s.By == nil && s.If != ListCAS &&
		(s.commands() == 1 || strings.HasPrefix(string(e), "EXECABORT")) {
		s.err = Refused.Mark(s.err) // its only command: nothing was changed
	}
	if s.err == nil && s.replies[0] == int64(0) {
		s.err = ErrLost // expired inside the transaction: before 6.0.9 WATCH does not notice
	}
	if s.After != nil && s.err == nil {
		if !once.ran {
			once.ran, once.err = true, caught(s.After, c)
			if o := OutcomeOf(once.err); o == Refused || o == NotSent { // of what runs behind the change, which was done
				once.err = Unknown.Mark(&limit.CallerError{Err: once.err})
			}
		}
		s.err = once.err
	}
	if s.Seen != nil {
		s.Seen(s.err)
	}
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

// cmds are the commands of a change, with the one that draws. A key that is nil is the change's.
func (ch *Change) cmds() []Cmd {
	do := ch.Do
	switch {
	case ch.removes():
		do = deletion
	case ch.TTL > 0:
		do = append([]Cmd{ch.lives(nil)}, do...)
	}
	if ch.Draw {
		do = append(do[:len(do):len(do)], Cmd{"INCR", Aux(ch.Key, "fence")})
	}
	return do
}

// Commands are those that make the change in a transaction, the one that draws last: for a lock that carries changes out
// itself (By), on a condition of its own ([Conn.CompareAndSet]).
func (ch *Change) Commands() []Cmd {
	cmds := slices.Clone(ch.cmds())
	for i, m := range cmds {
		if m[1] == nil {
			cmds[i] = slices.Clone(m)
			cmds[i][1] = ch.Key
		}
	}
	return cmds
}

var deletion = []Cmd{{"DEL", nil}}

// commands is how many those are.
func (ch *Change) commands() int {
	n := len(ch.Do)
	if n == 0 || ch.TTL > 0 {
		n++
	}
	if ch.Draw {
		n++
	}
	return n
}

// add adds the commands of a change to w, with the one that draws.
func (ch *Change) add(c *Conn, w *wire.Write) {
	switch {
	case ch.removes():
		w.Add("DEL", c.boxed(ch.Key, nil))
	case ch.TTL > 0:
		m := ch.lives(c.boxed(ch.Key, nil))
		w.Add(m[0].(string), m[1:]...)
		fallthrough
	default:
		wire.All(w, ch.Do)
	}
	if ch.Draw {
		w.Add("INCR", Aux(ch.Key, "fence"))
	}
}

// removes reports that ch is a release.
func (ch *Change) removes() bool {
	return ch.TTL == 0 && ch.Next == "" && (len(ch.Do) == 0 || len(ch.Do) == 1 && named(ch.Do[0], "DEL") && len(ch.Do[0]) == 2)
}

// next is the value that the key is to hold.
func (ch *Change) next() string { return cmp.Or(ch.Next, ch.Value) }

// lives is the command that gives the key its TTL, and its new value if there is one.
func (ch *Change) lives(key any) Cmd {
	var m Cmd
	if ch.next() == ch.Value {
		m, _ = Expire(!ch.Whole, key, ch.TTL) // valid has looked at it
	} else {
		m, _ = SetEx(!ch.Whole, key, ch.Next, ch.TTL)
	}
	return m
}

// valid is [ErrInvalid] for a TTL that no server can keep, and for a new value without one.
func (ch *Change) valid() error {
	if ch.TTL == 0 && ch.Next == "" {
		return nil
	}
	unit := time.Millisecond
	if ch.Whole {
		unit = time.Second
	}
	_, err := Whole(ch.TTL, unit)
	return err
}

// replaces returns the value that ch puts on the key by its first command.
func (ch *Change) replaces() (value string, ok bool) {
	if ch.TTL > 0 {
		return "", false
	}
	m := ch.Do[0]
	switch {
	case named(m, "GETSET"), named(m, "SET") && len(m) == 3:
		value, ok = m[2].(string)
	case named(m, "SETEX"), named(m, "PSETEX"):
		value, ok = m[3].(string)
	}
	return value, ok
}

// holding are the changes of list whose keys hold their values, by the replies to a GET of each; the others are lost.
func holding(list []*task, replies []any) []*task {
	n := 0
	for i, s := range list {
		if (wire.Seen{Get: replies[i]}).Holds(s.Value) {
			list[i], list[n] = list[n], s
			n++
			continue
		}
		held, err := redis.String(replies[i], nil)
		if s.err = Foreign(s.Key, err); err == nil || err == redis.ErrNil {
			s.err = lostTo(s.Key, held, err == nil)
		}
	}
	return list[:n]
}

// answered notes the replies to the commands of s, and returns those that follow.
func (s *task) answered(replies []any) (rest []any) {
	n := s.commands()
	s.replies, s.err = replies[:n:n], answer.First(replies[:n])
	return replies[n:]
}

// fail notes what all changes of list have come to.
func fail(list []*task, err error) {
	for _, s := range list {
		s.err = err
	}
}
