package semaphore

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// looks is how often one attempt looks anew: the limit was changed, or went, while it was under way.
const looks = 4

// errAgain says that a look is worth repeating.
var errAgain error = again{}

type again struct{}

func (again) Error() string { return protocol.ErrAborted.Error() + ": the limit changes all the time" }

func (again) Unwrap() error { return protocol.ErrAborted }

// Acquire makes one attempt to hold a slot of key until now+ttl.
func (k Lock) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Until: protocol.Until(now, ttl)}
	if err := k.valid(ttl); err != nil {
		return l, err
	}
	for range looks {
		free, err := k.look(c, now, key)
		if err == nil {
			l, err = k.takeOne(c, now, key, ttl, free)
		}
		if err != errAgain {
			return l, err
		}
	}
	return l, errAgain
}

// look returns the free slots, or the reason why none can be taken.
func (k Lock) look(c *protocol.Conn, now time.Time, key string) (free []int, err error) {
	replies, err := c.Pipe(protocol.Cmd{"GET", key}, protocol.Cmd{"GET", limitOf(key)}, reads(key, k.N))
	if err != nil {
		return nil, err
	}
	if held, err := redis.String(replies[0], nil); err == nil {
		return nil, &protocol.HeldError{Key: key, Value: held, Foreign: true}
	} else if err != redis.ErrNil {
		return nil, protocol.Foreign(key, err)
	}
	limit, err := readLimit(key, replies[1])
	if err != nil {
		return nil, err
	}
	if limit != 0 && limit != k.N {
		return nil, k.change(c, now, key, limit)
	}
	slots, err := values(replies[2], k.N)
	if err != nil {
		return nil, err
	}
	for i, held := range slots {
		if held == nil {
			free = append(free, i+1)
		}
	}
	if len(free) == 0 {
		return nil, k.refused(c, now, key)
	}
	return free, nil
}

// reads returns the command to read n slots.
func reads(key string, n int) protocol.Cmd {
	cmd := protocol.Cmd{"MGET"}
	for i := range n {
		cmd = append(cmd, slotOf(key, i+1))
	}
	return cmd
}

// values reads the reply to reads of n slots.
func values(reply any, n int) ([]any, error) {
	all, err := redis.Values(reply, nil)
	if err == nil && len(all) != n {
		err = fmt.Errorf("setnxlock: MGET of %d keys is answered with %d values", n, len(all))
	}
	return all, err
}

// readLimit reads the limit from a reply to GET; 0: there is none.
func readLimit(key string, reply any) (int, error) {
	text, err := redis.String(reply, nil)
	if err == redis.ErrNil {
		return 0, nil
	}
	if err != nil {
		return 0, protocol.Foreign(limitOf(key), err)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > Most || strconv.Itoa(n) != text {
		return 0, fmt.Errorf("%w: %q is no limit, at %q", protocol.ErrForeign, text, limitOf(key))
	}
	return n, nil
}

// refused returns the refusal by slots that are all held, until the first ends.
func (k Lock) refused(c *protocol.Conn, now time.Time, key string) error {
	held := &protocol.HeldError{Key: key}
	if s, err := k.Inspect(c, now, key); err == nil && !s.Open {
		held.Value, held.Until, held.Persistent = s.Value, s.Until, s.Status == protocol.StatusPersistent
	}
	return held
}

// change makes k.N the limit in place of old, if none of the old slots is held. Its error is errAgain if it did, or if somebody
// else did something that is worth another look.
func (k Lock) change(c *protocol.Conn, now time.Time, key string, old int) error {
	slots := reads(key, old)
	watched := []string{limitOf(key)}
	for _, name := range slots[1:] {
		watched = append(watched, name.(string))
	}
	read := []protocol.Cmd{{"GET", limitOf(key)}, slots}
	_, err := c.CompareAndSet(watched, read, func(replies []any) ([]protocol.Cmd, error) {
		limit, err := readLimit(key, replies[0])
		switch {
		case err != nil:
			return nil, err
		case limit != old:
			return nil, errAgain
		}
		held, err := values(replies[1], old)
		if err != nil {
			return nil, err
		}
		for _, slot := range held {
			if slot != nil {
				return nil, &LimitError{Held: &protocol.HeldError{Key: key}, Limit: old, Asked: k.N}
			}
		}
		cmd, err := protocol.SetEx(false, limitOf(key), k.N, limitTTL)
		return []protocol.Cmd{cmd}, err
	})
	refused := (*LimitError)(nil)
	switch {
	case err == nil:
		return errAgain
	case errors.As(err, &refused):
		if s, err := k.Inspect(c, now, key); err == nil {
			refused.Held.Value, refused.Held.Until = s.Value, s.Until
		}
	}
	return err
}

// takeOne tries the free slots, each once, from a random one on.
func (k Lock) takeOne(c *protocol.Conn, now time.Time, key string, ttl time.Duration, free []int) (protocol.Lease, error) {
	token, from := k.token(), k.first(len(free))
	for i := range free {
		l, err := k.take(c, now, key, ttl, free[(from+i)%len(free)], token)
		if protocol.OutcomeOf(err) != protocol.Refused || !taken(err) {
			return l, err
		}
		c.Unwatch() // else this slot's next change would abort the next slot's EXEC
	}
	return protocol.Lease{Key: key}, k.refused(c, now, key)
}

// taken reports whether a slot was refused because something is on it.
func taken(err error) bool {
	var other *LimitError
	return (errors.Is(err, protocol.ErrHeld) || errors.Is(err, protocol.ErrForeign)) && !errors.As(err, &other)
}

// take takes a slot as its lock does, and looks whether the limit was ours when it did. A lease of unknown outcome
// has no How: a client that finds its value must look at the limit, see Extend.
func (k Lock) take(c *protocol.Conn, now time.Time, key string, ttl time.Duration, n int, token string) (protocol.Lease, error) {
	slot := slotOf(key, n)
	beside := []protocol.Cmd{{"SETNX", limitOf(key), k.N}, keeps(key), {"GET", limitOf(key)}}
	if k.Fence {
		beside = append(beside, protocol.Cmd{"INCR", protocol.Aux(slot, "fence")})
	}
	lock := k.of(n, func() string { return token })
	with := c.With(beside...)
	l, err := lock.Acquire(with, now, slot, ttl)
	own := l
	l.Key, l.How = key, ""
	if err != nil {
		return l, err
	}
	replies := with.Alongside()
	if len(replies) != len(beside) {
		return l, fmt.Errorf("setnxlock: the lock of a slot, %T, takes it in no transaction of its own", lock)
	}
	limit, err := readLimit(key, replies[2])
	if err == nil && limit == k.N {
		if k.Fence {
			l.Fence, err = c.Fence(slot, replies[3])
		}
		l.How = own.How
		return l, err
	}
	c.Unwatch()
	if _, released := c.Run(lock.Release(own)); released != nil && !errors.Is(released, protocol.ErrLost) {
		return l, released
	}
	switch {
	case err != nil:
		return l, err
	case limit == 0: // 2.2.0 to 2.2.9 don't notice at a SETNX that a key has expired
		return l, errAgain
	}
	return l, &LimitError{Held: &protocol.HeldError{Key: key}, Limit: limit, Asked: k.N}
}
