package wire

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/internal/must"
)

func over(c redis.Conn) *Conn {
	w := &Conn{Conn: c}
	w.Begin(context.Background())
	return w
}

func send(c *Conn, cmds ...[]any) ([]any, error) {
	w := c.Compose(Arguments(cmds))
	All(&w, cmds)
	return w.Replies()
}

func transaction(c *Conn, cmds ...[]any) ([]any, error) {
	w := c.Compose(Arguments(cmds))
	Multi(&w, cmds)
	return w.Exec()
}

// silent returns a connection to a server that never answers.
func silent(t *testing.T) redis.Conn {
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	go func() {
		for b := make([]byte, 64); ; {
			if _, err := there.Read(b); err != nil {
				return
			}
		}
	}()
	return redis.NewConn(here, 0, 0)
}

// The error of a step tells the caller's end and our limit apart.
func TestLimits(t *testing.T) {
	within := func(ctx context.Context) error {
		c := &Conn{Conn: silent(t)}
		c.Begin(ctx)
		_, err := c.Do("GET", "k")
		if err == nil || c.Return() {
			t.Errorf("a reply that never came: %v", err)
		}
		return err
	}
	const least = 5 * time.Millisecond
	cancelled, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(least, cancel)
	defer timer.Stop()
	bounded, done := limit.Within(context.Background(), clock.New(), least)
	defer done()
	for name, test := range map[string]struct {
		ctx  context.Context
		want error
	}{
		"the caller's cancellation":                   {cancelled, context.Canceled},
		"a limit of ours":                             {bounded, limit.ErrTimeout},
		"a limit of ours, in what can't be cancelled": {limit.Timed(context.Background(), clock.New(), least), limit.ErrTimeout},
	} {
		err := within(test.ctx)
		if !errors.Is(err, test.want) || errors.Is(err, os.ErrDeadlineExceeded) != (test.want == limit.ErrTimeout) || errors.Is(err, context.Canceled) != (test.want == context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A step of several round trips has one limit. Anew begins another limit.
func TestOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Conn{Conn: silent(t)}
		c.Begin(limit.Timed(context.Background(), clock.New(), time.Minute))
		time.Sleep(20 * time.Second)
		if left := c.left(); left != 40*time.Second {
			t.Errorf("%v are left, want 40 s", left)
		}
		ctx := limit.Timed(context.Background(), clock.New(), time.Minute)
		time.Sleep(40 * time.Second) // for a connection
		c.Begin(ctx)
		c.Silent = true
		if c.Unheard() {
			t.Error("the wait for a connection counts as a wait for an answer")
		}
		if c.Hurry(); c.left() != 10*time.Second {
			t.Errorf("in a hurry %v are left, want half of 20 s", c.left())
		}
		time.Sleep(time.Hour)
		if c.Anew(); c.left() != time.Minute {
			t.Errorf("anew it may take %v", c.left())
		}
	})
}

// A connection goes back clean or dead, whatever the server answered. On 2.2 the connection remembers a touched key
// beyond a DISCARD: the next user's EXEC would abort.
func TestReturn(t *testing.T) {
	for name, test := range map[string]struct {
		cmds   [][]any
		refuse string
		alive  bool
	}{
		"unused":                         {nil, "", true},
		"under WATCH":                    {[][]any{{"WATCH", "k"}}, "", true},
		"in MULTI":                       {[][]any{{"MULTI"}, {"SET", "k", "v"}}, "", true},
		"in MULTI under WATCH":           {[][]any{{"WATCH", "k"}, {"MULTI"}}, "", true},
		"under a WATCH that stays":       {[][]any{{"WATCH", "k"}}, "UNWATCH", false},
		"in a MULTI that it can't leave": {[][]any{{"MULTI"}}, "DISCARD", false},
	} {
		for _, version := range []string{"2.2", "2.6"} {
			var o oldredis.Options
			if test.refuse != "" {
				o.Refuse = []string{test.refuse}
			}
			s := oldredis.MustNew(version, o)
			raw := s.Dial()
			c := over(unclosed{raw.(*oldredis.Conn)})
			if _, err := send(c, test.cmds...); err != nil && len(test.cmds) > 0 {
				t.Errorf("%s on %s: %v", name, version, err)
			}
			if _, err := s.Dial().Do("SET", "k", "by another"); err != nil {
				t.Errorf("%s on %s: another: %v", name, version, err)
			}
			if alive := c.Return(); alive != test.alive {
				t.Errorf("%s on %s: alive %v, want %v", name, version, alive, test.alive)
			}
			if test.alive {
				raw.Send("MULTI")
				raw.Send("GET", "k")
				if replies, err := redis.Values(raw.Do("EXEC")); err != nil || len(replies) != 1 {
					t.Errorf("%s on %s: the next user's EXEC: %v, %v", name, version, replies, err)
				}
			}
			raw.Close()
			s.Close()
		}
	}
}

// unclosed stays open at Close, as a pool's connection does.
type unclosed struct{ *oldredis.Conn }

func (unclosed) Close() error { return nil }

// Replies returns each reply in its place, an error too, for one command or several.
func TestReplies(t *testing.T) {
	s := oldredis.Run(t, "7.0")
	c := over(s.Dial())
	defer c.Return()
	if r, err := send(c, []any{"SET", "k", "v"}); err != nil || len(r) != 1 || r[0] != "OK" {
		t.Errorf("alone: %v, %v", r, err)
	}
	if r, err := send(c, []any{"LPUSH", "k", "v"}); err != nil || len(r) != 1 {
		t.Errorf("alone, refused: %v, %v", r, err)
	} else if _, refused := r[0].(redis.Error); !refused {
		t.Errorf("alone, refused: %v", r[0])
	}
	r, err := send(c, []any{"LPUSH", "k", "v"}, []any{"INCR", "n"})
	if err != nil || len(r) != 2 || r[1] != int64(1) {
		t.Fatalf("together: %v, %v", r, err)
	}
	if _, refused := r[0].(redis.Error); !refused {
		t.Errorf("together, refused: %v", r[0])
	}
	for range 2 * len(c.single) { // more than there is room for
		if r, err := send(c, []any{"GET", "k"}); err != nil || len(r) != 1 {
			t.Errorf("alone again: %v, %v", r, err)
		}
	}
	many := make([][]any, len(c.args)+1) // so too
	for i := range many {
		many[i] = []any{"INCR", "n"}
	}
	if r, err := send(c, many...); err != nil || len(r) != len(many) || r[len(many)-1] != int64(len(many)+1) {
		t.Errorf("many: %v, %v", r, err)
	}
}

// Transacted tells done, aborted and refused transactions apart.
func TestExec(t *testing.T) {
	s := oldredis.Run(t, "2.4")
	c, other := over(s.Dial()), s.Dial()
	defer other.Close()
	defer c.Return()
	if r, err := transaction(c, []any{"SET", "k", "v"}, []any{"INCR", "n"}); err != nil || len(r) != 2 || r[1] != int64(1) {
		t.Errorf("done: %v, %v", r, err)
	}
	r, err := transaction(c, []any{"LPUSH", "k", "x"}, []any{"INCR", "n"})
	if err != nil || len(r) != 2 || r[1] != int64(2) || answer.First(r[:1]) == nil {
		t.Errorf("with an error inside: %v, %v", r, err)
	}
	c.Do("WATCH", "k")
	other.Do("SET", "k", "another's")
	if r, err := transaction(c, []any{"SET", "k", "v"}); r != nil || err != nil {
		t.Errorf("touched: %v, %v", r, err)
	}
	s.SetMaxMemoryReached(true) // EXEC is refused, and the server stays in MULTI
	if r, err := transaction(c, []any{"SET", "k", "v"}); r != nil || err == nil {
		t.Errorf("refused: %v, %v", r, err)
	}
	s.SetMaxMemoryReached(false)
	if got, err := redis.String(c.Do("GET", "k")); got != "another's" {
		t.Errorf("the key holds %q afterwards: %v", got, err)
	}
}

// A step that ends in the middle of a command leaves a goroutine of redigo behind, still writing. No other
// write may run beside it: neither of the same step, nor of the pool at the connection's return. (The race
// detector sees such a write.)
func TestNothingIsSentBesideWhatWasLeft(t *testing.T) {
	for _, first := range [][]any{{"WATCH", "k"}, {"MULTI"}} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			pool := &redis.Pool{Dial: func() (redis.Conn, error) { return redis.NewConn(here, 0, 0), nil }}
			defer pool.Close()
			go func() { // answers the first command, and reads no more
				there.Read(make([]byte, 100))  //nolint:errcheck // all of a command
				there.Write([]byte("+OK\r\n")) //nolint:errcheck
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c := &Conn{Conn: pool.Get()}
			c.Begin(ctx)
			must.Get(c.Do(first[0].(string), first[1:]...))(t)
			if _, err := c.Do("GET", "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if _, err := c.Do("DEL", "k"); !errors.Is(err, context.DeadlineExceeded) { // as a check that tidies up does
				t.Error(err)
			}
			if err := c.Send("DEL", "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if _, err := c.Receive(); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if c.Return() {
				t.Error("it is alive")
			}
			synctest.Wait()
		})
	}
}
