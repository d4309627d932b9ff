// Package signal is the lists by which a release wakes one client of ours, wherever it waits:
//
//	a waiter     LPUSH waiters id; EXPIRE waiters 60     it is there
//	             BLPOP wake 1                            and listens, again and again
//	a release    MULTI; RPOPLPUSH waiters wake; EXPIRE wake 60; EXEC    when the key is gone
//
// The client that registered first is named first, and the one that has listened longest gets
// the wake-up; that they need not be the same harms nobody, there is one for each. A client that was woken in vain, because
// another was faster, registers as the next. If nobody waits nothing is written. Foreign clients know nothing of it, and a wake-up can get lost
// with a connection: so a waiter looks all the same, slowly. It looks once when it has
// registered, for a release that came before that.
//
// It guarantees that each release wakes one registered client at most, and that nothing it
// writes outlasts a minute unused.
//
// Before 2.2 a command that pushes to a list with a TTL, or moves from it, deletes it: there nobody listens.
package signal

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	keep  = int64(60)        // seconds that the lists stand unused
	most  = 1024             // how many may be registered
	again = 20 * time.Second // how often a waiter looks after the list it is on
)

// Lists are those of one key.
type Lists struct{ Waiters, Wake string }

// waking are the commands that wake one client.
func (l Lists) waking() [2][]any {
	return [2][]any{{"RPOPLPUSH", l.Waiters, l.Wake}, {"EXPIRE", l.Wake, keep}}
}

// A Waiter is a client that listens, named by its ID. One that is First is the next to be woken.
type Waiter struct {
	ID     string
	First  bool
	looked time.Time
}

// Listen listens for so many seconds, and reports whether a wake-up came. Before that it puts the waiter on the list, if
// it is not on it any more, and tells registered how many are on it.
func (w *Waiter) Listen(c redis.Conn, l Lists, now time.Time, seconds int, registered func(among int)) (woken bool, err error) {
	if now.Sub(w.looked) >= again {
		if err := w.register(c, l, registered); err != nil {
			return false, err
		}
		w.looked = now
	}
	heard, err := c.Do("BLPOP", l.Wake, seconds)
	return err == nil && heard != nil, err
}

func (w *Waiter) register(c redis.Conn, l Lists, registered func(among int)) error {
	if !w.looked.IsZero() {
		n, err := redis.Int(c.Do("EXPIRE", l.Waiters, keep))
		if n > 0 || err != nil {
			return err
		}
	}
	push := "LPUSH"
	if w.First {
		push = "RPUSH"
	}
	replies, err := together(c, []any{push, l.Waiters, w.ID}, []any{"EXPIRE", l.Waiters, keep}) // no list without an end
	if err != nil {
		return err
	}
	n, err := redis.Int(replies[0], nil)
	if err == nil && n > most {
		_, err = c.Do("LTRIM", l.Waiters, 0, most-1)
	}
	if err == nil {
		registered(n)
	}
	return err
}

// Next is who would be woken next; "": nobody.
func Next(c redis.Conn, l Lists) (id string, err error) {
	id, err = redis.String(c.Do("LINDEX", l.Waiters, -1))
	if err == redis.ErrNil {
		err = nil
	}
	return id, err
}

// Wake wakes a client, if one waits.
func Wake(c redis.Conn, l Lists) (woken bool, err error) {
	cmds := l.waking()
	replies, err := together(c, cmds[:]...)
	return err == nil && replies[0] != nil, err
}

// Leave takes the waiter off the list. If it is not on it, a wake-up was meant for it: with pass
// it goes on to another.
func (w *Waiter) Leave(c redis.Conn, l Lists, pass bool) error {
	there, err := redis.Int(c.Do("LREM", l.Waiters, 1, w.ID))
	if err == nil && there == 0 && pass {
		cmds := l.waking()
		_, err = together(c, cmds[:]...)
	}
	return err
}

// Volatile finds out, on a scratch key, whether lists can have a TTL here and be lists all the
// same. The error may be the server's refusal.
func Volatile(c redis.Conn, scratch string) (bool, error) {
	replies, err := together(c, []any{"LPUSH", scratch, "x"}, []any{"EXPIRE", scratch, 10}, []any{"LPUSH", scratch, "x"}, []any{"DEL", scratch})
	if err != nil {
		return false, err
	}
	for _, r := range replies {
		if refused, ok := r.(redis.Error); ok {
			return false, refused
		}
	}
	return replies[2] == int64(2), nil
}

// together runs cmds in one transaction: all or none of them.
func together(c redis.Conn, cmds ...[]any) ([]any, error) {
	cmds = append(append([][]any{{"MULTI"}}, cmds...), []any{"EXEC"})
	replies, err := pipe(c, cmds...)
	if err != nil {
		return nil, err
	}
	for _, r := range replies {
		if refused, ok := r.(redis.Error); ok {
			return nil, refused
		}
	}
	done, err := redis.Values(replies[len(replies)-1], nil)
	if err == nil && len(done) != len(cmds)-2 {
		err = fmt.Errorf("setnxlock: %d replies to %d commands of an EXEC", len(done), len(cmds)-2)
	}
	return done, err
}

// pipe sends cmds in one write.
func pipe(c redis.Conn, cmds ...[]any) ([]any, error) {
	for _, m := range cmds {
		if err := c.Send(m[0].(string), m[1:]...); err != nil {
			return nil, err
		}
	}
	replies, err := redis.Values(c.Do(""))
	if err == nil && len(replies) != len(cmds) {
		err = fmt.Errorf("setnxlock: %d replies to %d commands", len(replies), len(cmds))
	}
	return replies, err
}
