package rwlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/rwlock"
)

// at is a connection on which others act just before its next command of that name.
type at struct {
	redis.Conn
	name string
	act  func()
}

func (c *at) Do(name string, args ...any) (any, error) {
	if act := c.act; name == c.name && act != nil {
		c.act = nil
		act()
	}
	return c.Conn.Do(name, args...)
}

var (
	publishedRead  = rwlock.PublishedRead{}
	publishedWrite = rwlock.PublishedWrite{}
)

// Undisturbed, the published lock does what it says, on every version.
func TestPublished(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		a, b := acquire(t, s, publishedRead, ttl), acquire(t, s, publishedRead, ttl)
		refused(t, s, publishedWrite, compat.ErrHeld)
		b, err := extendAt(s.Dial(), publishedRead, s.Now(), b, 2*ttl)
		if err != nil {
			t.Fatal(err)
		}
		release(t, s, publishedRead, a, nil)
		s.Advance(ttl)
		refused(t, s, publishedWrite, compat.ErrHeld)
		release(t, s, publishedRead, b, nil)
		w := acquire(t, s, publishedWrite, ttl)
		refused(t, s, publishedRead, compat.ErrHeld)
		refused(t, s, publishedWrite, compat.ErrHeld)
		if w, err = extendAt(s.Dial(), publishedWrite, s.Now(), w, 2*ttl); err != nil {
			t.Fatal(err)
		}
		st, err := publishedRead.Inspect(compat.NewConn(s.Dial()), s.Now(), "k")
		if err != nil || st.Value != w.Value || st.Status != compat.StatusHeld {
			t.Errorf("%+v, %v; want held by %q", st, err, w.Value)
		}
		release(t, s, publishedWrite, w, nil)
		release(t, s, publishedWrite, w, compat.ErrLost)
	})
}

// rw/mutex-outrun: a reader that is held up inside for longer than the mutex lasts adds itself
// beside a writer.
func TestPublishedMutexOutrun(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		c := &at{s.Dial(), "ZADD", func() {
			s.Advance(7 * time.Second)
			acquire(t, s, publishedWrite, ttl)
		}}
		if _, err := publishedRead.Acquire(compat.NewConn(c), s.Now(), "k", 2*ttl); err != nil {
			t.Errorf("the published reader noticed: %v", err)
		}
	})
}

// rw/bare-mutex: a client that was held up inside then deletes the mutex of the next.
func TestPublishedBareMutex(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		c := &at{s.Dial(), "DEL", func() {
			s.Advance(7 * time.Second)
			do(t, s, "SETNX", "k:mutex:{k}", "of the next")
		}}
		if _, err := publishedRead.Acquire(compat.NewConn(c), s.Now(), "k", ttl); err != nil {
			t.Fatal(err)
		}
		if n := do(t, s, "EXISTS", "k:mutex:{k}"); n != int64(0) {
			t.Error("the mutex of the next is still there")
		}
	})
}

// rw/expired-reader: a reader whose lease is over is told that it released what a writer had
// taken long before.
func TestPublishedExpiredReader(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		l := acquire(t, s, publishedRead, ttl)
		s.Advance(ttl)
		acquire(t, s, publishedWrite, ttl)
		release(t, s, publishedRead, l, nil)
	})
}

// rw/extend-resurrects: and if it extends instead, it is back beside the writer.
func TestPublishedExtendResurrects(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		l := acquire(t, s, publishedRead, ttl)
		s.Advance(ttl)
		acquire(t, s, publishedWrite, ttl)
		l.Until = s.Now().Add(time.Minute) // by a clock that has stopped
		if _, err := extendAt(s.Dial(), publishedRead, s.Now(), l, ttl); err != nil {
			t.Errorf("the published extension noticed: %v", err)
		}
		if _, err := redis.Int64(s.Dial().Do("ZSCORE", "k:readers:{k}", l.Value)); err != nil {
			t.Errorf("the reader is not back: %v", err)
		}
	})
}

// set/compare-then-del: a writer that is held up between its look and its DEL deletes the next
// writer's key, and a third gets in.
func TestPublishedCompareThenDel(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		l := acquire(t, s, publishedWrite, ttl)
		c := &at{s.Dial(), "DEL", func() {
			s.Advance(ttl + time.Second)
			acquire(t, s, publishedWrite, ttl)
		}}
		if err := releaseAt(c, publishedWrite, s.Now(), l); err != nil {
			t.Errorf("the published release noticed: %v", err)
		}
		acquire(t, s, publishedWrite, ttl)
	})
}

// tx/crash-before-expire: a client that dies between SETNX and EXPIRE leaves a mutex that nothing
// ends.
func TestPublishedCrashBeforeExpire(t *testing.T) {
	everywhere(t, func(t *testing.T, s *oldredis.Server) {
		s.SetFault(func(_, _ int, cmd []string) oldredis.Fault {
			if cmd[0] == "EXPIRE" {
				return oldredis.LoseRequest
			}
			return oldredis.None
		})
		if _, err := publishedRead.Acquire(compat.NewConn(s.Dial()), s.Now(), "k", ttl); err == nil || errors.Is(err, compat.ErrHeld) {
			t.Fatalf("Acquire over a connection that broke: %v", err)
		}
		s.SetFault(nil)
		s.Advance(48 * time.Hour)
		refused(t, s, publishedRead, compat.ErrHeld)
	})
}
