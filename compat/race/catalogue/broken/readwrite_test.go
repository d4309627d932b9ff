package broken_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// mutexed runs f with the published reader and writer on each version since 2.2.
func mutexed(t *testing.T, f func(t *testing.T, s *oldredis.Server, r, w compat.Algorithm)) {
	r := published(t, "rw:read/published", compat.NewToken, false)
	w := published(t, "rw:write/published", compat.NewToken, false)
	since(t, "2.2", func(t *testing.T, s *oldredis.Server) { f(t, s, r, w) })
}

// Undisturbed, readers hold the lock together, and a writer holds it alone.
func TestMutexed(t *testing.T) {
	mutexed(t, func(t *testing.T, s *oldredis.Server, r, w compat.Algorithm) {
		if !r.Traits().Shared || w.Traits().Shared {
			t.Error("who shares it?")
		}
		a, b := acquire(t, s, r, ttl), acquire(t, s, r, ttl)
		refused(t, s, w)
		b, err := extend(s.Dial(), s, r, b, 2*ttl)
		if err == nil {
			err = release(s.Dial(), r, a)
		}
		s.Advance(ttl)
		refused(t, s, w)
		if err == nil {
			err = release(s.Dial(), r, b)
		}
		if err != nil {
			t.Fatal(err)
		}
		l := acquire(t, s, w, ttl)
		refused(t, s, r)
		st, err := r.Inspect(compat.NewConn(s.Dial()), s.Now(), "k")
		if err != nil || st.Value != l.Value || st.Status != compat.StatusHeld {
			t.Errorf("%+v, %v; want held by %q", st, err, l.Value)
		}
	})
}

// rw/mutex-outrun: a reader that is held up inside for longer than the mutex lasts adds itself
// beside a writer.
func TestMutexOutrun(t *testing.T) {
	mutexed(t, func(t *testing.T, s *oldredis.Server, r, w compat.Algorithm) {
		c := &hooked{Conn: s.Dial(), name: "ZADD", act: func() {
			s.Advance(7 * time.Second)
			acquire(t, s, w, ttl)
		}}
		if _, err := r.Acquire(compat.NewConn(c), s.Now(), "k", 2*ttl); err != nil {
			t.Errorf("the reader noticed: %v", err)
		}
	})
}

// rw/bare-mutex: a client that was held up inside then deletes the mutex of the next.
func TestBareMutex(t *testing.T) {
	mutexed(t, func(t *testing.T, s *oldredis.Server, r, _ compat.Algorithm) {
		c := &hooked{Conn: s.Dial(), name: "DEL", act: func() {
			s.Advance(7 * time.Second)
			do(t, s, "SETNX", "k:mutex:{k}", "of the next")
		}}
		if _, err := r.Acquire(compat.NewConn(c), s.Now(), "k", ttl); err != nil {
			t.Fatal(err)
		}
		if n := do(t, s, "EXISTS", "k:mutex:{k}"); n != int64(0) {
			t.Error("the mutex of the next is still there")
		}
	})
}

// rw/expired-reader: a reader whose lease is over is told that it released what a writer had
// taken long before.
func TestExpiredReader(t *testing.T) {
	mutexed(t, func(t *testing.T, s *oldredis.Server, r, w compat.Algorithm) {
		l := acquire(t, s, r, ttl)
		s.Advance(ttl)
		acquire(t, s, w, ttl)
		if err := release(s.Dial(), r, l); err != nil {
			t.Errorf("the reader noticed: %v", err)
		}
	})
}

// rw/extend-resurrects: and if it extends instead, it is back beside the writer.
func TestExtendResurrects(t *testing.T) {
	mutexed(t, func(t *testing.T, s *oldredis.Server, r, w compat.Algorithm) {
		l := acquire(t, s, r, ttl)
		s.Advance(ttl)
		acquire(t, s, w, ttl)
		if _, err := extend(s.Dial(), s, r, l, ttl); err != nil {
			t.Errorf("the reader noticed: %v", err)
		}
		if _, err := redis.Int64(s.Dial().Do("ZSCORE", "k:readers:{k}", l.Value)); err != nil {
			t.Errorf("the reader is not back: %v", err)
		}
	})
}

// tx/crash-before-expire: a client that dies between SETNX and EXPIRE leaves a mutex that nothing
// ends.
func TestMutexOfADeadClient(t *testing.T) {
	mutexed(t, func(t *testing.T, s *oldredis.Server, r, _ compat.Algorithm) {
		s.SetFault(func(_, _ int, cmd []string) oldredis.Fault {
			if cmd[0] == "EXPIRE" {
				return oldredis.LoseRequest
			}
			return oldredis.None
		})
		if _, err := r.Acquire(compat.NewConn(s.Dial()), s.Now(), "k", ttl); err == nil || errors.Is(err, compat.ErrHeld) {
			t.Fatalf("Acquire over a connection that broke: %v", err)
		}
		s.SetFault(nil)
		s.Advance(48 * time.Hour)
		refused(t, s, r)
	})
}
