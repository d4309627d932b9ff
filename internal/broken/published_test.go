package broken_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/broken"
)

const ttl = 10 * time.Second

// since has the first version of Redis for each of the published locks.
var since = map[string]string{"set:published": "2.6.12", "set:redis-py": "2.6.12",
	"tx:classic/published": "2.2", "rw:read/published": "2.2", "rw:write/published": "2.2",
	"semaphore/book": "2.2", "semaphore/fair": "2.2", "semaphore/lists": "2.2"}

// Without a fault, each published lock works on every version that its check accepts. The catalogue's
// scenarios show how each breaks; docs/algorithms.md lists its commands.
func TestPublished(t *testing.T) {
	for _, l := range broken.Published() {
		for _, v := range oldredis.Versions() {
			for _, fence := range []bool{false, true} {
				s := oldredis.Run(t, v)
				a := l.New(protocol.NewToken, fence)
				err := a.Traits().Check(protocol.NewConn(s.Dial()), "k")
				switch old := ability.Older(v, since[l.Name]); {
				case old && !errors.Is(err, protocol.ErrUnsafeServer):
					t.Errorf("%s on %s: its check: %v", l.Name, v, err)
				case !old && err != nil:
					t.Errorf("%s on %s: its check: %v", l.Name, v, err)
				case !old:
					if err := lives(s, l, a, fence); err != nil {
						t.Errorf("%s on %s, fence %v: %v", l.Name, v, fence, err)
					}
				}
			}
		}
	}
}

// lives acquires a lock, lets others fail to acquire it, extends and releases it, and returns the first
// failure.
func lives(s *oldredis.Server, lock broken.Lock, a protocol.Algorithm, fence bool) error {
	c := protocol.NewConn(s.Dial())
	l, err := a.Acquire(c, s.Now(), "k", ttl)
	if err != nil {
		return err
	}
	fence = fence && !strings.HasPrefix(lock.Name, "rw:") && lock.Most == 0
	if (l.Fence > 0) != fence || lock.Shared != a.Traits().Shared {
		return errors.New("it is not what it says")
	}
	var beside []protocol.Lease
	for n := 1; n < lock.Most; n++ { // up to the limit
		s.Advance(time.Millisecond) // in semaphore/book, clients of the same moment rank by their tokens
		l, err := a.Acquire(c, s.Now(), "k", ttl)
		if err != nil {
			return err
		}
		beside = append(beside, l)
	}
	for _, other := range broken.Published() {
		if other.Name != strings.Replace(lock.Name, "rw:read", "rw:write", 1) {
			continue
		}
		s.Advance(time.Millisecond)
		if _, err := other.New(protocol.NewToken, false).Acquire(c, s.Now(), "k", ttl); !errors.Is(err, protocol.ErrHeld) {
			return errors.Join(errors.New("it does not exclude "+other.Name), err)
		}
	}
	for _, l := range beside {
		if _, err := c.Run(a.Release(l)); err != nil {
			return err
		}
	}
	l.Fence = 0 // as after a lost reply
	next, ch, err := a.Extend(s.Now(), l, 2*ttl, true)
	if errors.Is(err, errors.ErrUnsupported) {
		next, ch, err = l, protocol.Change{Custom: func(*protocol.Conn) ([]any, error) { return []any{int64(1)}, nil }}, nil
	}
	if err != nil || (next.Value != l.Value) != a.Traits().Rotates || ch.TakeFence != fence {
		return errors.Join(errors.New("an extension is of another token, or without a fence"), err)
	}
	replies, err := c.Run(ch)
	if err != nil {
		return err
	}
	if n, err := redis.Int64(replies[len(replies)-1], nil); fence && (n <= 0 || err != nil) {
		return errors.Join(errors.New("an extension draws no fence"), err)
	}
	s.Advance(ttl + time.Second)
	if st, err := a.Inspect(c, s.Now(), "k"); err != nil || st.Status != protocol.StatusHeld {
		return errors.Join(errors.New("it did not last"), err)
	}
	if _, err := c.Run(a.Release(next)); err != nil {
		return err
	}
	if st, err := a.Inspect(c, s.Now(), "k"); err != nil || st.Status != protocol.StatusFree {
		return errors.Join(errors.New("it was not released"), err)
	}
	if _, err := c.Run(a.Release(next)); !errors.Is(err, protocol.ErrLost) && !lock.Shared { // rw/expired-reader
		return errors.Join(errors.New("a second release is no loss"), err)
	}
	return nil
}
