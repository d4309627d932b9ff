package bridge

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// TwoNames is the bridge between two fleets that use different keys for the same lock: because the
// new fleet adds a prefix, or uses one key instead of two. It holds both keys, each in its fleet's
// format, and takes and releases both in one EXEC. At no moment is only one held: a crash leaves
// both, and each fleet ends its dead lock as always. Two clients can't wait for each other. Two
// round trips for each step. Redis 2.2 and later.
//
//	acquire   WATCH old new; GET old; GET new     one is held: UNWATCH, held
//	          MULTI; SETEX old …; SETEX new …; EXEC
//	extend    WATCH old new; GET old; GET new     both ours? else release the one that is
//	          MULTI; EXPIRE old …; EXPIRE new …; EXEC
//	release   WATCH old new; GET old; GET new     both ours? else release the one that is
//	          MULTI; DEL old; DEL new; EXEC          and wake who waits for a message (Format.Signal)
//
// Times are written as [OneKey] writes them, with a TTL; the two keys of mlanett's redis-lock are
// set together and have none.
//
// The lock's key is the name that both fleets' programs use; each fleet's key comes from its
// Format's KeyName, which you may change to what the fleet really uses. A lease's Value is both
// keys' values. On a cluster both keys must be in one slot.
type TwoNames struct {
	Old, New dialect.Format

	// Millis counts TTLs in milliseconds (Redis 2.6 and later).
	Millis bool

	// Fence draws a fence by INCR in the transaction that takes the keys, from the counter of the
	// new key.
	Fence bool

	// Token returns 32 hexadecimal digits, or any text if both formats accept that, unique to the
	// acquisition. nil: [protocol.NewToken].
	Token func() string
}

// Acquire makes one attempt to hold both names until now+ttl.
func (b TwoNames) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	both, err := b.halvesFor(key, ttl)
	if err != nil {
		return protocol.Lease{Key: key}, err
	}
	l := protocol.Lease{Key: key, Until: protocol.Until(now, ttl), How: protocol.Free}
	token := b.token()
	var values [2]string
	var cmds []protocol.Cmd
	for i, h := range both {
		values[i] = h.value(key, now, ttl, token)
		cmds = append(cmds, h.write(now, ttl, values[i]))
	}
	l.Value, l.Ambiguous = join(values), !both[0].own() && !both[1].own()
	replies, err := compareAndSet(c, key, both, func(found [2][]any) ([]protocol.Cmd, error) {
		l.How = protocol.Free
		for i, h := range both {
			if free, dead := h.judge(found[i], now); dead {
				l.How = protocol.TakenOver
			} else if !free {
				return nil, &protocol.HeldError{Key: h.keys[0], Value: text(found[i][0]), Until: h.until(found[i])}
			}
		}
		return b.drawn(both, l, cmds), nil
	})
	if err == protocol.ErrAborted {
		return l, &protocol.HeldError{Key: key}
	}
	if err == nil && b.Fence {
		l.Fence, err = c.Fence(both[1].keys[0], replies[len(replies)-1])
	}
	return l, err
}

func (b TwoNames) token() string {
	if b.Token != nil {
		return b.Token()
	}
	return protocol.NewToken()
}

// drawn adds to cmds the drawing of a fence, if l lacks one.
func (b TwoNames) drawn(both [2]half, l protocol.Lease, cmds []protocol.Cmd) []protocol.Cmd {
	if b.Fence && l.Fence == 0 {
		return append(cmds, protocol.Cmd{"INCR", protocol.Aux(both[1].keys[0], "fence")})
	}
	return cmds
}

// Extend moves the end of our lease to now+ttl, if both halves are still ours.
func (b TwoNames) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	both, err := b.halvesFor(l.Key, ttl)
	if err != nil {
		return l, protocol.Change{}, err
	}
	values, _ := split(l.Value)
	next := l
	next.Until = protocol.Until(now, ttl)
	var cmds []protocol.Cmd
	for i, h := range both {
		var cmd protocol.Cmd
		values[i], cmd = h.extend(now, ttl, values[i])
		cmds = append(cmds, cmd)
	}
	next.Value = join(values)
	// Final: it writes to what an earlier one watches.
	return next, protocol.Change{Key: l.Key, Value: l.Value, TakeFence: b.Fence && l.Fence == 0, Final: true, Custom: func(c *protocol.Conn) ([]any, error) {
		replies, err := b.ifOurs(c, both, l, !rotate, b.drawn(both, l, cmds)...)
		if err == nil && slices.Contains(replies, any(int64(0))) { // expired inside the transaction: before 6.0.9 WATCH does not notice
			c.Run(b.Release(next)) //nolint:errcheck // what is left of it ends by itself
			return nil, protocol.ErrLost
		}
		return replies, err
	}}, nil
}

// Release releases both names. It may come late: it compares.
func (b TwoNames) Release(l protocol.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) {
		both, err := b.halves(l.Key)
		if err != nil {
			return nil, err
		}
		first, second := both[0].frees(), both[1].frees()
		replies, err := b.ifOurs(c, both, l, true, slices.Concat(first, second)...)
		if err == nil && (replies[0] != int64(len(both[0].keys)) || replies[len(first)] != int64(len(both[1].keys))) {
			return nil, protocol.ErrLost // one had expired
		}
		return replies, err
	}}
}

// ifOurs runs cmds in one EXEC if both names hold l's values then. If only one does, the lease is lost, and with rest
// ifOurs releases that one: nobody would renew it. It must not after an extension of unknown outcome, which changed the
// time under one name and left the token under the other.
func (b TwoNames) ifOurs(c *protocol.Conn, both [2]half, l protocol.Lease, rest bool, cmds ...protocol.Cmd) ([]any, error) {
	values, ok := split(l.Value)
	if !ok {
		return nil, protocol.ErrLost
	}
	var lost error
	replies, err := compareAndSet(c, l.Key, both, func(found [2][]any) ([]protocol.Cmd, error) {
		lost = nil
		left := cmds // of the names that are ours
		for i, of := range found {
			switch held := text(of[0]); {
			case of[0] != nil && held == values[i]:
			case lost != nil, !rest:
				return nil, &protocol.LostError{Key: l.Key, Value: held, Gone: of[0] == nil}
			default:
				lost = &protocol.LostError{Key: l.Key, Value: held, Gone: of[0] == nil}
				left = both[1-i].frees()
			}
		}
		return left, nil
	})
	if err == nil {
		err = lost
	}
	return replies, err
}

// Inspect reads both keys: one round trip. The State is that of the key that keeps others out
// longer. Holders has both, if both exist.
func (b TwoNames) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL}
	both, err := b.halves(key)
	if err != nil {
		return s, err
	}
	var cmds []protocol.Cmd
	for _, h := range both {
		cmds = append(append(cmds, h.gets()...), protocol.Cmd{h.ttlCommand(), h.keys[0]})
	}
	replies, err := c.Pipe(cmds...)
	if err != nil {
		return s, err
	}
	var values [2]string
	var ends []time.Time
	for i, h := range both {
		n := len(h.keys)
		found, ttl := replies[:n], replies[n]
		replies = replies[n+1:]
		if e := answer.First(found); e != nil {
			return s, protocol.Foreign(key, e)
		}
		one, err := h.state(c, found, ttl, now)
		if err != nil {
			return s, err
		}
		if one.Status != protocol.StatusFree {
			values[i], ends = one.Value, append(ends, one.Until)
		}
		if rank[one.Status] > rank[s.Status] || rank[one.Status] == rank[s.Status] && one.Until.After(s.Until) {
			s = one
		}
	}
	if len(ends) == 2 {
		pair := protocol.Holder{Value: join(values), Until: earlier(ends[0], ends[1])}
		s.Holders = []protocol.Holder{pair}
		if s.Status != protocol.StatusPersistent { // Repair needs the value of that very name
			s.Value = pair.Value
		}
	}
	s.Key, s.Ambiguous = key, !both[0].own() && !both[1].own()
	return s, nil
}

// A persistent half comes first, so that a waiter sees it and repairs it.
var rank = map[protocol.Status]int{
	protocol.StatusFree: 0, protocol.StatusDead: 1, protocol.StatusHeld: 2, protocol.StatusForeign: 3, protocol.StatusPersistent: 4,
}

func earlier(a, b time.Time) time.Time {
	if b.IsZero() || !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}

// Traits make the Locker check the server, and repair a token without a TTL.
func (b TwoNames) Traits() protocol.Traits {
	return protocol.Traits{Check: b.check, Repair: b.repair}
}

// repair gives an end to a token without a TTL, under either name.
func (b TwoNames) repair(now time.Time, s protocol.State, ttl time.Duration) (protocol.Change, error) {
	both, err := b.halves(s.Key)
	if err != nil {
		return protocol.Change{}, err
	}
	var changes []protocol.Change
	err = protocol.ErrHeld // there is nothing to repair
	for _, h := range both {
		if h.ends() {
			continue
		}
		one := s
		one.Key = h.keys[0]
		var ch protocol.Change
		if ch, err = repair(h.millis)(now, one, ttl); err != nil {
			return ch, err
		}
		changes = append(changes, ch)
	}
	return protocol.Change{Key: s.Key, Value: s.Value, Custom: func(c *protocol.Conn) (replies []any, err error) {
		for _, ch := range changes {
			if replies, err = c.Run(ch); !errors.Is(err, protocol.ErrLost) {
				break
			}
		}
		return replies, err
	}}, err
}

// check returns ErrUnsafeServer if there is no WATCH, or if a key with a TTL does not stand up to SETNX; ErrDrain if
// one of the fleets takes a held key.
func (b TwoNames) check(c *protocol.Conn, key string) error {
	for _, f := range []dialect.Format{b.Old, b.New} {
		if err := drain(f); err != nil {
			return err
		}
	}
	return check(c, key, b.Millis)
}

// halves returns the two names of key.
func (b TwoNames) halves(key string) (both [2]half, err error) {
	for i, f := range []dialect.Format{b.Old, b.New} {
		if both[i], err = newHalf(f, key, b.Millis); err != nil {
			return both, err
		}
	}
	if slices.Contains(both[0].keys, both[1].keys[0]) {
		return both, fmt.Errorf("%w: both fleets call it %q: that is one name, and OneKey's", protocol.ErrInvalid, both[1].keys[0])
	}
	return both, nil
}

// halvesFor returns the two names of key for a lease of ttl.
func (b TwoNames) halvesFor(key string, ttl time.Duration) ([2]half, error) {
	if ttl < time.Second {
		return [2]half{}, fmt.Errorf("%w: a ttl of %v is shorter than the second that this lock counts in", protocol.ErrInvalid, ttl)
	}
	return b.halves(key)
}

// compareAndSet runs the connection's CompareAndSet for all keys of both names.
func compareAndSet(c *protocol.Conn, key string, both [2]half, decide func(found [2][]any) ([]protocol.Cmd, error)) ([]any, error) {
	return c.CompareAndSet(slices.Concat(both[0].keys, both[1].keys), nil, func(replies []any) ([]protocol.Cmd, error) {
		if e := answer.First(replies); e != nil {
			return nil, protocol.Foreign(key, e)
		}
		n := len(both[0].keys)
		return decide([2][]any{replies[:n], replies[n:]})
	})
}

// join makes one value of both: the length of the first stands before it.
func join(values [2]string) string {
	return strconv.Itoa(len(values[0])) + ":" + values[0] + values[1]
}

// split takes it apart again.
func split(value string) (values [2]string, ok bool) {
	length, rest, _ := strings.Cut(value, ":")
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > len(rest) {
		return values, false
	}
	return [2]string{rest[:n], rest[n:]}, true
}

func text(reply any) string {
	s, _ := redis.String(reply, nil)
	return s
}
