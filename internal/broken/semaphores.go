package broken

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
)

// two is the size of each of these semaphores.
const two = 2

// A semaphore has the methods that bookSemaphore, fairSemaphore and listSemaphore share.
type semaphore struct{ token func() string }

// Traits has the check of the readers' lock.
func (semaphore) Traits() protocol.Traits {
	return protocol.Traits{Shared: true, Check: rwlock.Read{}.Traits().Check}
}

// lease returns the lease of an acquisition.
func (s semaphore) lease(now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	_, err := protocol.Whole(ttl, time.Millisecond)
	return protocol.Lease{Key: key, Value: s.token(), Until: protocol.Until(now, ttl), How: protocol.Free}, err
}

// Extend fails: neither the first semaphore of Redis in Action nor redis-semaphore can extend a lease.
func (semaphore) Extend(_ time.Time, l protocol.Lease, _ time.Duration, _ bool) (protocol.Lease, protocol.Change, error) {
	return l, protocol.Change{}, errors.ErrUnsupported
}

// bookSemaphore is acquire_semaphore of Redis in Action, 6.3.1: a sorted set of its holders, scored by their arrival.
//
//	MULTI; ZREMRANGEBYSCORE key -inf now-ttl; ZADD key now token; ZRANK key token; EXEC
//	                        less than N: ours
//	ZREM key token          a refusal; a release
//
// Both the sweep and the rank go by the clients' clocks. A client with a slow clock ranks before the holders, and
// comes in beside them (semaphore/slow-clock). A client with a fast clock sweeps the holders away while their leases
// last. Two clients that come at the same moment rank by their tokens. The times are in milliseconds here, and float
// seconds in the book.
type bookSemaphore struct{ semaphore }

func sweeps(key string, now time.Time, ttl time.Duration) protocol.Cmd {
	return protocol.Cmd{"ZREMRANGEBYSCORE", key, "-inf", now.Add(-ttl).UnixMilli()}
}

func (b bookSemaphore) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := b.lease(now, key, ttl)
	if err != nil {
		return l, err
	}
	replies, err := c.Exec(sweeps(key, now, ttl), protocol.Cmd{"ZADD", key, now.UnixMilli(), l.Value}, protocol.Cmd{"ZRANK", key, l.Value})
	if err != nil {
		return l, protocol.Foreign(key, err)
	}
	if rank, err := redis.Int(replies[2], nil); err != nil || rank < two {
		return l, err
	}
	if _, err := c.Do("ZREM", key, l.Value); err != nil {
		return l, err
	}
	return l, &protocol.HeldError{Key: key}
}

func (bookSemaphore) Release(l protocol.Lease) protocol.Change { return leaves(l, l.Key) }

// leaves removes a holder from sorted sets. The reply of the first set decides whether the lock was lost.
func leaves(l protocol.Lease, sets ...string) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) {
		var cmds []protocol.Cmd
		for _, set := range sets {
			cmds = append(cmds, protocol.Cmd{"ZREM", set, l.Value})
		}
		if len(cmds) == 1 {
			removed, err := c.Do("ZREM", cmds[0][1:]...)
			return []any{removed}, err
		}
		return c.Exec(cmds...)
	}}
}

func (bookSemaphore) Inspect(c *protocol.Conn, _ time.Time, key string) (protocol.State, error) {
	return members(c, key, key)
}

// members returns the state of a semaphore with its holders in a sorted set.
func members(c *protocol.Conn, key, set string) (protocol.State, error) {
	names, err := redis.Strings(c.Do("ZRANGE", set, 0, two-1))
	return holders(key, names, len(names) < two), protocol.Foreign(key, err)
}

// holders returns the state of a key with the given holders.
func holders(key string, names []string, open bool) protocol.State {
	s := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL}
	for _, name := range names {
		s.Status, s.Clock, s.Open, s.Value = protocol.StatusHeld, "clients", open, name
		s.Holders = append(s.Holders, protocol.Holder{Value: name})
	}
	return s
}

// fairSemaphore is acquire_fair_semaphore of Redis in Action, 6.3.2: it ranks by a counter. Clocks that differ by less
// than a lease do no harm.
//
//	MULTI; ZREMRANGEBYSCORE key -inf now-ttl; ZINTERSTORE owner 2 owner key WEIGHTS 1 0; INCR counter; EXEC
//	MULTI; ZADD key now token; ZADD owner count token; ZRANK owner token; EXEC      less than N: ours
//	MULTI; ZREM key token; ZREM owner token; EXEC                                   a refusal; a release
//	ZADD key now token      refreshes; 1: another client swept the token, and a release must follow
//
// A client that pauses between its number and its ZADD comes in beside N others, who came later and ranked first
// (semaphore/counter-outrun). Against that, the book holds a lock around an acquisition, in 6.3.4. A swept client that
// refreshes stands in the sets again. If it dies before its ZREM, its token stays there for a lease.
type fairSemaphore struct{ semaphore }

func ownersOf(key string) string  { return protocol.Aux(key, "owner") }
func counterOf(key string) string { return protocol.Aux(key, "counter") }

func (f fairSemaphore) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := f.lease(now, key, ttl)
	if err != nil {
		return l, err
	}
	owners := ownersOf(key)
	counted, err := c.Exec(sweeps(key, now, ttl), protocol.Cmd{"ZINTERSTORE", owners, 2, owners, key, "WEIGHTS", 1, 0}, protocol.Cmd{"INCR", counterOf(key)})
	if err != nil {
		return l, protocol.Foreign(key, err)
	}
	replies, err := c.Exec(protocol.Cmd{"ZADD", key, now.UnixMilli(), l.Value}, protocol.Cmd{"ZADD", owners, counted[2], l.Value}, protocol.Cmd{"ZRANK", owners, l.Value})
	if err != nil {
		return l, err
	}
	if rank, err := redis.Int(replies[2], nil); err != nil || rank < two {
		return l, err
	}
	if _, err := c.Run(f.Release(l)); err != nil {
		return l, err
	}
	return l, &protocol.HeldError{Key: key}
}

// Extend is refresh_fair_semaphore: a ZADD that adds the token shows that the token was swept.
func (f fairSemaphore) Extend(now time.Time, l protocol.Lease, ttl time.Duration, _ bool) (protocol.Lease, protocol.Change, error) {
	_, err := protocol.Whole(ttl, time.Millisecond)
	l.Until = protocol.Until(now, ttl)
	return l, By(l, func(c *protocol.Conn) error {
		added, err := redis.Bool(c.Do("ZADD", l.Key, now.UnixMilli(), l.Value))
		if err == nil && added {
			if _, err = c.Run(f.Release(l)); err == nil {
				err = protocol.ErrLost
			}
		}
		return err
	}), err
}

func (fairSemaphore) Release(l protocol.Lease) protocol.Change {
	return leaves(l, l.Key, ownersOf(l.Key))
}

func (fairSemaphore) Inspect(c *protocol.Conn, _ time.Time, key string) (protocol.State, error) {
	return members(c, key, ownersOf(key))
}

// listSemaphore is redis-semaphore 0.3.1 (Ruby) with its stale_client_timeout: a list of the free tokens, and a hash
// with the moment at which each other token was taken.
//
//	GETSET exists 1             nil: EXPIRE exists 10; MULTI; DEL grabbed; DEL available; RPUSH available 0; …; PERSIST exists; EXEC
//	HGETALL grabbed             for each stale token: MULTI; HDEL grabbed token; LPUSH available token; EXEC
//	LPOP available              nil: all are taken
//	HSET grabbed token now
//
//	release   MULTI; HDEL grabbed token; LPUSH available token; EXEC      even if another client has the token by now
//
// A client that dies between LPOP and HSET, or loses the reply to LPOP, loses a token for good (semaphore/lost-token).
// A client slower than stale_client_timeout returns its token a second time: the list has the token twice, and two
// clients take it (semaphore/doubled-token). A fast clock doubles a token at once. We left out the mutex around the
// search for stale tokens: no fault here needs two clients that search at once. In the hash, the client's name stands
// behind the time, where Ruby's to_f does not read it: the name tells the holder of the token.
type listSemaphore struct{ semaphore }

func existsOf(key string) string    { return protocol.Aux(key, "EXISTS") }
func availableOf(key string) string { return protocol.Aux(key, "AVAILABLE") }
func grabbedOf(key string) string   { return protocol.Aux(key, "GRABBED") }

func (s listSemaphore) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l, err := s.lease(now, key, ttl)
	if err != nil {
		return l, err
	}
	there, err := c.Do("GETSET", existsOf(key), 1)
	if err == nil && there == nil {
		err = fill(c, key)
	}
	if err == nil {
		err = reclaim(c, now, key, ttl)
	}
	if err != nil {
		return l, err
	}
	n, err := redis.String(c.Do("LPOP", availableOf(key)))
	if err == redis.ErrNil {
		return l, &protocol.HeldError{Key: key}
	}
	if err != nil {
		return l, err
	}
	l.Value = n + ":" + l.Value
	_, err = c.Do("HSET", grabbedOf(key), n, fmt.Sprintf("%d.%03d %s", now.Unix(), now.UnixMilli()%1000, l.Value))
	return l, err
}

// fill makes the list of free tokens.
func fill(c *protocol.Conn, key string) error {
	if _, err := c.Do("EXPIRE", existsOf(key), 10); err != nil {
		return err
	}
	cmds := []protocol.Cmd{{"DEL", grabbedOf(key)}, {"DEL", availableOf(key)}}
	for n := range two {
		cmds = append(cmds, protocol.Cmd{"RPUSH", availableOf(key), n})
	}
	_, err := c.Exec(append(cmds, protocol.Cmd{"PERSIST", existsOf(key)})...)
	return err
}

// reclaim returns the stale tokens to the list.
func reclaim(c *protocol.Conn, now time.Time, key string, ttl time.Duration) error {
	grabbed, err := redis.StringMap(c.Do("HGETALL", grabbedOf(key)))
	if err != nil {
		return err
	}
	for n := range two {
		since, _, _ := strings.Cut(grabbed[strconv.Itoa(n)], " ")
		if at, err := strconv.ParseFloat(since, 64); err == nil && time.UnixMilli(int64(at*1000)).Add(ttl).Before(now) {
			if err := giveBack(c, key, strconv.Itoa(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// giveBack returns a token to the list, even if another client has taken it by now.
func giveBack(c *protocol.Conn, key, n string) error {
	_, err := c.Exec(protocol.Cmd{"HDEL", grabbedOf(key), n}, protocol.Cmd{"LPUSH", availableOf(key), n})
	return err
}

func (listSemaphore) Release(l protocol.Lease) protocol.Change {
	n, _, got := strings.Cut(l.Value, ":")
	return By(l, func(c *protocol.Conn) error {
		if !got { // the acquisition took no token
			return protocol.ErrLost
		}
		return giveBack(c, l.Key, n)
	})
}

func (listSemaphore) Inspect(c *protocol.Conn, _ time.Time, key string) (protocol.State, error) {
	replies, err := c.Pipe(protocol.Cmd{"EXISTS", existsOf(key)}, protocol.Cmd{"LLEN", availableOf(key)}, protocol.Cmd{"HGETALL", grabbedOf(key)})
	if err != nil {
		return protocol.State{Key: key, TTL: protocol.NoTTL}, err
	}
	left, err := redis.Int(replies[1], nil)
	grabbed, _ := redis.StringMap(replies[2], nil)
	var names []string
	for n := range two {
		if _, value, ok := strings.Cut(grabbed[strconv.Itoa(n)], " "); ok {
			names = append(names, value)
		}
	}
	s := holders(key, names, left > 0)
	if replies[0] == int64(1) && left == 0 && len(names) == 0 {
		s.Status, s.Format = protocol.StatusHeld, "no token is left"
	}
	return s, err
}
