package compat_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

// A sharing lock's changes are to be tried once: another client can write its value, too.
type sharing struct {
	protocol.Algorithm
	once bool
}

func (s sharing) Extend(now time.Time, l compat.Lease, ttl time.Duration, rotate bool) (compat.Lease, protocol.Change, error) {
	next, ch, err := s.Algorithm.Extend(now, l, ttl, rotate)
	ch.Once = s.once
	return next, ch, err
}

// An EXEC that was aborted is tried again, for it may have been a renewal of our own that touched the key;
// but not where another client writes the same values: that it holds ours proves nothing then.
func TestAbortedAndAmbiguous(t *testing.T) {
	for _, once := range []bool{false, true} {
		s := oldredis.Run(t, "2.4")
		execs, meddles := 0, false
		source := compat.Source{Get: func(context.Context, string) (redis.Conn, error) {
			return faulty.Over(s.Dial(), faulty.First(func() {
				if execs++; meddles && execs == 1 {
					value, err := redis.String(s.Dial().Do("GET", "k"))
					if err == nil {
						_, err = s.Dial().Do("SETEX", "k", 60, value)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}).Of("EXEC")), nil
		}}
		b := compat.NewBackend(source, sharing{txlock.Renamed{}, once})
		l, err := b.Acquire(t.Context(), time.Now, "k", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		execs, meddles = 0, true
		_, err = b.Extend(t.Context(), time.Now, l, time.Hour)
		left, _ := redis.Int(s.Dial().Do("TTL", "k"))
		if done := left > 60; once && (!errors.Is(err, compat.ErrAborted) || done || execs != 1) || !once && (err != nil || !done || execs != 2) {
			t.Errorf("once %v: %v after %d EXECs, %d s are left", once, err, execs, left)
		}
	}
}

// A repair is for a key without an end: one that has got one since it was looked at, with the same value on
// it, keeps that.
func TestRepairOfWhatHasAnEnd(t *testing.T) {
	for _, ends := range []bool{false, true} {
		s := oldredis.Run(t, "2.4")
		c := s.Dial()
		b := compat.NewBackend(compat.Source{Get: func(context.Context, string) (redis.Conn, error) { return s.Dial(), nil }},
			txlock.Classic{})
		must.Get(c.Do("SET", "k", protocol.NewToken()))(t)
		st, err := b.Inspect(t.Context(), time.Now, "k")
		if err != nil || st.Status != compat.StatusPersistent {
			t.Fatal(st, err)
		}
		if ends {
			must.Get(c.Do("EXPIRE", "k", 60))(t)
		}
		err = b.Repair(t.Context(), time.Now, st, time.Hour)
		if left, _ := redis.Int(c.Do("TTL", "k")); ends && (err == nil || left > 60) || !ends && (err != nil || left <= 60) {
			t.Errorf("had an end %v: %v, %d s are left", ends, err, left)
		}
	}
}

// Nor does a repair try again: a client that writes the same value may have taken the key meanwhile, and is about
// to give it an end of its own.
func TestRepairOfWhatWasTakenAnew(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	c := s.Dial()
	execs := 0
	b := compat.NewBackend(compat.Source{Get: func(context.Context, string) (redis.Conn, error) {
		return faulty.Over(s.Dial(), faulty.First(func() {
			if execs++; execs == 1 {
				c.Do("DEL", "k")        //nolint:errcheck
				c.Do("SETNX", "k", "1") //nolint:errcheck
			}
		}).Of("EXEC")), nil
	}}, txlock.Classic{})
	must.Get(c.Do("SET", "k", "1"))(t)
	st, err := b.Inspect(t.Context(), time.Now, "k")
	if err != nil || st.Status != compat.StatusPersistent {
		t.Fatal(st, err)
	}
	err = b.Repair(t.Context(), time.Now, st, time.Hour)
	if left, _ := redis.Int(c.Do("TTL", "k")); err == nil || left != -1 || execs != 1 {
		t.Errorf("%v after %d EXECs, %d s are left", err, execs, left)
	}
}

// What the server refused was not done, whatever keeps the condition.
func TestRefusedIsNotDone(t *testing.T) {
	for _, by := range []protocol.Condition{protocol.Watch, protocol.Unguarded} {
		s := oldredis.Run(t, "2.4")
		must.Get(s.Dial().Do("SET", "k", "v"))(t)
		lacking := faulty.Fate{Serve: func(run func(...any) any) any { return run("NODEL") }}.Of("DEL")
		_, err := protocol.NewConn(faulty.Over(s.Dial(), lacking)).Run(protocol.Change{If: by, Key: "k", Value: "v"})
		if n, _ := redis.Int(s.Dial().Do("EXISTS", "k")); err == nil || errors.Is(err, compat.ErrLost) || n != 1 {
			t.Errorf("condition %d: %v, and the key is there: %d", by, err, n)
		}
	}
}
