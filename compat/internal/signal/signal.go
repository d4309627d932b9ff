// Package signal wakes one waiting client of ours, in any process, after a release. It uses two lists:
//
//	a waiter     LPUSH waiters id; EXPIRE waiters 60     registers
//	             BLPOP wake 1                            and listens, again and again
//	a release    MULTI; RPOPLPUSH waiters wake; EXPIRE wake 60; EXEC    after the key is gone
//
// A release takes the name of the client that registered first, and the client that has listened longest gets
// the wake-up. The two may differ: each of them gets a wake-up in the end. A woken client that was overtaken by
// another registers as the next. A release without waiters writes nothing. Foreign clients send no wake-ups,
// and a wake-up can get lost with a connection: so a waiter polls too, slowly. It also looks once after it has
// registered, for a release before that.
//
// The package guarantees that each release wakes one registered client at most, and that its keys last a minute
// at most if they are not used.
//
// Before 2.2 a command that pushes to a list with a TTL, or moves from it, deletes the list: no client listens
// there.
package signal

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
)

const (
	keep  = int64(60)        // TTL of the lists in seconds
	most  = 1024             // the largest number of registered clients
	again = 20 * time.Second // the interval in which a waiter renews its registration
)

// Lists names the two lists of one key.
type Lists struct{ Waiters, Wake string }

// waking returns the commands of a wake-up.
func (l Lists) waking() [2][]any {
	return [2][]any{{"RPOPLPUSH", l.Waiters, l.Wake}, {"EXPIRE", l.Wake, keep}}
}

// A Waiter listens for wake-ups under the name ID. With First it registers as the next to be woken.
type Waiter struct {
	ID     string
	First  bool
	looked time.Time
}

// Listen listens for so many seconds, and reports whether a wake-up came. If the waiters' list is new or gone,
// Listen first registers the waiter, and passes the length of the list to registered.
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
	replies, err := transact(c, []any{push, l.Waiters, w.ID}, []any{"EXPIRE", l.Waiters, keep}) // no list without a TTL
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

// Next returns the ID of the next client to be woken, or "" if the list is empty.
func Next(c redis.Conn, l Lists) (id string, err error) {
	id, err = redis.String(c.Do("LINDEX", l.Waiters, -1))
	if err == redis.ErrNil {
		err = nil
	}
	return id, err
}

// Wake wakes a client, if a client waits.
func Wake(c redis.Conn, l Lists) (woken bool, err error) {
	cmds := l.waking()
	replies, err := transact(c, cmds[:]...)
	return err == nil && replies[0] != nil, err
}

// Leave takes the waiter off the list. A waiter missing from the list has been sent a wake-up: with pass, Leave
// wakes another client instead.
func (w *Waiter) Leave(c redis.Conn, l Lists, pass bool) error {
	there, err := redis.Int(c.Do("LREM", l.Waiters, 1, w.ID))
	if err == nil && there == 0 && pass {
		cmds := l.waking()
		_, err = transact(c, cmds[:]...)
	}
	return err
}

// Volatile finds out, on a scratch key, whether a list with a TTL survives a push on this server. The error may
// be the server's refusal.
func Volatile(c redis.Conn, scratch string) (bool, error) {
	replies, err := transact(c, []any{"LPUSH", scratch, "x"}, []any{"EXPIRE", scratch, 10}, []any{"LPUSH", scratch, "x"}, []any{"DEL", scratch})
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

// transact runs cmds in one transaction: all or none of them.
func transact(c redis.Conn, cmds ...[]any) ([]any, error) {
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
