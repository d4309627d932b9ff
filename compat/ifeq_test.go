package compat_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
)

// wording reads every command that a server gets, and says which would harm another's key: one that sets without IFEQ or
// without a TTL, one that removes whatever is there, and one that compares with nothing. It counts commands by their names.
type wording struct {
	count map[string]int
	wrong []string
}

func worded(s *oldredis.Server) *wording {
	w := &wording{count: map[string]int{}}
	s.SetTrace(func(_ int, cmd []string, _ any) {
		w.count[strings.TrimSuffix(cmd[0], "SHA")]++
		ok := true
		switch cmd[0] {
		case "SET":
			ms := 0
			if len(cmd) == 8 {
				ms, _ = strconv.Atoi(cmd[6])
			}
			ok = ms > 0 && cmd[2] != "" && cmd[3] == "IFEQ" && cmd[4] != "" && cmd[5] == "PX" && cmd[7] == "GET"
		case "DELIFEQ":
			ok = len(cmd) == 3 && cmd[2] != ""
		case "DELEX":
			ok = len(cmd) == 4 && cmd[2] == "IFEQ" && cmd[3] != ""
		}
		if !ok {
			w.wrong = append(w.wrong, strings.Join(cmd, " "))
		}
	})
	return w
}

// ifEqServers are those that compare by themselves, and others, with what keeps the condition there: a script, or WATCH.
var ifEqServers = map[string][]string{
	"8.6": {"SET", "DELEX"}, "valkey-9.1": {"SET", "DELIFEQ"},
	"valkey-8.1": {"SET", "EVAL"}, "8.2": {"EVAL", "EVAL"}, "noscript": {"WATCH", "WATCH"},
}

var ifEqChanges = map[string]protocol.Change{
	"extended":     {TTL: time.Hour},
	"rotated":      {TTL: time.Hour, Next: "next"},
	"drawn":        {TTL: time.Hour, TakeFence: true},
	"both":         {TTL: time.Hour, Next: "next", TakeFence: true},
	"released":     {},
	"besides":      {TTL: time.Hour, Do: []protocol.Cmd{{"INCR", "n"}}},
	"whole":        {TTL: time.Hour, Whole: true},
	"of the words": {Do: []protocol.Cmd{{"PEXPIRE", "k", 3600000}}},
}

// TestIfEq makes each change on each server, whatever the key holds: it is done if that is our value, and if not
// neither the value nor the TTL changes. The error says what is there.
func TestIfEq(t *testing.T) {
	for version, by := range ifEqServers {
		for name, ch := range ifEqChanges {
			for _, h := range holdings {
				t.Run(version+"/"+name+"/"+h.name, func(t *testing.T) {
					s := oldredis.Run(t, version)
					c := s.Dial()
					for _, m := range h.set {
						c.Do(m[0].(string), m[1:]...) //nolint:errcheck
					}
					c.Do("EXPIRE", "k", 60) //nolint:errcheck
					before, _ := content(t, c, "k")
					w := worded(s)
					ch := ch
					ch.If, ch.Key, ch.Value = protocol.IfEq, "k", "held"
					replies, err := protocol.NewConn(c).Run(ch)
					if len(w.wrong) > 0 {
						t.Errorf("sent %q", w.wrong)
					}
					if name != "besides" && name != "whole" && name != "of the words" {
						want := by[0]
						if name == "released" {
							want = by[1]
						}
						if alone := want != "EVAL" && want != "WATCH"; w.count[want] == 0 || alone && w.count["EVAL"]+w.count["WATCH"] > 0 {
							t.Errorf("sent %v, want a %s", w.count, want)
						}
					}
					s.SetTrace(nil)
					ttl, _ := redis.Int(c.Do("TTL", "k"))
					after, _ := content(t, c, "k")
					if !h.ours {
						ifEqRefused(t, h.name, err)
						if after != before || ttl > 60 {
							t.Errorf("%s became %s with a TTL of %d s", before, after, ttl)
						}
						return
					}
					want := map[bool]string{true: "next", false: "held"}[ch.Next != ""]
					held, _ := redis.String(c.Do("GET", "k"))
					drawn, _ := redis.Int64(c.Do("GET", protocol.Aux("k", "fence")))
					switch {
					case err != nil:
						t.Fatal(err)
					case name == "released" && ttl == -2:
					case held != want || ttl != 3600:
						t.Errorf("it holds %q for %d s, want %q", held, ttl, want)
					case ch.TakeFence && (len(replies) != 2 || replies[1] != drawn):
						t.Errorf("replies %v, want %v behind the first", replies, drawn)
					}
				})
			}
		}
	}
}

// ifEqRefused looks at the error of a change whose key does not hold our value.
func ifEqRefused(t *testing.T, holds string, err error) {
	var lost *protocol.LostError
	errors.As(err, &lost)
	switch holds {
	case "nothing":
		if lost == nil || !lost.Gone {
			t.Errorf("%v, want that it is gone", err)
		}
	case "another's":
		if lost == nil || lost.Value != "other" {
			t.Errorf("%v, want whose it is", err)
		}
	case "empty":
		if !errors.Is(err, protocol.ErrLost) {
			t.Errorf("%v, want ErrLost", err)
		}
	default:
		if !errors.Is(err, protocol.ErrForeign) {
			t.Errorf("%v, want ErrForeign", err)
		}
	}
	if protocol.OutcomeOf(err) != protocol.Refused {
		t.Errorf("%v leaves something open", err)
	}
}

// TestIfEqOnce: of the two removals, the one that a server lacks is sent to it once beside the check.
func TestIfEqOnce(t *testing.T) {
	s := oldredis.Run(t, "8.6")
	w := worded(s)
	b := compat.NewBackend(compat.Pooled(s.Pool()), setlock.IfEq{})
	for range 5 {
		l := must.Get(b.Acquire(t.Context(), time.Now, "k", time.Minute))(t)
		must.Do(t, b.Release(t.Context(), time.Now, l))
	}
	if w.count["DELIFEQ"] != 2+1 || w.count["DELEX"] != 2+5 { // two of each in the check
		t.Errorf("sent %v", w.count)
	}
}

// TestIfEqMany: changes that travel together have an outcome each.
func TestIfEqMany(t *testing.T) {
	for version := range ifEqServers {
		s := oldredis.Run(t, version)
		c := s.Dial()
		for _, k := range []string{"a", "b", "d", "e"} {
			c.Do("SET", k, "held", "PX", 60000) //nolint:errcheck
		}
		c.Do("SET", "b", "other", "PX", 60000) //nolint:errcheck
		w := worded(s)
		by := protocol.IfEq
		_, errs := protocol.NewConn(c).RunAll([]protocol.Change{
			{If: by, Key: "a", Value: "held", TTL: time.Hour, TakeFence: true}, {If: by, Key: "b", Value: "held", TTL: time.Hour},
			{If: by, Key: "c", Value: "held"}, {If: by, Key: "d", Value: "held"}, {If: by, Key: "e", Value: ""}, {If: by, Key: "e", Value: "held", Next: "x"},
		})
		for i, want := range []error{nil, protocol.ErrLost, protocol.ErrLost, nil, protocol.ErrInvalid, protocol.ErrInvalid} {
			if !errors.Is(errs[i], want) {
				t.Errorf("%s: change %d: %v, want %v", version, i, errs[i], want)
			}
		}
		if len(w.wrong) > 0 {
			t.Errorf("%s: sent %q", version, w.wrong)
		}
	}
}

// TestIfEqFull: a server over its maxmemory refuses SET, and runs what only moves the end, in a script or under WATCH.
func TestIfEqFull(t *testing.T) {
	for _, refuse := range [][]string{nil, {"eval", "evalsha"}} {
		ifEqFull(t, must.Get(oldredis.New("valkey-9.1", oldredis.Options{Refuse: refuse}))(t))
	}
}

func ifEqFull(t *testing.T, s *oldredis.Server) {
	c := protocol.NewConn(s.Dial())
	must.Get(c.Do("SET", "k", "held", "PX", 60000))(t)
	s.SetMaxMemoryReached(true)
	for name, test := range map[string]struct {
		ch  protocol.Change
		oom bool
	}{
		"extended": {protocol.Change{TTL: time.Hour}, false}, "rotated": {protocol.Change{TTL: time.Hour, Next: "next"}, true},
		"another's": {protocol.Change{TTL: time.Hour, Value: "another's"}, false},
	} {
		want := map[bool]error{true: protocol.ErrLost}[test.ch.Value != ""]
		test.ch.If, test.ch.Key, test.ch.Value = protocol.IfEq, "k", cmp.Or(test.ch.Value, "held")
		_, err := c.Run(test.ch)
		var refused redis.Error
		if oom := errors.As(err, &refused) && strings.Contains(string(refused), "OOM"); oom != test.oom || !oom && !errors.Is(err, want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ms := must.Get(redis.Int(c.Do("PTTL", "k")))(t); ms != 3600_000 {
		t.Errorf("%d ms are left", ms)
	}
	if _, err := c.Run(protocol.Change{If: protocol.IfEq, Key: "k", Value: "held"}); err != nil {
		t.Errorf("released: %v", err)
	}
}

// TestIfEqInvalid: a change that would set a key without a TTL, or compare with nothing, is refused before anything is sent.
func TestIfEqInvalid(t *testing.T) {
	s := oldredis.Run(t, "8.6")
	sent := s.Record()
	for _, ch := range []protocol.Change{
		{TTL: time.Hour}, {}, {Value: "held", Next: "next"}, {Value: "held", TTL: time.Microsecond}, {Value: "held", TTL: -time.Hour},
		{Value: "held", TTL: time.Millisecond, Whole: true}, {Next: "next", TTL: time.Hour},
	} {
		ch.If, ch.Key = protocol.IfEq, "k"
		if _, err := protocol.NewConn(s.Dial()).Run(ch); !errors.Is(err, protocol.ErrInvalid) {
			t.Errorf("%+v: %v, want ErrInvalid", ch, err)
		}
	}
	if sent.String() != "" {
		t.Errorf("sent:\n%s", sent)
	}
}

// TestIfEqTwice: a client that sends a request again, because the reply was lost, gets the answer to the second one: the
// new value is there by the first. A removal that was answered 0 is looked at: what is there is said, and if it is ours
// after all, nothing is believed.
func TestIfEqTwice(t *testing.T) {
	for _, version := range []string{"8.6", "valkey-9.1"} {
		s := oldredis.Run(t, version)
		s.Dial().Do("SET", "k", "held", "PX", 60000)                                                                                    //nolint:errcheck
		twice := faulty.Over(s.Dial(), faulty.First(func() { s.Dial().Do("SET", "k", "next", "IFEQ", "held", "PX", 60000) }).Of("SET")) //nolint:errcheck
		if _, err := protocol.NewConn(twice).Run(protocol.Change{If: protocol.IfEq, Key: "k", Value: "held", Next: "next", TTL: time.Minute}); err != nil {
			t.Errorf("%s: an extension that was sent twice: %v", version, err)
		}
		for name, reply := range map[string]any{"DELIFEQ": int64(0), "DELEX": int64(0)} {
			lying := faulty.Over(s.Dial(), func(m faulty.Message) faulty.Fate {
				if m.Name == name {
					return faulty.Answer(reply)
				}
				return faulty.Fate{}
			})
			_, err := protocol.NewConn(lying).Run(protocol.Change{If: protocol.IfEq, Key: "k", Value: "next"})
			if left, _ := redis.Int(s.Dial().Do("EXISTS", "k")); left == 1 && !errors.Is(err, compat.ErrAborted) || left == 0 && err != nil {
				t.Errorf("%s: %s answers 0, and the key is there %d times: %v", version, name, left, err)
			}
			s.Dial().Do("SET", "k", "next", "PX", 60000) //nolint:errcheck
		}
	}
}

// TestIfEqFailover: a lock that is held when a failover leads to a server that lacks the commands, or ignores the word
// IFEQ, is extended and released by a script or under WATCH from then on; a new one is refused there. A server that has the
// other of the two removals is found out, too.
func TestIfEqFailover(t *testing.T) {
	for _, test := range []struct {
		from, to string
		ignores  bool
		by       string // what extends and releases then
	}{
		{"valkey-9.1", "valkey-8.1", false, "EVAL"}, {"8.6", "8.2", false, "EVAL"}, {"8.6", "noscript", false, "WATCH"},
		{"8.6", "valkey-9.1", false, "DELIFEQ"}, {"valkey-9.1", "8.6", false, "DELEX"}, {"8.6", "valkey-9.1", true, "EVAL"},
	} {
		for _, rotates := range []bool{false, true} {
			t.Run(fmt.Sprint(test, ", rotates ", rotates), func(t *testing.T) {
				s := &succession{servers: []*oldredis.Server{oldredis.Run(t, test.from), oldredis.Run(t, test.to)}}
				b := compat.NewBackend(s.source(), setlock.IfEq{})
				l := must.Get(b.Acquire(t.Context(), time.Now, "k", time.Minute))(t)
				must.Get(s.servers[1].Dial().Do("SET", "k", l.Value, "PX", 60000))(t)
				s.epoch++
				if test.ignores {
					s.Expect(ignoresIfEq)
				}
				w := worded(s.servers[1])
				l.Rotate = rotates
				l, err := b.Extend(t.Context(), time.Now, l, time.Hour)
				c := s.servers[1].Dial()
				ms := must.Get(redis.Int(c.Do("PTTL", "k")))(t)
				if held, _ := redis.String(c.Do("GET", "k")); err != nil || held != l.Value || ms != 3600_000 {
					t.Fatalf("extended to %q: %v; it holds %q for %d ms", l.Value, err, held, ms)
				}
				must.Get(c.Do("SET", "another", "another's", "PX", 60000))(t)
				theirs := l
				theirs.Key = "another"
				if err := b.Release(t.Context(), time.Now, theirs); !errors.Is(err, compat.ErrLost) {
					t.Errorf("release of another's key: %v", err)
				}
				if _, err := b.Extend(t.Context(), time.Now, theirs, time.Hour); !errors.Is(err, compat.ErrLost) {
					t.Errorf("extension of another's key: %v", err)
				}
				if held, _ := redis.String(c.Do("GET", "another")); held != "another's" {
					t.Errorf("another's key holds %q", held)
				}
				w.count = map[string]int{}
				if err := b.Release(t.Context(), time.Now, l); err != nil || w.count[test.by] == 0 {
					t.Errorf("release: %v, by %v, want %s", err, w.count, test.by)
				}
				lacks := test.by == "EVAL" || test.by == "WATCH"
				if _, err := b.Acquire(t.Context(), time.Now, "k", time.Minute); errors.Is(err, compat.ErrUnsafeServer) != lacks || err != nil != lacks {
					t.Errorf("a new lock: %v", err)
				}
			})
		}
	}
}

// ignoresIfEq is a server that takes IFEQ for a word that says nothing, as SSDB takes NX.
func ignoresIfEq(m faulty.Message) faulty.Fate {
	if m.Name != "SET" || len(m.Args) < 4 || m.Args[2] != "IFEQ" {
		return faulty.Fate{}
	}
	return faulty.Fate{Serve: func(run func(...any) any) any {
		return run(slices.Concat([]any{"SET"}, m.Args[:2], m.Args[4:])...)
	}}
}
