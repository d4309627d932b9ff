package protocol

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// A Change changes Key if, and only if, Key holds Value: it extends, releases or repairs a lock. A Change is
// data. The engine carries it out under its condition: alone or together with others, over a pinned connection
// if there is one, and with a wake-up behind it.
//
// A Change with a TTL sets the key's TTL, and puts Next on the key: each condition has its own commands for
// that. A Change with neither TTL nor Do deletes the key. If the first command answers 0, it found nothing to
// change: the Change ends with [ErrLost].
type Change struct {
	If        Condition
	Key       string
	Value     string
	Next      string        // the new value; "": the value stays
	TTL       time.Duration // rounded up to milliseconds (Redis 2.6), or to a second; 0: see Do
	Whole     bool          // count the TTL in whole seconds
	Do        []Cmd         // other commands; the first argument of each is its key
	TakeFence bool          // take a fence together with the change: INCR Aux(Key, "fence")

	Persistent bool // change the key only if it has no TTL; by WATCH
	Once       bool // another client can write Value too: the first aborted EXEC is final; by WATCH

	// Custom carries the change out instead of the engine, if it is set: for a lock that is not one value
	// on one key. Custom returns the replies to Do, the fence last, or [ErrLost] if the lock is not ours.
	Custom func(c *Conn) ([]any, error)

	// Final says that no earlier change can take effect after this one. Only a change with Custom needs to say so:
	// the engine knows it of a change that sets a new value, and of a change by WATCH.
	Final bool

	// After runs on the same connection after the change was done, if it is set: once for all changes
	// of an algorithm that travelled together. An error of After is the error of each of these changes.
	After func(c *Conn) error

	// Observe receives the outcome, if it is set, each time the change was carried out.
	Observe func(err error)
}

// A Condition changes a key only if the key holds a value: [Watch] (nil means Watch too), [ListCAS], [Script],
// [IfEq], [Unguarded].
type Condition interface {
	// carryOut carries out the changes in list, and stores replies and error in each task.
	carryOut(c *Conn, list []*task)
}

// A task takes a Change to its Condition, and brings the replies and the error back.
type task struct {
	Change
	replies []any
	err     error
	sent    int      // number of commands in the transaction of this task
	alone   [1]*task // a list of this task only: Run allocates no other
}

var tasks = sync.Pool{New: func() any { return new(task) }}

// Run carries ch out and returns the replies to its commands, the fence last. It returns [ErrLost] if the key
// does not hold ch.Value.
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

// RunAll carries out several changes, each with its own outcome. Neighbours with the same Condition travel
// together, and their After runs once.
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

// condition chooses the Condition of ch.
func (ch *Change) condition() Condition {
	switch {
	case ch.Custom != nil:
		return byItself{}
	case ch.valid() != nil:
		return invalid{}
	case ch.Watches():
		return Watch
	}
	return ch.If
}

// Watches reports whether ch is carried out under WATCH.
func (ch *Change) Watches() bool {
	return ch.Custom == nil && (ch.If == nil || ch.If == Watch || ch.Persistent || ch.Once)
}

// goesWith reports whether ch and other can be carried out together.
func (ch *Change) goesWith(other *Change) bool {
	return ch.condition() == other.condition() && !ch.single() && !other.single()
}

// single reports whether ch must be carried out alone.
func (ch *Change) single() bool { return ch.Custom != nil || ch.Once || ch.Persistent }

// byItself calls the Custom of a change.
type byItself struct{}

func (byItself) carryOut(c *Conn, list []*task) { list[0].replies, list[0].err = list[0].Custom(c) }

// invalid refuses changes that no server can make.
type invalid struct{}

func (invalid) carryOut(_ *Conn, list []*task) {
	for _, s := range list {
		s.err = s.valid()
	}
}

// after lets the After of changes that travelled together run once, and keeps its error for the others.
type after struct {
	ran bool
	err error
}

// end turns the replies of s into its outcome, and runs After and Observe.
func (s *task) end(c *Conn, once *after) {
	if s.err == nil && len(s.replies) == 0 {
		s.err = ErrLost
	}
	if n := len(s.replies); s.TakeFence && n > 1 && s.err == answer.First(s.replies[n-1:]) {
		_, s.err = c.Fence(s.Key, s.replies[n-1]) // the rest was done
	}
	if answer.Refused(s.err) && s.Custom == nil && s.If != ListCAS &&
		(s.commands() == 1 && answer.Proves(s.err) || answer.ExecAborted(s.err)) {
		s.err = Refused.Mark(s.err) // its only command: nothing was changed
	}
	if s.err == nil && s.replies[0] == int64(0) {
		s.err = ErrLost // the key expired inside the transaction: before 6.0.9 WATCH does not notice
	}
	if s.After != nil && s.err == nil {
		if !once.ran {
			once.ran, once.err = true, catch(s.After, c)
			if o := OutcomeOf(once.err); o == Refused || o == NotSent { // After was refused, but the change was done
				once.err = Unknown.Mark(&limit.CallerError{Err: once.err})
			}
		}
		s.err = once.err
	}
	if s.Observe != nil {
		s.Observe(s.err)
	}
}

// catch calls after and turns its panic into an error: the outcome of the change is known, and must not be lost.
func catch(after func(c *Conn) error, c *Conn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &limit.Panicked{Value: p}
		}
	}()
	return after(c)
}

// cmds returns the commands of ch, the INCR of the fence last. A nil stands for ch.Key.
func (ch *Change) cmds() []Cmd {
	do := ch.Do
	switch {
	case ch.removes():
		do = deletion
	case ch.TTL > 0:
		do = append([]Cmd{ch.setTTL(nil)}, do...)
	}
	if ch.TakeFence {
		do = append(do[:len(do):len(do)], Cmd{"INCR", Aux(ch.Key, "fence")})
	}
	return do
}

// Commands returns the commands of ch for a transaction, the INCR of the fence last. A lock that carries
// changes out itself (Custom) runs them under a condition of its own ([Conn.CompareAndSet]).
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

// commands counts the commands of ch without building them.
func (ch *Change) commands() int {
	n := len(ch.Do)
	if n == 0 || ch.TTL > 0 {
		n++
	}
	if ch.TakeFence {
		n++
	}
	return n
}

// add adds the commands of ch to w, the INCR of the fence last.
func (ch *Change) add(c *Conn, w *wire.Write) {
	switch {
	case ch.removes():
		w.Add("DEL", c.keyArg(ch.Key, nil))
	case ch.TTL > 0:
		m := ch.setTTL(c.keyArg(ch.Key, nil))
		w.Add(m[0].(string), m[1:]...)
		fallthrough
	default:
		wire.All(w, ch.Do)
	}
	if ch.TakeFence {
		w.Add("INCR", Aux(ch.Key, "fence"))
	}
}

// removes reports whether ch only deletes the key.
func (ch *Change) removes() bool {
	return ch.TTL == 0 && ch.Next == "" && (len(ch.Do) == 0 || len(ch.Do) == 1 && named(ch.Do[0], "DEL") && len(ch.Do[0]) == 2)
}

// next returns the key's value after ch.
func (ch *Change) next() string { return cmp.Or(ch.Next, ch.Value) }

// setTTL returns the command that sets the key's TTL, and its new value if there is one.
func (ch *Change) setTTL(key any) Cmd {
	var m Cmd
	if ch.next() == ch.Value {
		m, _ = Expire(!ch.Whole, key, ch.TTL) // valid has checked the ttl
	} else {
		m, _ = SetEx(!ch.Whole, key, ch.Next, ch.TTL)
	}
	return m
}

// valid returns [ErrInvalid] for a TTL below one unit, and for a new value without a TTL.
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

// replaces returns the new value in the first command of ch. ok is false for a command without a new value.
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

// holding returns the tasks whose keys hold their values, by the replies to a GET of each key. The other tasks
// end here: they are lost, or their keys are foreign.
func holding(list []*task, replies []any) []*task {
	n := 0
	for i, s := range list {
		if (wire.WatchReplies{Get: replies[i]}).Holds(s.Value) {
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

// values reads the keys of list, in one round trip.
func (c *Conn) values(list []*task) ([]any, error) {
	w := c.wire.Compose(len(list))
	for _, s := range list {
		w.Add("GET", c.keyArg(s.Key, nil))
	}
	return w.Replies()
}

// answered gives s the first of replies, one for each of its commands, and returns the rest.
func (s *task) answered(replies []any) (rest []any) {
	n := s.commands()
	s.replies, s.err = replies[:n:n], answer.First(replies[:n])
	return replies[n:]
}

// fail ends every task of list with err.
func fail(list []*task, err error) {
	for _, s := range list {
		s.err = err
	}
}
