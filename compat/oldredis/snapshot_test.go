package oldredis

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

func TestSnapshot(t *testing.T) {
	s := Run(t, "2.4")
	c := s.Dial()
	for _, cmd := range []string{
		"SETEX lock 5 A", "SET plain v", "RPUSH l a b a", "SADD s x y", "HSET h f v", "ZADD z 1.5 m", "SELECT 3", "SET far away", "SELECT 0",
	} {
		do(t, c, cmd)
	}
	before := s.Snapshot()

	s.Advance(20 * time.Second)
	for _, cmd := range []string{"SET plain w", "DEL l s", "SET h string", "SET new v", "SETEX z 9 v"} {
		do(t, c, cmd)
	}
	after := s.Snapshot()
	if before.Key() == after.Key() || before.ContentKey() == after.ContentKey() {
		t.Error("two different states have the same key")
	}

	s.Restore(before)
	if got := s.Snapshot(); got.Key() != before.Key() {
		t.Errorf("restored %+v\nwant %+v", got.Entries(s), before.Entries(s))
	}
	talk(t, s, `
		TTL lock -> (int) 5
		TTL z -> (int) -1
		LRANGE l 0 -1 -> ["a" "b" "a"]
		HGET h f -> "v"
		ZSCORE z m -> "1.5"
		EXISTS new -> (int) 0
		SELECT 3 -> OK
		GET far -> "away"`)

	other := Run(t, "2.4")
	other.Restore(after)
	if got := other.Snapshot(); got.Key() != after.Key() {
		t.Errorf("another server: %+v\nwant %+v", got.Entries(other), after.Entries(other))
	}
}

// TestSnapshotUnreaped: an expired key in memory is part of the state.
func TestSnapshotUnreaped(t *testing.T) {
	s := Run(t, "2.4")
	do(t, s.Dial(), "SETEX lock 1 A")
	s.AdvanceLazy(5 * time.Second)
	dead := s.Snapshot()
	if e := dead.Entries(s); len(e) != 1 || !e[0].Unreaped || e[0].Value != "A" {
		t.Errorf("%+v", e)
	}
	s.Reap()
	if gone := s.Snapshot(); gone.Key() == dead.Key() || len(gone.Entries(s)) != 0 {
		t.Errorf("%+v", gone.Entries(s))
	}
	s.Restore(dead)
	talk(t, s, `EXPIRE lock 9 -> (int) 1`)
	s.Restore(dead.At(dead.Now().Add(-4 * time.Second)))
	talk(t, s, `GET lock -> "A"`)
}

func TestConnState(t *testing.T) {
	s := Run(t, "2.4")
	c := s.Dial().(*Conn)
	fresh := c.State()
	do(t, c, "SET k v")
	start := s.Snapshot()
	for _, cmd := range []string{"WATCH k", "MULTI", "DEL k"} {
		do(t, c, cmd)
	}
	clean := c.State()
	want := ConnState{Multi: true, Queue: [][]string{{"DEL", "k"}}, Watched: []WatchedKey{{Key: "k"}}}
	if !reflect.DeepEqual(clean, want) {
		t.Errorf("state %+v, want %+v", clean, want)
	}
	do(t, s.Dial(), "SET k other")
	dirty := c.State()
	if !c.Dirty() || !dirty.Dirty || dirty.Key() == clean.Key() {
		t.Errorf("a touched watch: %+v", dirty)
	}

	for _, at := range []struct {
		state ConnState
		exec  string
	}{{clean, "[(int) 1]"}, {dirty, "nil"}, {fresh, "(error) ERR EXEC without MULTI"}} {
		s.Restore(start)
		c.Close()
		c.SetState(at.state)
		if got := do(t, c, "EXEC"); got != at.exec {
			t.Errorf("EXEC in %+v -> %s, want %s", at.state, got, at.exec)
		}
	}
	if c.State().Key() != fresh.Key() {
		t.Errorf("after EXEC: %+v", c.State())
	}
}

// TestRestoreKeepsBehaviour replays the recordings on servers that are saved and restored before
// every step, connections included.
func TestRestoreKeepsBehaviour(t *testing.T) {
	for _, file := range []string{"redis-2.2.15.jsonl.gz", "redis-1.3.6.jsonl.gz", "redis-7.0.15.jsonl.gz"} {
		version := recorded[file[len("redis-"):len(file)-len(".jsonl.gz")]]
		for _, r := range readRecordings(t, "testdata/"+file) {
			s := MustNew(version, Options{Start: time.Unix(r.Start, 0)})
			twin := MustNew(version, Options{})
			conns := [2][2]redis.Conn{{s.Dial(), s.Dial()}, {twin.Dial(), twin.Dial()}}
			for i, step := range r.Steps {
				twin.Restore(s.Snapshot())
				for n, c := range conns[0] {
					conns[1][n].(*Conn).SetState(c.(*Conn).State())
				}
				if step.Cmd == nil {
					s.AdvanceLazy(time.Duration(step.AdvanceMS) * time.Millisecond)
					continue
				}
				args := redis.Args{}.AddFlat(step.Cmd[1:])
				a, _ := conns[0][step.Client].Do(step.Cmd[0], args...)
				b, _ := conns[1][step.Client].Do(step.Cmd[0], args...)
				if show(a) != show(b) || s.Snapshot().Key() != twin.Snapshot().Key() {
					t.Errorf("%s/%s/%d: %s -> %s, restored %s", version, r.Name, i, step.Cmd, show(a), show(b))
				}
			}
			s.Close()
			twin.Close()
		}
	}
}

// TestSnapshotScripts: the scripts that EVAL cached are part of the state, and lost by a restart.
func TestSnapshotScripts(t *testing.T) {
	s := Run(t, "7.0")
	c := s.Dial()
	fresh := s.Snapshot()
	const sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" // of "return 1"
	has := func(want string) {
		t.Helper()
		if got := do(t, s.Dial(), "SCRIPT EXISTS "+sha); got != want {
			t.Errorf("SCRIPT EXISTS -> %s, want %s", got, want)
		}
	}
	must.Get(c.Do("EVAL", "return 1", 0))(t)
	knows := s.Snapshot()
	if knows.Key() == fresh.Key() || knows.ContentKey() == fresh.ContentKey() {
		t.Error("a cached script does not change the key")
	}
	s.Restore(fresh)
	has("[(int) 0]")
	s.Restore(knows)
	has("[(int) 1]")
	s.Restart(Keeping)
	has("[(int) 0]")
	if s.Snapshot().ContentKey() != fresh.ContentKey() {
		t.Error("a restart leaves scripts behind")
	}
	s.Restore(knows)
	do(t, s.Dial(), "SCRIPT FLUSH")
	has("[(int) 0]")
	s.Restore(knows)
	has("[(int) 1]")
}

func TestRename(t *testing.T) {
	swap := strings.NewReplacer("A", "B", "B", "A").Replace
	fill := func(a, b string) Snapshot {
		s := Run(t, "2.4")
		c := s.Dial()
		c.Do("SETEX", "tmp:"+a, 10, a)
		c.Do("SET", "lock", b)
		c.Do("RPUSH", "list:"+b, a, b)
		c.Do("SADD", "set", a)
		c.Do("ZADD", "zset", 1, a)
		c.Do("ZADD", "zset", 2, "z")
		c.Do("HSET", "hash", b, a)
		return s.Snapshot()
	}
	one, two := fill("A", "B"), fill("B", "A")
	if one.Key() == two.Key() {
		t.Fatal("two snapshots that differ have one Key")
	}
	if got := one.Rename(swap); got.Key() != two.Key() {
		t.Errorf("renamed: %q\nwant     %q", got.Key(), two.Key())
	}
	if one.Rename(swap).Rename(swap).Key() != one.Key() {
		t.Error("renaming twice does not give the original")
	}
}
