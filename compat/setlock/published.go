package setlock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Published is the lock of SET as it is copied from article to article by those
// who do without a script: the client compares, then deletes. It is NOT SAFE, and here to
// compare and to teach.
//
//	SET key token NX PX ttl     OK: ours; nil: held
//	GET key                     ours?
//	PEXPIRE key ttl             whosever it is by now
//	DEL key                     whosever it is by now
//
// Between the GET and the DEL the lease may end and another client take the
// key: that client's lock is deleted, and a third one gets in beside it
// (set/compare-then-del). An extension gives another's lock a new end in the
// same way. Where it works one of Lua and Watched does too.
type Published struct{ Options }

// Acquire makes one attempt to hold key until now+ttl. This part is safe.
func (k Published) Acquire(c redis.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	return k.set(c, now, key, ttl)
}

// Extend sets the end of what the key holds to now+ttl, if it was ours a moment ago.
func (k Published) Extend(c redis.Conn, now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, error) {
	ms, err := compat.WholeMillis(ttl)
	if err != nil {
		return l, err
	}
	if !now.Before(l.Until) {
		return l, compat.ErrLost
	}
	if err := wasOurs(c, l); err != nil {
		return l, err
	}
	set, err := redis.Bool(c.Do("PEXPIRE", l.Key, ms))
	if err == nil && !set {
		err = compat.ErrLost
	}
	if err == nil && k.draws(l) {
		l.Fence, err = redis.Int64(c.Do("INCR", compat.FenceKey(l.Key)))
	}
	if err != nil {
		return l, err
	}
	l.Until = compat.Until(now, ttl)
	return l, nil
}

// Release deletes what the key holds, if it was ours a moment ago.
func (k Published) Release(c redis.Conn, now time.Time, l compat.Lease) error {
	if err := wasOurs(c, l); err != nil {
		return err
	}
	deleted, err := redis.Bool(c.Do("DEL", l.Key))
	if err == nil && !deleted {
		return compat.ErrLost
	}
	return err
}

// wasOurs returns ErrLost if the key held another's value when it was read.
func wasOurs(c redis.Conn, l compat.Lease) error {
	held, err := redis.String(c.Do("GET", l.Key))
	if err == redis.ErrNil || err == nil && held != l.Value {
		return compat.ErrLost
	}
	return compat.Foreign(l.Key, err)
}

// Check returns ErrUnsafeServer if the server has no SET … NX PX. What is
// unsafe about Published itself no server can mend.
func (k Published) Check(c redis.Conn, key string) error {
	l, err := k.checkSet(c, key)
	if err == nil {
		drop(c, l)
	}
	return err
}
