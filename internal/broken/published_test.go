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

// since is the first version on which each of the published locks works.
var since = map[string]string{"set:published": "2.6.12", "set:redis-py": "2.6.12",
	"tx:classic/published": "2.2", "rw:read/published": "2.2", "rw:write/published": "2.2",
	"semaphore/book": "2.2", "semaphore/fair": "2.2", "semaphore/lists": "2.2"}

// Undisturbed, each published lock does what it says, on every version that it does not refuse. The
// catalogue's scenarios show what each sends, and how it breaks.
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

// lives is the life of a lock: it is acquired, excludes others, is extended and released. The error
// is what of it did not happen.
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
	for n := 1; n < lock.Most; n++ { // as many as may hold it do
		s.Advance(time.Millisecond) // two who come at the same moment rank by their tokens in one of them
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
	l.Fence = 0 // as after a lost reply; and none can change its token but tx's
	next, ch, err := a.Extend(s.Now(), l, 2*ttl, true)
	if errors.Is(err, errors.ErrUnsupported) {
		next, ch, err = l, protocol.Change{By: func(*protocol.Conn) ([]any, error) { return []any{int64(1)}, nil }}, nil
	}
	if err != nil || (next.Value != l.Value) != a.Traits().Rotates || ch.Draw != fence {
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
