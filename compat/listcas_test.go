package compat_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// eachListCAS runs f on embedded versions that have the list commands, on a real
// redis-server, and at the addresses in SETNXLOCK_TEST_REDIS.
func eachListCAS(t *testing.T, f func(t *testing.T, c redis.Conn)) {
	versions := []string{"2.0", "2.2", "2.4", "2.6", "7.0"} // whose lists differ
	if realredis.UnderRace() {
		versions = versions[:1] // nothing runs beside it
	}
	for _, v := range versions {
		t.Run(v, func(t *testing.T) { t.Parallel(); f(t, oldredis.Run(t, v).Dial()) })
	}
	var addrs []string
	if realredis.Embedded() {
		realredis.Skipped(t, "redis-server")
	} else {
		addrs = append(addrs, realredis.Start(t))
	}
	for _, addr := range strings.Split(os.Getenv("SETNXLOCK_TEST_REDIS"), ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			addrs = append(addrs, addr)
		}
	}
	for _, addr := range addrs {
		t.Run("real/"+addr, func(t *testing.T) {
			t.Parallel()
			c := must.Get(redis.Dial("tcp", addr))(t)
			defer c.Close()
			if info, _ := redis.String(c.Do("INFO")); strings.Contains(info, "redis_version:1.") {
				t.Log("a server of 1.2: the test of package ability says that it is refused")
				return
			}
			f(t, c)
		})
	}
}

// releaseByLists and replaceByLists are the two changes that ListCAS can do.
func releaseByLists(c redis.Conn, l protocol.Lease) error {
	_, err := protocol.NewConn(c).Run(protocol.Change{If: protocol.ListCAS, Key: l.Key, Value: l.Value})
	return err
}

func replaceByLists(c redis.Conn, l protocol.Lease, value string) ([]any, error) {
	return protocol.NewConn(c).Run(protocol.Change{If: protocol.ListCAS, Key: l.Key, Value: l.Value, Do: []protocol.Cmd{{"SET", l.Key, value}}})
}

const noMemory = redis.Error("ERR command not allowed when used memory > 'maxmemory'")

// refusing is a server that refuses some commands of the next transaction, a bit for each behind
// MULTI, and runs the rest, as over maxmemory before 2.6.5.
func refusing(c redis.Conn, refused *uint) redis.Conn {
	return faulty.Over(c, func(m faulty.Message) faulty.Fate {
		switch {
		case m.Name == "EXEC":
			*refused = 0
		case m.At > 0 && *refused>>(m.At-1)&1 == 1:
			return faulty.Answer(noMemory)
		}
		return faulty.Fate{}
	})
}

// a key may hold one of these.
var holdings = []struct {
	name string
	set  []protocol.Cmd
	ours bool
}{
	{"nothing", nil, false},
	{"ours", []protocol.Cmd{{"SET", "k", "held"}}, true},
	{"another's", []protocol.Cmd{{"SET", "k", "other"}}, false},
	{"empty", []protocol.Cmd{{"SET", "k", ""}}, false},
	{"a list", []protocol.Cmd{{"RPUSH", "k", "a"}, {"RPUSH", "k", ""}}, false},
	{"a hash", []protocol.Cmd{{"HSET", "k", "held", "held"}}, false},
	{"a set", []protocol.Cmd{{"SADD", "k", "held"}}, false},
}

// content is what is under a key, a word for each command that reads: one of them
// can, where there is anything; and whether any of the others is there.
func content(t *testing.T, c redis.Conn, key string, others ...string) (is string, left bool) {
	t.Helper()
	cmds := []protocol.Cmd{{"GET", key}, {"LRANGE", key, 0, -1}, {"HGETALL", key}, {"SCARD", key}, {"EXISTS", key}}
	reads := len(cmds)
	for _, name := range others {
		cmds = append(cmds, protocol.Cmd{"EXISTS", name})
	}
	replies := must.Get(protocol.NewConn(c).Pipe(cmds...))(t)
	var word []byte
	for _, r := range replies[:reads] {
		if _, wrongType := r.(redis.Error); wrongType {
			r = "-"
		}
		word = fmt.Appendf(word, "%q ", r)
	}
	return string(word), slices.Contains(replies[reads:], any(int64(1)))
}

// TestListCASSubsets leaves out every subset of the commands, with each thing
// that can be on the key: what is not ours stays as it was, and what is ours is
// there, or gone, or replaced, as the outcome says.
func TestListCASSubsets(t *testing.T) {
	eachListCAS(t, func(t *testing.T, c redis.Conn) {
		key := "setnxlock-test:" + protocol.NewToken()
		l := protocol.Lease{Key: key, Value: "held"}
		names := []string{key}
		for n := range 4 {
			names = append(names, protocol.Aux(key, "held")+"satu"[:n+1], protocol.Aux(key, "next")+"wbxv"[:n+1])
		}
		none := protocol.Cmd{"DEL"}
		for _, n := range names {
			none = append(none, n)
		}
		bits := uint(0)
		over := refusing(c, &bits)
		put := func(set []protocol.Cmd) {
			t.Helper()
			cmds := []protocol.Cmd{none}
			for _, m := range set {
				m = slices.Clone(m)
				m[1] = key
				cmds = append(cmds, m)
			}
			must.Get(protocol.NewConn(c).Pipe(cmds...))(t)
		}
		look := func(set ...protocol.Cmd) string {
			t.Helper()
			put(set)
			is, _ := content(t, c, key)
			return is
		}
		gone, next := look(), look(protocol.Cmd{"SET", "k", "next"})
		outcomes := map[string]int{}
		for _, h := range holdings {
			before := look(h.set...)
			for _, commands := range []int{10, 11} {
				replace := commands == 11
				for refused := range uint(1) << commands {
					put(h.set)
					bits = refused
					var err error
					if replace {
						_, err = replaceByLists(over, l, "next")
					} else {
						err = releaseByLists(over, l)
					}

					after, left := content(t, c, key, names[1:]...)
					left = left && refused>>(commands-1)&1 == 0 // else nothing was to remove it
					outcome := "refused"
					switch {
					case err == nil:
						outcome = "done"
					case errors.Is(err, protocol.ErrLost):
						outcome = "lost"
					case !errors.Is(err, noMemory):
						t.Fatalf("%s, %011b refused: %v", h.name, refused, err)
					}
					outcomes[outcome]++
					var ok bool
					switch {
					case !h.ours:
						ok = after == before && outcome != "done"
					case outcome == "done":
						ok = after == gone && !replace || after == next && replace
					case outcome == "lost": // deleted, and its replacement refused
						ok = after == gone && replace && errors.Is(err, noMemory) // an error says what was refused
					default:
						ok = after == before
					}
					if !ok || left {
						t.Fatalf("on the key: %s; replace %v, %011b refused: %s, and it went from %s to %s; names of ours are left: %v", h.name, replace, refused, outcome, before, after, left)
					}
				}
			}
		}
		put(nil)
		if outcomes["done"] == 0 || outcomes["lost"] == 0 || outcomes["refused"] == 0 {
			t.Errorf("outcomes %v: not all there are", outcomes)
		}
	})
}

// TestListCASLeftovers: what a takeover leaves behind of which one command was
// refused does not lead the late release of its predecessor astray, nor its own.
func TestListCASLeftovers(t *testing.T) {
	eachListCAS(t, func(t *testing.T, c redis.Conn) {
		key := "setnxlock-test:" + protocol.NewToken()
		old, current := protocol.Lease{Key: key, Value: "held"}, protocol.Lease{Key: key, Value: "next"}
		for refused := range 11 {
			c.Do("SET", key, old.Value)
			bits := uint(1) << refused
			if _, err := replaceByLists(refusing(c, &bits), old, current.Value); err != nil {
				c.Do("SET", key, current.Value) // and taken by another way then
			}
			if err := releaseByLists(c, old); !errors.Is(err, protocol.ErrLost) {
				t.Errorf("the predecessor's release, after command %d of the takeover was refused: %v", refused, err)
			}
			if _, err := replaceByLists(c, old, "another"); !errors.Is(err, protocol.ErrLost) {
				t.Errorf("another takeover, after command %d was refused: %v", refused, err)
			}
			if v, err := redis.String(c.Do("GET", key)); v != current.Value {
				t.Errorf("after command %d was refused the key holds %q, %v", refused, v, err)
			}
			if err := releaseByLists(c, current); err != nil {
				t.Errorf("the release, after command %d was refused: %v", refused, err)
			}
			if n, err := redis.Int(c.Do("EXISTS", key)); n != 0 || err != nil {
				t.Errorf("the key is there still, after command %d was refused: %v", refused, err)
			}
			for n := range 4 {
				c.Do("DEL", protocol.Aux(key, current.Value)+"wbxv"[:n+1])
			}
		}
	})
}

// TestListCASCompares: only the very value is equal, whatever bytes there are in it.
func TestListCASCompares(t *testing.T) {
	values := []string{"12345", "012345", "12345 ", " 12345", "+12345", "-0", "0", "1e3", "1000", "*", "#", "a->b", "nosort", "\r\n", "two\r\nlines",
		"with spaces", "\x00", "\x00\x01", "tok", "tokk", "TOK", strings.Repeat("x", 1025), strings.Repeat("x", 1026), strings.Repeat("x", 70000),
		"9223372036854775807", "9223372036854775808", "1330837567.000123456789012"}
	eachListCAS(t, func(t *testing.T, c redis.Conn) {
		key := "setnxlock-test:" + protocol.NewToken()
		for _, ours := range values {
			for _, theirs := range values {
				l := protocol.Lease{Key: key, Value: ours}
				c.Do("SET", key, theirs)
				_, err := replaceByLists(c, l, "next")
				left := theirs
				if ours == theirs {
					left = "next"
				}
				if got, _ := redis.String(c.Do("GET", key)); got != left || ours == theirs && err != nil || ours != theirs && !errors.Is(err, protocol.ErrLost) {
					t.Fatalf("replace of %.20q when the key holds %.20q: %v, and left %.20q", ours, theirs, err, got)
				}
				c.Do("SET", key, theirs)
				err = releaseByLists(c, l)
				if ours == theirs {
					left = ""
				}
				if got, _ := redis.String(c.Do("GET", key)); got != left || ours == theirs && err != nil || ours != theirs && !errors.Is(err, protocol.ErrLost) {
					t.Fatalf("release of %.20q when the key holds %.20q: %v, and left %.20q", ours, theirs, err, got)
				}
			}
		}
		c.Do("DEL", key)
	})
}

// TestListCASKeys: names that mean something to SORT, or are as long as it reads.
func TestListCASKeys(t *testing.T) {
	eachListCAS(t, func(t *testing.T, c redis.Conn) {
		prefix := "setnxlock-test:" + protocol.NewToken()
		for _, suffix := range []string{"*", "a->b", "#", "{tag}", "a}b", " and spaces", "\r\n", "\x00", strings.Repeat("k", 1024-len(prefix))} {
			l := protocol.Lease{Key: prefix + suffix, Value: "held"}
			c.Do("SET", l.Key, "held")
			if _, err := replaceByLists(c, l, "next"); err != nil {
				t.Errorf("replace of the key %.60q: %v", l.Key, err)
			}
			l.Value = "next"
			if err := releaseByLists(c, l); err != nil {
				t.Errorf("release of the key %.60q: %v", l.Key, err)
			}
			if n, _ := redis.Int(c.Do("EXISTS", l.Key)); n != 0 {
				t.Errorf("the key %.60q is there still", l.Key)
				c.Do("DEL", l.Key)
			}
		}
	})
}

// TestListCASInvalid: what can't be compared is not sent.
func TestListCASInvalid(t *testing.T) {
	s := oldredis.Run(t, "2.0")
	sent := s.Record()
	for _, l := range []protocol.Lease{{Key: "k"}, {Key: "k", Value: "k"}, {Key: strings.Repeat("k", 1025), Value: "held"}} {
		if err := releaseByLists(s.Dial(), l); !errors.Is(err, protocol.ErrInvalid) {
			t.Errorf("release of %.10q, %q: %v", l.Key, l.Value, err)
		}
		if _, err := replaceByLists(s.Dial(), l, "next"); !errors.Is(err, protocol.ErrInvalid) {
			t.Errorf("replace of %.10q, %q: %v", l.Key, l.Value, err)
		}
	}
	if _, err := replaceByLists(s.Dial(), protocol.Lease{Key: "k", Value: "held"}, ""); !errors.Is(err, protocol.ErrInvalid) {
		t.Errorf("replace by nothing: %v", err)
	}
	if sent.String() != "" {
		t.Errorf("sent:\n%s", sent)
	}
}

// TestListCASNothing: where there is no key none is made, not even for a moment.
func TestListCASNothing(t *testing.T) {
	for _, v := range oldredis.Versions()[1:] {
		s := oldredis.Run(t, v)
		sent := s.Record()
		if _, err := replaceByLists(s.Dial(), protocol.Lease{Key: "k", Value: "held"}, "next"); !errors.Is(err, protocol.ErrLost) {
			t.Errorf("%s: replace where there is no key: %v", v, err)
		}
		if n := strings.Count(sent.String(), "EXEC → "); n != 1 || !strings.Contains(sent.String(), "no such key 0 0 ") {
			t.Errorf("%s: %d transactions, or a key that was made:\n%s", v, n, sent)
		}
	}
}

// TestListCASOverMaxmemory: the server refuses, the lock stays, and the connection
// is as good as before.
func TestListCASOverMaxmemory(t *testing.T) {
	for _, v := range oldredis.Versions()[1:] {
		t.Run(v, func(t *testing.T) {
			s := oldredis.Run(t, v)
			c := s.Dial()
			l := protocol.Lease{Key: "k", Value: "held"}
			c.Do("SET", "k", "held")
			s.SetMaxMemoryReached(true)
			var refused redis.Error
			if err := releaseByLists(c, l); !errors.As(err, &refused) || errors.Is(err, protocol.ErrLost) {
				t.Errorf("release when memory is full: %v", err)
			}
			if _, err := replaceByLists(c, l, "next"); !errors.As(err, &refused) || errors.Is(err, protocol.ErrLost) {
				t.Errorf("replace when memory is full: %v", err)
			}
			s.SetMaxMemoryReached(false)
			c.Do("DISCARD") // 5.0 refuses that too
			if got, err := redis.String(c.Do("GET", "k")); got != "held" {
				t.Errorf("the key holds %q (%v) afterwards", got, err)
			}
			if err := releaseByLists(c, l); err != nil {
				t.Errorf("release when there is memory again: %v", err)
			}
			if left := s.Snapshot().Entries(s); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
