package oldredis

import (
	"testing"
	"time"
)

func BenchmarkCommand(b *testing.B) {
	s := MustNew("2.4", Options{})
	defer s.Close()
	c := s.Dial()
	c.Do("SETNX", "lock", "token")
	c.Do("EXPIRE", "lock", 10)
	c.Do("LPUSH", "list", "x")
	run := func(name string, args ...any) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Do(name, args...)
			}
		})
	}
	run("GET", "lock")
	run("SETNX", "lock", "other")
	run("SETEX", "lock", 10, "token")
	run("LLEN", "list")
	b.Run("transaction", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			c.Send("SET", "lock", "token")
			c.Send("WATCH", "lock")
			c.Send("GET", "lock")
			c.Send("MULTI")
			c.Send("DEL", "lock")
			c.Do("EXEC")
		}
	})
}

func BenchmarkSnapshot(b *testing.B) {
	s := MustNew("2.4", Options{})
	defer s.Close()
	c := s.Dial()
	empty := s.Snapshot()
	c.Do("SETEX", "lock", 10, "token")
	c.Do("INCR", "lock:fence")
	held := s.Snapshot()
	b.Run("Snapshot", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			held = s.Snapshot()
		}
	})
	b.Run("Restore", func(b *testing.B) {
		b.ReportAllocs()
		later := held.At(held.Now().Add(time.Second))
		for b.Loop() {
			s.Restore(empty)
			s.Restore(later)
		}
	})
	b.Run("Key", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = held.Key()
		}
	})
}
