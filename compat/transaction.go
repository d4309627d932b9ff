package compat

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Cmd is a command and its arguments: Cmd{"EXPIRE", key, 30}.
type Cmd []any

// Pipe sends cmds in one write and returns their replies in order. An error
// the server gave for one of them is a redis.Error in its place; the error
// returned is the connection's, and then any of them may have run.
func Pipe(c redis.Conn, cmds ...Cmd) ([]any, error) {
	w := begin(c, arguments(cmds))
	w.all(cmds)
	return w.replies()
}

// A write is commands that are sent together. Their arguments are one piece of
// memory: what a Conn keeps of them is that, so that the Cmds need not outlive the
// call, and cost nothing.
type write struct {
	c    redis.Conn
	args []any
	n    int
	err  error
}

func begin(c redis.Conn, arguments int) write {
	// The guard's room is free again when the replies are here; if they never came, whoever
	// was to send may still read it.
	if g, ok := c.(*guard); ok && arguments <= len(g.args) && g.Err() == nil {
		return write{c: c, args: g.args[:0]}
	}
	return write{c: c, args: make([]any, 0, arguments)}
}

func arguments(cmds []Cmd) int {
	n := 0
	for _, m := range cmds {
		n += len(m) - 1
	}
	return n
}

func (w *write) send(m Cmd) {
	if w.err != nil {
		return
	}
	from := len(w.args)
	w.args = append(w.args, m[1:]...)
	w.err = w.c.Send(m[0].(string), w.args[from:len(w.args):len(w.args)]...)
	w.n++
}

func (w *write) all(cmds []Cmd) {
	for _, m := range cmds {
		w.send(m)
	}
}

func (w *write) replies() ([]any, error) {
	if w.err != nil {
		return nil, w.err
	}
	replies, err := redis.Values(w.c.Do(""))
	if err == nil && len(replies) != w.n {
		err = fmt.Errorf("setnxlock: %d replies to %d commands", len(replies), w.n)
	}
	return replies, err
}

// Aborts is how often IfHolds, and its like for several keys, let an EXEC be aborted.
const Aborts = 8

// Exec runs cmds in one MULTI/EXEC, in one write, and returns their replies,
// nil if EXEC did nothing because a watched key was touched. It looks at every
// reply: before 2.6.5 a command that could not be queued is left out and the
// rest runs (tx/half-queued), and errors inside an EXEC are values, not errors.
//
// Redis 2.0–2.4 refuse EXEC itself when they are over maxmemory, and stay in
// MULTI; redigo believes that MULTI ended when EXEC was sent, so its pool would
// hand out a connection that answers QUEUED to everything. Hence the DISCARD.
func Exec(c redis.Conn, cmds ...Cmd) ([]any, error) {
	w := begin(c, arguments(cmds))
	w.transaction(cmds)
	replies, err := w.replies()
	if err != nil {
		return nil, err
	}
	return Executed(c, replies)
}

// transaction is MULTI; cmds…; EXEC.
func (w *write) transaction(cmds []Cmd) {
	w.send(Cmd{"MULTI"})
	w.all(cmds)
	w.send(Cmd{"EXEC"})
}

// Executed is what Exec makes of the replies to MULTI, commands and EXEC, for a
// write in which more stands beside them.
func Executed(c redis.Conn, replies []any) ([]any, error) {
	done, err := transacted(c, replies)
	if err != nil {
		return nil, err
	}
	return done, first(done, nil)
}

// transacted is Executed for who looks at the replies one by one: an error among
// them is that of a command which could not be queued, or did not run. The error
// returned is EXEC's own.
func transacted(c redis.Conn, replies []any) ([]any, error) {
	queued, ran := replies[1:len(replies)-1], replies[len(replies)-1]
	if e, refused := ran.(redis.Error); refused {
		c.Do("DISCARD") //nolint:errcheck // "without MULTI" is as good; a dead connection says so by itself
		return nil, first(replies[:len(replies)-1], e)
	}
	if err := first(replies[:1], nil); err != nil {
		return nil, err
	}
	if ran == nil {
		return nil, nil
	}
	done, err := redis.Values(ran, nil)
	for i, q := range queued {
		if _, refused := q.(redis.Error); refused {
			continue
		}
		if err != nil || len(done) == 0 {
			return nil, fmt.Errorf("setnxlock: EXEC answered %v to %d commands", ran, len(queued))
		}
		queued[i], done = done[0], done[1:]
	}
	if len(done) > 0 {
		return nil, fmt.Errorf("setnxlock: EXEC answered %v to %d commands", ran, len(queued))
	}
	return queued, nil
}

// first returns the first of replies that is an error, or e.
func first(replies []any, e error) error {
	for _, r := range replies {
		if err, ok := r.(redis.Error); ok {
			return err
		}
	}
	return e
}

// Watch starts to WATCH key and reads it, in one write. exists is false if
// there is no such key: on Redis 2.2.0–2.2.9 it is this read, not a SETNX, that
// makes the server notice an expired key.
func Watch(c redis.Conn, key string) (value string, exists bool, err error) {
	k := any(key)
	replies, err := Pipe(c, Cmd{"WATCH", k}, Cmd{"GET", k})
	if err != nil {
		return "", false, err
	}
	if err := first(replies, nil); err != nil {
		Unwatch(c)
		return "", false, Foreign(key, err)
	}
	value, err = redis.String(replies[1], nil)
	if err == redis.ErrNil {
		return "", false, nil
	}
	return value, true, err
}

// Unwatch ends a WATCH that no EXEC will end. A connection that went back to a
// pool under WATCH would abort its next user's EXEC (tx/stale-watch-in-pool).
func Unwatch(c redis.Conn) {
	c.Do("UNWATCH") //nolint:errcheck // a dead connection watches nothing
}

// IfHolds runs cmds in one EXEC on the condition that l.Key holds l.Value when
// they run; otherwise it changes nothing and returns ErrLost. Two round trips:
//
//	WATCH key; GET key         not ours: UNWATCH, ErrLost
//	MULTI; cmds…; EXEC         nil: somebody touched the key in between
//
// An EXEC that aborts while the key still holds our value was aborted by a
// renewal of ours, by a repair, or by a server that counts a refused SETNX as a
// touch (tx/renewal-aborts-release, tx/contender-aborts-release): it did not
// run, and is tried again, a few times. The commands must not create the key: before Redis 6.0.9 a watched key
// may expire without EXEC noticing (tx/extend-resurrects).
func IfHolds(c redis.Conn, l Lease, cmds ...Cmd) ([]any, error) {
	for range Aborts {
		value, exists, err := Watch(c, l.Key)
		if err != nil {
			return nil, err
		}
		if !exists || value != l.Value {
			Unwatch(c)
			return nil, ErrLost
		}
		replies, err := Exec(c, cmds...)
		if err != nil || replies != nil {
			return replies, err
		}
	}
	return nil, ErrAborted
}

// ExtendIfHolds is the Extend of a lock whose key holds a token: expire, which
// is to set l.Key's TTL to ttl, runs on the condition that the key holds
// l.Value; with draw a fence is drawn beside it.
func ExtendIfHolds(c redis.Conn, now time.Time, l Lease, ttl time.Duration, expire Cmd, draw bool) (Lease, error) {
	if !now.Before(l.Until) {
		return l, ErrLost
	}
	cmds := []Cmd{expire}
	if draw {
		cmds = append(cmds, Cmd{"INCR", FenceKey(l.Key)})
	}
	replies, err := IfHolds(c, l, cmds...)
	if err != nil {
		return l, err
	}
	return extended(l, now, ttl, replies)
}

// extended is l after an EXEC that set the key's TTL and perhaps drew a fence.
func extended(l Lease, now time.Time, ttl time.Duration, replies []any) (Lease, error) {
	if replies[0] == int64(0) { // expired inside the transaction: before 6.0.9 WATCH does not notice
		return l, ErrLost
	}
	if len(replies) > 1 {
		l.Fence = replies[1].(int64)
	}
	l.Until = Until(now, ttl)
	return l, nil
}

// ExtendAllIfHold is the ExtendAll of locks that are extended under WATCH, in two
// round trips for all of leases. extend returns what a lease becomes, and the
// commands that make it so: where the first answers 0 it was lost, and the second,
// if there is one, draws the fence. An EXEC that was aborted did nothing for any of them:
// each half is then tried by itself, so that one key that somebody keeps
// touching does not keep the others from being extended.
func ExtendAllIfHold(c redis.Conn, now time.Time, leases []Lease, ttls []time.Duration,
	extend func(now time.Time, l Lease, ttl time.Duration) (Lease, []Cmd, error)) ([]Lease, []error) {
	b := batch{c: c, leases: leases, next: make([]Lease, len(leases)), cmds: make([][]Cmd, len(leases)), errs: make([]error, len(leases))}
	var ours []int
	for i, l := range leases {
		b.next[i], b.cmds[i], b.errs[i] = extend(now, l, ttls[i])
		if b.errs[i] == nil && !now.Before(l.Until) {
			b.errs[i] = ErrLost
		}
		if b.errs[i] == nil {
			ours = append(ours, i)
		}
	}
	b.extend(ours)
	for i, err := range b.errs {
		if definite(err) {
			b.next[i] = leases[i]
		}
	}
	return b.next, b.errs
}

// A batch is what ExtendAllIfHold has come to.
type batch struct {
	c      redis.Conn
	leases []Lease
	next   []Lease
	cmds   [][]Cmd
	errs   []error
}

// extend extends the leases of these indexes.
func (b *batch) extend(list []int) {
	for _, half := range b.once(list) {
		if len(half) > 1 {
			b.extend(half)
			continue
		}
		for _, i := range half {
			replies, err := IfHolds(b.c, b.leases[i], b.cmds[i]...)
			b.settle(i, replies, err)
		}
	}
}

// once extends them in one transaction. It returns two halves of those for which it
// did nothing.
func (b *batch) once(list []int) [][]int {
	if len(list) < 2 {
		return [][]int{list}
	}
	watch, get := make(Cmd, 1, len(list)+1), make(Cmd, 1, len(list)+1)
	watch[0], get[0] = "WATCH", "MGET"
	for _, i := range list {
		watch, get = append(watch, b.leases[i].Key), append(get, b.leases[i].Key)
	}
	replies, err := Pipe(b.c, watch, get)
	if err == nil {
		err = first(replies, nil)
	}
	var held []any
	if err == nil {
		held, err = redis.Values(replies[1], nil)
	}
	if err == nil && len(held) != len(list) {
		err = fmt.Errorf("setnxlock: MGET answered %d values to %d keys", len(held), len(list))
	}
	if err != nil {
		Unwatch(b.c)
		b.fail(list, err)
		return nil
	}
	var cmds []Cmd
	ours := list[:0:0]
	for n, i := range list {
		if v, ok := held[n].([]byte); !ok || string(v) != b.leases[i].Value {
			b.errs[i] = ErrLost
			continue
		}
		ours, cmds = append(ours, i), append(cmds, b.cmds[i]...)
	}
	if len(ours) == 0 {
		Unwatch(b.c)
		return nil
	}
	done, err := Exec(b.c, cmds...)
	switch {
	case done != nil: // errors of single commands among them
		for _, i := range ours {
			b.settle(i, done[:len(b.cmds[i])], first(done[:len(b.cmds[i])], nil))
			done = done[len(b.cmds[i]):]
		}
		return nil
	case err != nil:
		b.fail(ours, err)
		return nil
	}
	return [][]int{ours[:len(ours)/2], ours[len(ours)/2:]}
}

func (b *batch) fail(list []int, err error) {
	for _, i := range list {
		b.errs[i] = err
	}
}

// settle notes what one lease's commands answered.
func (b *batch) settle(i int, replies []any, err error) {
	switch {
	case err != nil:
		b.errs[i] = err
	case replies[0] == int64(0): // expired inside the transaction: before 6.0.9 WATCH does not notice
		b.errs[i] = ErrLost
	case len(replies) > 1:
		b.next[i].Fence = replies[1].(int64)
	}
}

// ReleaseIfHolds is the Release of such a lock.
func ReleaseIfHolds(c redis.Conn, l Lease) error {
	replies, err := IfHolds(c, l, Cmd{"DEL", l.Key})
	if err == nil && replies[0] == int64(0) {
		return ErrLost // had expired: [0] is not "released"
	}
	return err
}
