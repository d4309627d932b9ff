package sentinel

import (
	"errors"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Replicated is an Algorithm whose lease counts only when it is on the replicas too. After each
// acquisition and extension it sends
//
//	WAIT replicas timeout      how many replicas have what this connection wrote
//
// If fewer replicas than Replicas have it, the outcome is unknown: the Locker asks once more and
// then releases the lock. It needs Redis 3.0. A lock survives the promotion of any replica that has
// it. Sentinel looks at replica-priority before it looks which replica has the most data, so all
// should have it. A replica forgets what it has only in memory when it restarts.
//
// The fence's counter is replicated with the lock: a new master that has the lock gives its fence to nobody else.
type Replicated struct {
	protocol.Algorithm

	// Replicas is how many replicas must have the lease. Default: 1. Set it to the number of all
	// replicas: otherwise one without the lease may be promoted.
	Replicas int

	// Timeout is how long the server waits for them. Default: 100 ms. Whole
	// milliseconds, rounded up.
	Timeout time.Duration
}

var errNotReplicated = errors.New("setnxlock: too few replicas have it")

// Acquire runs the Algorithm's, and waits for the replicas. A Timeout that WAIT can't express is [protocol.ErrInvalid]:
// rounded down to 0, WAIT would wait for ever.
func (r Replicated) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	ms, err := r.millis()
	if err != nil {
		return protocol.Lease{Key: key}, err
	}
	l, err := r.Algorithm.Acquire(c, now, key, ttl)
	if err == nil {
		err = r.wait(c, ms)
	}
	return l, err
}

// Extend returns the Algorithm's change, with WAIT behind it on the same connection.
func (r Replicated) Extend(now time.Time, l protocol.Lease, ttl time.Duration, rotate bool) (protocol.Lease, protocol.Change, error) {
	ms, err := r.millis()
	if err != nil {
		return l, protocol.Change{}, err
	}
	next, ch, err := r.Algorithm.Extend(now, l, ttl, rotate)
	after := ch.After
	ch.After = func(c *protocol.Conn) error {
		if after != nil {
			if err := after(c); err != nil {
				return err
			}
		}
		return r.wait(c, ms)
	}
	return next, ch, err
}

// Traits returns the Algorithm's; the check asks for WAIT first.
func (r Replicated) Traits() protocol.Traits {
	t := r.Algorithm.Traits()
	check := t.Check
	t.Check = func(c *protocol.Conn, key string) error {
		if _, err := c.Do("WAIT", 0, 1); err != nil {
			return c.Lacks(err, "it has no WAIT (it came with 3.0), so nothing tells what the replicas have", "the algorithm without sentinel.Replicated")
		}
		if check == nil {
			return nil
		}
		return check(c, key)
	}
	return t
}

func (r Replicated) millis() (int64, error) {
	if r.Timeout == 0 {
		return 100, nil
	}
	return protocol.Whole(r.Timeout, time.Millisecond)
}

func (r Replicated) wait(c *protocol.Conn, ms int64) error {
	want := max(r.Replicas, 1)
	have, err := redis.Int(c.Do("WAIT", want, ms))
	if err == nil && have < want {
		err = fmt.Errorf("%w: %d of %d, after %d ms", errNotReplicated, have, want, ms)
	}
	return err
}
