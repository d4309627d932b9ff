package txlock

import (
	"regexp"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
)

// Classic is the lock as the books have it: SETNX, then EXPIRE. Two round
// trips, Redis 2.2 and later.
//
//	SETNX key token           1: ours; 0: held
//	EXPIRE key ttl; GET key   not ours any more: it was repaired, and ran out, in between
//	                          (if the connection is kept: EXPIRE; WATCH; GET)
//
// A client that dies between the two leaves a key that nothing ends
// (tx/crash-before-expire). What is done about that is Repair.
type Classic struct {
	Options
	TTLRepair
}

// TTLRepair says what a waiter does about a key without a TTL.
type TTLRepair string

const (
	// RepairSeen gives it a TTL after it was seen unchanged for a whole ttl of
	// the waiter's, under WATCH, and never if its value is a timestamp: such a
	// key belongs to getsetlock, whose keys have no TTL. The Locker does it
	// while it waits. It is the default.
	RepairSeen TTLRepair = ""

	// RepairPublished gives it a TTL at once, as Redis in Action has it:
	// after a refused SETNX, TTL key answers -1, EXPIRE key ttl. On 2.2–2.6 it
	// revives a lock that has just expired (tx/ttl-repair-revives), and it may
	// shorten the lease of a holder that was about to set its own
	// (tx/ttl-repair). For comparison, and to teach.
	RepairPublished TTLRepair = "published"

	// RepairNever leaves it alone.
	RepairNever TTLRepair = "never"
)

// Acquire makes one attempt to hold key until now+ttl.
func (k Classic) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l, _, err := k.acquire(c, now, key, ttl, compat.Cmd{"GET", key})
	return l, err
}

// AcquireKept is Acquire, and goes on watching the key.
func (k Classic) AcquireKept(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, bool, error) {
	l, s, err := k.acquire(c, now, key, ttl, compat.Cmd{"WATCH", key}, compat.Cmd{"GET", key})
	return l, s.Keeps(l), err
}

func (k Classic) acquire(c redis.Conn, now time.Time, key string, ttl time.Duration, last ...compat.Cmd) (l compat.Lease, s compat.Sight, err error) {
	l = compat.Lease{Key: key, Value: k.value(key, now), Until: compat.Until(now, ttl), How: compat.Free}
	expire, err := compat.Expire(k.Millis, key, ttl)
	if err != nil {
		return l, s, err
	}
	won, err := k.setnx(c, &l)
	if err != nil {
		return l, s, err
	}
	if !won {
		return l, s, k.refused(c, key, expire)
	}

	replies, err := compat.Pipe(c, append([]compat.Cmd{expire}, last...)...)
	if err != nil {
		return l, s, err
	}
	set, err := redis.Bool(replies[0], nil)
	if err != nil {
		return l, s, err // ours, without a TTL: the Locker extends it or gives it back
	}
	s = compat.Seen(replies)
	if !set || s.Denies(l.Value) {
		return l, s, compat.ErrLost
	}
	_, _, err = s.Value(key)
	return l, s, err // not ErrLost, but ours for all we know: a cluster can refuse the GET alone
}

// ExtendAll extends many leases in two round trips.
func (k Classic) ExtendAll(c redis.Conn, now time.Time, leases []compat.Lease, ttls []time.Duration) ([]compat.Lease, []error) {
	return k.extendAll(c, now, leases, ttls)
}

// setnx tries to make the key. The EXPIRE must not stand in the same MULTI: it
// would run for a refused attempt too and move the holder's end.
func (k Classic) setnx(c redis.Conn, l *compat.Lease) (bool, error) {
	if !k.Fence {
		return redis.Bool(c.Do("SETNX", l.Key, l.Value))
	}
	replies, err := compat.Exec(c, compat.Cmd{"SETNX", l.Key, l.Value}, compat.Cmd{"INCR", compat.FenceKey(l.Key)})
	if err != nil {
		return false, err
	}
	l.Fence = replies[1].(int64)
	return replies[0] == int64(1), nil
}

func (k Classic) refused(c redis.Conn, key string, expire compat.Cmd) error {
	if k.TTLRepair != RepairPublished {
		return &compat.HeldError{Key: key}
	}
	ttl, err := redis.Int64(c.Do("TTL", key))
	if err != nil {
		return err
	}
	if ttl == -1 {
		// -1 before 2.8 is "no such key" as well: the key that is now given a
		// TTL may have expired since the SETNX, or be a new holder's.
		if _, err := c.Do(expire[0].(string), expire[1:]...); err != nil {
			return err
		}
	}
	return &compat.HeldError{Key: key}
}

// Repair gives the key an end if it still holds s.Value and has no TTL.
func (k Classic) Repair(c redis.Conn, now time.Time, s compat.State, ttl time.Duration) error {
	return k.TTLRepair.repair(c, k.Options, s, ttl)
}

func (r TTLRepair) repair(c redis.Conn, o Options, s compat.State, ttl time.Duration) error {
	if r != RepairSeen || isTime(s.Value) {
		return compat.ErrHeld
	}
	expire, err := compat.Expire(o.Millis, s.Key, ttl)
	if err != nil {
		return err
	}
	held, exists, err := compat.Watch(c, s.Key)
	if err != nil {
		return err
	}
	left, err := redis.Int64(c.Do("TTL", s.Key))
	if err != nil || !exists || held != s.Value || left != -1 {
		compat.Unwatch(c)
		if err == nil {
			err = compat.ErrHeld
		}
		return err
	}
	replies, err := compat.Exec(c, expire)
	if err == nil && (replies == nil || replies[0] != int64(1)) {
		return compat.ErrHeld
	}
	return err
}

// isTime reports whether a timestamp lock wrote value. A TTL on it would end a
// lock that is held.
func isTime(value string) bool {
	_, _, binary := dialect.Stamp{Unit: time.Second, Binary: true}.Parse(value)
	return binary || timestamp.MatchString(value)
}

// timestamp matches seconds, milliseconds or nanoseconds, alone or with an owner
// before or behind, in more forms than are known to be written.
var timestamp = regexp.MustCompile(`^(?:[0-9a-fA-F-]{32,36}:)?(?:[0-9]{10}(?:\.[0-9]+)?|[0-9]{13}|[0-9]{19})(?:[-:][0-9]+){0,2}$`)
