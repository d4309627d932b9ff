package oldredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// do runs a command, written as one line, and returns its reply as a line.
func do(t *testing.T, c redis.Conn, line string) string {
	t.Helper()
	f := strings.Fields(line)
	args := make([]any, len(f)-1)
	for i, a := range f[1:] {
		args[i] = a
	}
	reply, err := c.Do(f[0], args...)
	if _, answered := err.(redis.Error); err != nil && !answered {
		return "broken: " + err.Error()
	}
	return show(reply)
}

// talk runs lines of the form "command -> reply", where a name and a colon before the command
// choose the connection.
func talk(t *testing.T, s *Server, script string) {
	t.Helper()
	conns := make(map[string]redis.Conn)
	for _, line := range strings.Split(strings.TrimSpace(script), "\n") {
		line = strings.TrimSpace(line)
		cmd, want, _ := strings.Cut(line, " -> ")
		who, cmd, named := strings.Cut(cmd, ": ")
		if !named {
			who, cmd = "", who
		}
		if conns[who] == nil {
			conns[who] = s.Dial()
		}
		if got := do(t, conns[who], cmd); got != want {
			t.Errorf("%s: %s -> %s, want %s", s.Version(), cmd, got, want)
		}
	}
}

// TestConnBehavesLikeRedigo makes the same calls on a Conn and on redigo's connection, and compares
// everything that they return.
func TestConnBehavesLikeRedigo(t *testing.T) {
	for _, version := range []string{"1.2", "2.4", "7.0"} {
		t.Run(version, func(t *testing.T) {
			near := Run(t, version)
			far := Run(t, version)
			addr := must.Get(far.Listen("127.0.0.1:0"))(t)
			over := must.Get(redis.Dial("tcp", addr.String()))(t)
			defer over.Close()
			compareCalls(t, near.Dial(), over)
		})
	}
}

func compareCalls(t *testing.T, a, b redis.Conn) {
	r := rand.New(rand.NewPCG(1, 2))
	commands := [][]any{
		{"SET", "k", 7}, {"GET", "k"}, {"GETSET", "k", []byte("x")}, {"INCR", "k"}, {"DEL", "k"}, {"LPUSH", "l", nil},
		{"LRANGE", "l", 0, -1}, {"GET", "l"}, {"MULTI"}, {"EXEC"}, {"DISCARD"}, {"NOSUCH", true}, {"EXPIRE", "k", int64(9)},
		{"SETNX", "k", 1.5}, {"WATCH", "k"}, {"PING"}, {"MGET", "k", "none"}, {"SET"}, {"ZADD", "z", 1, "m"}, {"TYPE", "l"},
	}
	flushed, sent := 0, 0
	for i := range 3000 {
		cmd := commands[r.IntN(len(commands))]
		var call func(c redis.Conn) (any, error)
		what := fmt.Sprint(cmd)
		switch n := r.IntN(10); {
		case n < 4:
			call = func(c redis.Conn) (any, error) { return c.Do(cmd[0].(string), cmd[1:]...) }
			flushed, sent = 0, 0
		case n < 7:
			what = "send " + what
			call = func(c redis.Conn) (any, error) { return nil, c.Send(cmd[0].(string), cmd[1:]...) }
			sent++
		case n < 8:
			what = "flush"
			call = func(c redis.Conn) (any, error) { return nil, c.Flush() }
			flushed, sent = flushed+sent, 0
		case n < 9 && flushed > 0:
			what = "receive"
			call = func(c redis.Conn) (any, error) { return c.Receive() }
			flushed--
		default:
			what = "do"
			call = func(c redis.Conn) (any, error) { return c.Do("") }
			flushed, sent = 0, 0
		}
		ra, ea := call(a)
		rb, eb := call(b)
		if show(ra) != show(rb) || fmt.Sprint(ea) != fmt.Sprint(eb) {
			t.Fatalf("call %d, %s: %s, %v; redigo: %s, %v", i, what, show(ra), ea, show(rb), eb)
		}
	}
}

func TestConnContext(t *testing.T) {
	s := Run(t, "2.4")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()

	c := s.Dial()
	if _, err := redis.DoContext(c, cancelled, "INCR", "ran"); !errors.Is(err, context.Canceled) || c.Err() == nil {
		t.Errorf("cancelled: %v, connection %v", err, c.Err())
	}
	c = s.Dial()
	if _, err := redis.DoContext(c, late, "INCR", "ran"); !errors.Is(err, context.DeadlineExceeded) || c.Err() == nil {
		t.Errorf("late: %v, connection %v", err, c.Err())
	}
	if got := do(t, s.Dial(), "GET ran"); got != `"1"` {
		t.Errorf("the cancelled command ran and the late one did not: got %s", got)
	}
	if _, err := s.GetContext(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("GetContext: %v", err)
	}
}

func TestConnAfterClose(t *testing.T) {
	s := Run(t, "2.4")
	c := s.Dial()
	c.Do("WATCH", "k")
	must.Do(t, c.Close())
	if _, err := c.Do("GET", "k"); err == nil || c.Err() == nil || c.Send("GET", "k") == nil || c.Flush() == nil {
		t.Error("a closed connection works")
	}
	if _, err := s.Dial().Receive(); err == nil {
		t.Error("Receive returned without anything sent")
	}
}

func TestListenCloses(t *testing.T) {
	s := MustNew("2.4", Options{})
	addr := must.Get(s.Listen("127.0.0.1:0"))(t)
	c := must.Get(redis.Dial("tcp", addr.String()))(t)
	defer c.Close()
	if got := do(t, c, "PING"); got != "PONG" {
		t.Error(got)
	}
	s.Close()
	if _, err := c.Do("PING"); err == nil {
		t.Error("a closed server answers")
	}
	if _, err := s.Dial().Do("PING"); err == nil {
		t.Error("a closed server answers in the process")
	}
	if _, err := s.Listen("127.0.0.1:0"); err == nil {
		t.Error("a closed server listens")
	}
}

func TestQuit(t *testing.T) {
	talk(t, Run(t, "2.0"), `QUIT -> broken: EOF`)
	talk(t, Run(t, "2.2"), `
		QUIT -> OK
		PING -> broken: EOF`)
}

func TestBadProtocol(t *testing.T) {
	s := Run(t, "2.4")
	addr := must.Get(s.Listen("127.0.0.1:0"))(t)
	c := dialRaw(t, addr.String())
	io.WriteString(c, "*1\r\n:4\r\n")
	answer, _ := io.ReadAll(c)
	if got, want := string(answer), "-ERR Protocol error: expected '$'\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	c = dialRaw(t, addr.String())
	io.WriteString(c, "SET k v\r\nGET k\r\nQUIT\r\n")
	answer, _ = io.ReadAll(c)
	if got, want := string(answer), "+OK\r\n$1\r\nv\r\n+OK\r\n"; got != want {
		t.Errorf("inline: got %q, want %q", got, want)
	}
}

// The key has expired when it is watched, the watcher's own read reaps it, and another client then
// sets it: EXEC aborts in every version.
func TestWatchOfUnreapedKeyThatIsTaken(t *testing.T) {
	for _, v := range Versions() {
		if v == "1.2" || v == "2.0" {
			continue
		}
		s := Run(t, v)
		c, other := s.Dial(), s.Dial()
		do(t, other, "SETEX k 1 old")
		s.AdvanceLazy(3 * time.Second)
		do(t, c, "WATCH k")
		do(t, c, "GET k")
		do(t, other, "SETEX k 10 new")
		do(t, c, "MULTI")
		do(t, c, "SETEX k 10 mine")
		if got := do(t, c, "EXEC"); got != show(nil) {
			t.Errorf("%s: EXEC answered %v, want nil", v, got)
		}
	}
}
