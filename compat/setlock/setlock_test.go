package setlock_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/internal/steps"
)

const ttl = 10 * time.Second

func options(token string) setlock.Options {
	return setlock.Options{Token: func() string { return token }}
}

// variant is one of the locks, on a server, made with options.
type variant struct {
	name    string
	version string // the oldest embedded one that it works on
	make    func(setlock.Options) protocol.Algorithm
}

var variants = []variant{
	{"lua", "2.6.12", func(o setlock.Options) protocol.Algorithm { return setlock.Lua{Options: o} }},
	{"watched", "2.6.12", func(o setlock.Options) protocol.Algorithm { return setlock.Watched{Options: o} }},
	{"script", "2.6", func(o setlock.Options) protocol.Algorithm { return setlock.Script{Options: o} }},
	{"ifeq", "8.6", func(o setlock.Options) protocol.Algorithm { return setlock.IfEq{Options: o} }},
	{"ifeq/valkey", "valkey-9.1", func(o setlock.Options) protocol.Algorithm { return setlock.IfEq{Options: o} }},
}

// A hash or the text of a script, by what it does.
var sent = regexp.MustCompile(`(?s)EVALSHA [0-9a-f]{40}|EVAL (?:\n|local ).*?\n [12] `)

// wire is what went over the wire, with a name for each script.
func wire(t *testing.T, got *oldredis.Transcript) string {
	t.Helper()
	return sent.ReplaceAllStringFunc(got.String(), func(s string) string {
		if sha, ok := strings.CutPrefix(s, "EVALSHA "); ok {
			name := scripts()[sha]
			if name == "" {
				t.Fatalf("%s is no script of ours", sha)
			}
			return "EVALSHA " + name
		}
		for _, name := range []string{"PEXPIRE", "DEL", "PSETEX"} {
			if strings.Contains(s, "'"+name+"'") {
				return "EVAL <" + name + ">" + s[len(s)-3:]
			}
		}
		return s
	})
}

// scripts are the names of the scripts, by the hashes of the sources that a server gets which
// knows none of them.
var scripts = sync.OnceValue(func() map[string]string {
	s := oldredis.MustNew("2.6.12", oldredis.Options{})
	defer s.Close()
	names, a := map[string]string{}, setlock.Script{}
	named := func(name string) *protocol.Conn {
		return protocol.NewConn(faulty.Over(s.Dial(), func(m faulty.Message) faulty.Fate {
			if m.Name == "EVAL" {
				names[redis.NewScript(-1, m.Args[0].(string)).Hash()] = name
			}
			return faulty.Fate{}
		}))
	}
	l, err := a.Acquire(named("take"), s.Now(), "k", ttl)
	if err == nil {
		l, err = steps.Extend(a, named("extend"), s.Now(), l, ttl)
	}
	if err == nil {
		err = steps.Release(a, named("release"), l)
	}
	if err != nil || len(names) != 3 {
		panic(fmt.Sprintf("%v, %v", names, err))
	}
	return names
})

// Each way to acquire, as it goes over the wire of a server that knows the scripts.
func TestAcquire(t *testing.T) {
	fenced := options("me")
	fenced.Fence = true
	for _, c := range []struct {
		name string
		a    protocol.Algorithm
		want string
	}{
		{"lua", setlock.Lua{Options: options("me")}, "SET k me NX PX 10000 → OK\n"},
		{"watched", setlock.Watched{Options: options("me")}, "SET k me NX PX 10000 → OK\n"},
		{"script", setlock.Script{Options: options("me")}, "EVALSHA take 1 k me 10000 → 1\n"},
		{"lua with a fence", setlock.Lua{Options: fenced}, "EVALSHA take 2 k k:fence:{k} me 10000 → 1\n"},
		{"script with a fence", setlock.Script{Options: fenced}, "EVALSHA take 2 k k:fence:{k} me 10000 → 1\n"},
		{"watched with a fence", setlock.Watched{Options: fenced}, `MULTI → OK
SET k me NX PX 10000 → QUEUED
INCR k:fence:{k} → QUEUED
EXEC → [OK 1]
`},
	} {
		s := oldredis.Run(t, "2.6.12")
		conn := steps.Dial(s)
		knows(t, conn, s, setlock.Script{})
		got := s.Record()
		if _, err := c.a.Acquire(conn, s.Now(), "k", ttl); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if wire(t, got) != c.want {
			t.Errorf("%s went over the wire as\n%swant\n%s", c.name, wire(t, got), c.want)
		}
	}
}

// knows makes s know the scripts, by way of a lock of another key.
func knows(t *testing.T, c *protocol.Conn, s *oldredis.Server, a protocol.Algorithm) {
	t.Helper()
	knowsAt(t, c, s.Now(), a)
}

func knowsAt(t *testing.T, c *protocol.Conn, now time.Time, a protocol.Algorithm) {
	t.Helper()
	l, err := a.Acquire(c, now, "another", ttl)
	if err == nil {
		l, err = steps.Extend(a, c, now, l, ttl)
	}
	if err == nil {
		err = steps.Release(a, c, l)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestExtendAndRelease(t *testing.T) {
	want := map[string]string{
		"lua": "EVALSHA extend 1 k me 20000 → 1\nEVALSHA release 1 k me → 1\n",
		"watched": `WATCH k → OK
GET k → me
MULTI → OK
PEXPIRE k 20000 → QUEUED
EXEC → [1]
WATCH k → OK
GET k → me
MULTI → OK
DEL k → QUEUED
EXEC → [1]
`,
	}
	want["script"] = want["lua"]
	const extended = "SET k me IFEQ me PX 20000 GET → me\n"
	want["ifeq"] = extended + "DELIFEQ k me → ERR unknown command 'DELIFEQ', with args beginning with: 'k' 'me' \nDELEX k IFEQ me → 1\n" // without an engine nothing is remembered
	want["ifeq/valkey"] = extended + "DELIFEQ k me → 1\n"
	for _, v := range variants {
		s := oldredis.Run(t, v.version)
		c, a := steps.Dial(s), v.make(options("me"))
		knows(t, c, s, a)
		l, err := a.Acquire(c, s.Now(), "k", ttl)
		if err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		got := s.Record()
		if l, err = steps.Extend(a, c, s.Now(), l, 2*ttl); err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if err := steps.Release(a, c, l); err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if wire(t, got) != want[v.name] {
			t.Errorf("%s went over the wire as\n%swant\n%s", v.name, wire(t, got), want[v.name])
		}
	}
}

// A server that has forgotten a script, here after SCRIPT FLUSH, gets it again,
// and the lock notices nothing.
func TestForgottenScripts(t *testing.T) {
	for _, a := range []protocol.Algorithm{setlock.Lua{Options: options("me")}, setlock.Script{Options: options("me")}} {
		s := oldredis.Run(t, "2.6.12")
		c := steps.Dial(s)
		knows(t, c, s, a)
		l, err := a.Acquire(c, s.Now(), "k", ttl)
		if err != nil {
			t.Fatal(err)
		}
		must.Get(c.Do("SCRIPT", "FLUSH"))(t)
		got := s.Record()
		if l, err = steps.Extend(a, c, s.Now(), l, 2*ttl); err != nil {
			t.Fatal(err)
		}
		must.Do(t, steps.Release(a, c, l))
		if want := `EVALSHA extend 1 k me 20000 → NOSCRIPT No matching script. Please use EVAL.
EVAL <PEXPIRE> 1 k me 20000 → 1
EVALSHA release 1 k me → NOSCRIPT No matching script. Please use EVAL.
EVAL <DEL> 1 k me → 1
`; wire(t, got) != want {
			t.Errorf("%T went over the wire as\n%swant\n%s", a, wire(t, got), want)
		}
	}
}

func do(t *testing.T, c redis.Conn, name string, args ...any) any {
	t.Helper()
	reply, err := c.Do(name, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return reply
}

// With scripts a refused attempt burns no number, and a counter that can't
// count leaves the key free: it is asked before the key is made.
func TestScriptedFence(t *testing.T) {
	for _, v := range variants {
		if v.name != "lua" && v.name != "script" {
			continue
		}
		s := oldredis.Run(t, v.version)
		c := steps.Dial(s)
		a := v.make(setlock.Options{Fence: true})
		l := must.Get(a.Acquire(c, s.Now(), "k", ttl))(t)
		for range 3 {
			if _, err := a.Acquire(c, s.Now(), "k", ttl); !errors.Is(err, compat.ErrHeld) {
				t.Errorf("%s: %v", v.name, err)
			}
		}
		if n, _ := redis.Int64(c.Do("GET", protocol.Aux("k", "fence"))); n != l.Fence {
			t.Errorf("%s: refused attempts brought the counter from %d to %d", v.name, l.Fence, n)
		}
		do(t, c, "SET", protocol.Aux("other", "fence"), "no number")
		if _, err := a.Acquire(c, s.Now(), "other", ttl); err == nil {
			t.Errorf("%s: acquired without a fence", v.name)
		}
		if n, _ := redis.Int(c.Do("EXISTS", "other")); n != 0 {
			t.Errorf("%s: the key was made although there is no fence", v.name)
		}
	}
}

// Every variant refuses a server that lacks what it needs, says why and what
// to use, and leaves nothing behind; on all others it is content. What an ACL
// forbids proves nothing about the server: that is ErrDenied, with what to grant.
func TestCheck(t *testing.T) {
	px := "SET … NX PX (it came with 2.6.12); use "
	for _, c := range []struct {
		a       protocol.Algorithm
		version string
		without string // a command that the server does not let us use
		why     string // "": safe
	}{
		{setlock.Lua{}, "2.0", "", px + "txlock.Renamed, or before 2.2 getsetlock.Classic"}, {setlock.Lua{}, "2.6", "", px + "txlock.Renamed"},
		{setlock.Lua{}, "noscript", "", "since 2.6 (ERR unknown command 'EVALSHA'): it was renamed or disabled (rename-command), or a proxy in between lacks it; use setlock.Watched"}, {setlock.Lua{}, "7.0", "EVALSHA", "use setlock.Watched"},
		{setlock.Watched{}, "7.0", "WATCH", "since 2.2 (ERR unknown command 'WATCH'): it was renamed or disabled (rename-command), or a proxy in between lacks it; use setlock.Lua"}, {setlock.Watched{}, "7.0", "MULTI", "since 1.2 (ERR unknown command 'MULTI'): it was renamed or disabled (rename-command), or a proxy in between lacks it; use setlock.Lua"},
		{setlock.Script{}, "2.4", "", "(milliseconds came with 2.6); use txlock.Renamed"}, {setlock.Script{}, "noscript", "", "use txlock.Renamed"},
		{setlock.Script{Options: setlock.Options{Fence: true}}, "2.6", "", ""}, {setlock.Script{}, "twemproxy", "", ""},
	} {
		for _, forbid := range []bool{false, true} {
			o := oldredis.Options{}
			if c.without != "" && forbid {
				o.Forbid = []string{c.without}
			} else if c.without != "" {
				o.Refuse = []string{c.without}
			}
			s := oldredis.MustNew(c.version, o)
			err := c.a.Traits().Check(steps.Dial(s), "k")
			if len(o.Forbid) > 0 {
				_, err := compat.New(s, c.a, compat.Options{NoRenew: true}).TryLock(context.Background(), "k", ttl)
				if !errors.Is(err, compat.ErrDenied) || errors.Is(err, compat.ErrUnsafeServer) || !strings.Contains(err.Error(), "+"+strings.ToLower(c.without)) {
					t.Errorf("%T on %s, where %q is forbidden: %v, want ErrDenied", c.a, c.version, c.without, err)
				}
			} else if c.why == "" && err != nil || c.why != "" && (!errors.Is(err, compat.ErrUnsafeServer) || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("%T on %s without %q: %v, want %q", c.a, c.version, c.without, err, c.why)
			}
			if c.version != "twemproxy" { // which has no KEYS
				if left, err := redis.Strings(s.Dial().Do("KEYS", "*")); err != nil || len(left) != 0 {
					t.Errorf("%T on %s left %q behind, %v", c.a, c.version, left, err)
				}
			}
			s.Close()
		}
	}
}

// A server over its maxmemory gives nothing away, and a script still lets the
// holder extend and release. A transaction does not since Redis 5.0, where
// nothing may be queued then: it says so, and works when there is room again.
func TestFullServer(t *testing.T) {
	for _, v := range []string{"2.6.12", "2.8", "3.0", "5.0", "7.0"} {
		s := oldredis.Run(t, v)
		full(t, steps.Dial(s), v, v == "5.0" || v == "7.0", s.SetMaxMemoryReached)
	}
	c, err := redis.Dial("tcp", realredis.Start(t, "--maxmemory-policy", "noeviction"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	set := func(full bool) {
		bytes := 0
		if full {
			bytes = 1
		}
		do(t, c, "CONFIG", "SET", "maxmemory", bytes)
	}
	set(true)
	do(t, c, "MULTI")
	_, err = c.Do("DEL", "nothing")
	do(t, c, "DISCARD")
	set(false)
	full(t, protocol.NewConn(c), "real", err != nil, set)
}

// full tries every lock on a server without memory. refuses: such a server refuses a DEL in a MULTI, too, as Redis 5.0 to 7.2 do.
func full(t *testing.T, c *protocol.Conn, version string, refuses bool, set func(full bool)) {
	now := time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)
	for _, v := range variants {
		a := v.make(setlock.Options{})
		knowsAt(t, c, now, a)
		l, err := a.Acquire(c, now, "k", ttl)
		if err != nil {
			t.Fatalf("%s on %s: %v", v.name, version, err)
		}
		set(true)
		_, err = a.Acquire(c, now, "other", ttl)
		if e, refused := err.(redis.Error); !refused || !strings.HasPrefix(string(e), "OOM") && !strings.Contains(string(e), ": OOM") && !strings.Contains(string(e), "not allowed when used memory") {
			t.Errorf("%s on a full %s: Acquire: %v", v.name, version, err)
		}
		if err := a.Traits().Check(c, "k"); err == nil || errors.Is(err, compat.ErrUnsafeServer) {
			t.Errorf("%s on a full %s: Check: %v; it will be safe again", v.name, version, err)
		}
		_, extended := steps.Extend(a, c, now, l, ttl)
		released := steps.Release(a, c, l)
		if stuck := v.name == "watched" && refuses; !stuck && (extended != nil || released != nil) {
			t.Errorf("%s on a full %s: %v, %v", v.name, version, extended, released)
		} else if stuck {
			for _, err := range []error{extended, released} {
				if err == nil || errors.Is(err, compat.ErrLost) {
					t.Errorf("%s on a full %s: %v; want the server's refusal", v.name, version, err)
				}
			}
		}
		set(false)
		if released != nil {
			if err := steps.Release(a, c, l); err != nil {
				t.Errorf("%s on %s with room again: %v", v.name, version, err)
			}
		}
	}
}

// A fence is drawn in a MULTI, which a server may refuse to run: nothing is
// taken then.
func TestAbortedExec(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	c := steps.Dial(s)
	do(t, c, "WATCH", "w")
	do(t, c, "SET", "w", "touched")
	a := setlock.Watched{Options: setlock.Options{Fence: true}}
	if _, err := a.Acquire(c, s.Now(), "k", ttl); !errors.Is(err, compat.ErrAborted) {
		t.Errorf("under another's WATCH: %v, want ErrAborted", err)
	}
	if n, _ := redis.Int(c.Do("EXISTS", "k")); n != 0 {
		t.Error("the key was made")
	}
}
