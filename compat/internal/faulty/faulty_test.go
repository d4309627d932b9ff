package faulty_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var background = context.Background()

// inBubble runs f in virtual time, with a network in front of a server.
func inBubble(t *testing.T, f func(t *testing.T, n *faulty.Network, s *oldredis.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := must.Get(oldredis.New("7.0", oldredis.Options{Clock: clock.New()}))(t)
		defer s.Close()
		f(t, new(faulty.Network), s)
	})
}

func dial(t *testing.T, n *faulty.Network, p faulty.Pool) redis.Conn {
	t.Helper()
	c := must.Get(n.Pool(p).GetContext(background))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// incremented sends three INCR of k in one write.
func incremented(c redis.Conn) (any, error) {
	for range 2 {
		if err := c.Send("INCR", "k"); err != nil {
			return nil, err
		}
	}
	return c.Do("INCR", "k")
}

func value(s *oldredis.Server) int {
	n, _ := redis.Int(s.Dial().Do("GET", "k"))
	return n
}

// A loss of the second of three commands in a write loses the third, too.
func TestLoss(t *testing.T) {
	own := errors.New("its own")
	for _, c := range []struct {
		fate     faulty.Fate
		ran, end int // the commands that have run: at once, and after DeliverLate
		err      error
	}{
		{faulty.Fate{}, 3, 3, nil},
		{faulty.Fate{Loss: faulty.LostRequest}, 1, 1, io.ErrUnexpectedEOF},
		{faulty.Fate{Loss: faulty.LostReply}, 2, 2, io.ErrUnexpectedEOF},
		{faulty.Fate{Loss: faulty.LostReply, Err: own}, 2, 2, own},
		{faulty.Fate{Loss: faulty.LateRequest}, 1, 3, io.ErrUnexpectedEOF},
	} {
		inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
			conn := dial(t, n, s)
			n.Expect(c.fate.At(2))
			reply, err := incremented(conn)
			if !errors.Is(err, c.err) || c.err == nil && reply != int64(3) || conn.Err() != err || value(s) != c.ran {
				t.Errorf("%s: %v, %v, the connection's %v, and %d ran", c.fate.Loss, reply, err, conn.Err(), value(s))
			}
			if n.Open() != 1 || c.err != nil && s.Cut(0) != (c.fate.Loss == faulty.LateRequest) {
				t.Errorf("%s: %d connections, or one that is lost is open for the server", c.fate.Loss, n.Open())
			}
		})
		inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
			conn := dial(t, n, s)
			n.Expect(c.fate.At(2))
			incremented(conn) //nolint:errcheck // see above
			conn.Close()
			conn.Close()
			n.DeliverLate()
			n.DeliverLate()
			if value(s) != c.end || n.Open() != 0 {
				t.Errorf("%s: in the end %d ran, %d connections are open", c.fate.Loss, value(s), n.Open())
			}
			if _, err := conn.Do("INCR", "k"); err == nil {
				t.Error("a connection that is closed answers")
			}
		})
	}
}

// A client waits for a slow reply. For a reply that never comes, it waits until its context, a timeout or its
// connection ends. A request delayed Forever never ran, a request whose reply is delayed Forever ran, and a late
// request runs later.
func TestPatience(t *testing.T) {
	const long = 3 * time.Second
	for name, c := range map[string]struct {
		do   func(c redis.Conn) error
		want error
	}{
		"context": {func(c redis.Conn) error {
			ctx, cancel := context.WithTimeout(background, long)
			defer cancel()
			_, err := redis.DoContext(c, ctx, "INCR", "k")
			return err
		}, context.DeadlineExceeded},
		"timeout": {func(c redis.Conn) error {
			_, err := redis.DoWithTimeout(c, long, "INCR", "k")
			return err
		}, os.ErrDeadlineExceeded},
		"receiving, context": {func(c redis.Conn) error {
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(long, cancel)
			c.Send("INCR", "k") //nolint:errcheck // Flush says the same
			c.Flush()           //nolint:errcheck // nor this
			_, err := redis.ReceiveContext(c, ctx)
			return err
		}, context.Canceled},
		"receiving, timeout": {func(c redis.Conn) error {
			c.Send("INCR", "k") //nolint:errcheck // likewise
			c.Flush()           //nolint:errcheck // likewise
			_, err := redis.ReceiveWithTimeout(c, long)
			return err
		}, os.ErrDeadlineExceeded},
		"connection": {func(c redis.Conn) error {
			time.AfterFunc(long, func() { c.Close() })
			_, err := c.Do("INCR", "k")
			return err
		}, nil},
	} {
		for _, f := range []struct {
			fate     faulty.Fate
			ran, end int
		}{
			{faulty.Fate{Before: faulty.Forever}, 0, 0},
			{faulty.Fate{After: faulty.Forever}, 1, 1},
			{faulty.Fate{Before: faulty.Forever, Loss: faulty.LateRequest}, 0, 1},
		} {
			inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
				n.Expect(f.fate.Always())
				conn, began := dial(t, n, s), time.Now()
				err := c.do(conn)
				wrong := err == nil || conn.Err() == nil || c.want != nil && !errors.Is(err, c.want)
				if wrong || time.Since(began) != long || value(s) != f.ran {
					t.Errorf("%s: %v after %v, %d ran", name, err, time.Since(began), value(s))
				}
				if n.DeliverLate(); value(s) != f.end {
					t.Errorf("%s: in the end %d ran, want %d", name, value(s), f.end)
				}
			})
		}
		inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
			n.Expect(faulty.Fate{Before: time.Second, After: time.Second}.Always())
			began := time.Now()
			if err := c.do(dial(t, n, s)); err != nil || time.Since(began) != 2*time.Second {
				t.Errorf("%s: what is slow: %v after %v", name, err, time.Since(began))
			}
		})
	}
}

// A context that has ended before the call ends the connection, as in redigo. A cancelled call still sends.
func TestDoneContext(t *testing.T) {
	inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
		done, cancel := context.WithCancel(background)
		cancel()
		conn := dial(t, n, s)
		conn.Send("MULTI")     //nolint:errcheck // Do says it
		conn.Send("INCR", "k") //nolint:errcheck // likewise
		if _, err := redis.DoContext(conn, done, "EXEC"); err != context.Canceled || conn.Err() != err || value(s) != 1 {
			t.Errorf("Do: %v, the connection's %v, and %d ran", err, conn.Err(), value(s))
		}
		n.Expect(nil)
		late, end := context.WithTimeout(background, 0)
		defer end()
		conn = dial(t, n, s)
		if _, err := redis.DoContext(conn, late, "INCR", "k"); err != context.DeadlineExceeded || conn.Err() != err {
			t.Errorf("Do: %v, the connection's %v", err, conn.Err())
		}
		conn = dial(t, n, s)
		if _, err := redis.ReceiveContext(conn, done); !errors.Is(err, context.Canceled) || conn.Err() == nil {
			t.Errorf("Receive: %v, the connection's %v", err, conn.Err())
		}
		if n.Count() != 0 {
			t.Errorf("%v was sent", n.Sent())
		}
	})
}

// A blocking client learns the end of its own patience.
func TestBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
		_, err := redis.DoWithTimeout(dial(t, n, s), time.Second, "BLPOP", "list", 0)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if reply, err := dial(t, n, s).Do("BLPOP", "list", 5); reply != nil || err != nil {
			t.Errorf("%v, %v", reply, err)
		}
	})
}

// A hook refuses, answers or changes a command, or acts before and after it.
func TestServe(t *testing.T) {
	inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
		conn := dial(t, n, s)
		full := redis.Error("OOM command not allowed")
		n.Expect(faulty.Answer(full).Of("INCR"))
		if reply, err := incremented(conn); reply != full || err != full || conn.Err() != nil || value(s) != 0 {
			t.Errorf("refused: %v, %v", reply, err)
		}
		n.Expect(faulty.Answer(int64(7)).Of("WAIT"))
		if reply, err := conn.Do("WAIT", 1, 0); reply != int64(7) || err != nil {
			t.Errorf("answered: %v, %v", reply, err)
		}
		n.Expect(faulty.Fate{Serve: func(run func(...any) any) any {
			if e, ok := run("NOSUCH").(redis.Error); !ok || !strings.Contains(string(e), "unknown command") {
				t.Errorf("another command: %v", e)
			}
			return run("SET", "k", 41).(string) + fmt.Sprint(run())
		}}.Of("INCR"))
		if reply, err := conn.Do("INCR", "k"); reply != "OK42" || err != nil {
			t.Errorf("changed: %v, %v", reply, err)
		}
		n.Expect(faulty.Answer(io.EOF).Of("PING"))
		if _, err := conn.Do("PING"); err != io.EOF || conn.Err() != io.EOF {
			t.Errorf("broken: %v, the connection's %v", err, conn.Err())
		}
		conn = dial(t, n, s)
		other := s.Dial()
		n.Expect(faulty.First(func() { other.Do("SET", "k", "before") }).Of("GET")) //nolint:errcheck
		if reply, err := redis.String(conn.Do("GET", "k")); reply != "before" || err != nil {
			t.Errorf("before: %v, %v", reply, err)
		}
		over := faulty.Over(s.Dial(), faulty.Then(func() { other.Do("SET", "k", "after") }).Of("SET")) //nolint:errcheck
		over.Do("SET", "k", "mine")                                                                    //nolint:errcheck
		if reply, err := redis.String(over.Do("GET", "k")); reply != "after" || err != nil {
			t.Errorf("after: %v, %v", reply, err)
		}
		over.Close()
	})
}

// Messages are numbered over all connections, and name the commands of their write.
func TestMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
		var told []string
		a, b := dial(t, n, s), dial(t, n, s)
		n.Expect(func(m faulty.Message) faulty.Fate {
			told = append(told, fmt.Sprint(m.N, m.At, m.Write, " ", m))
			return faulty.Fate{}
		})
		a.Do("SET", "k", 1) //nolint:errcheck
		a.Send("GET", "k")  //nolint:errcheck
		a.Send("DEL", "k")  //nolint:errcheck
		b.Do("PING")        //nolint:errcheck
		all, err := a.Do("EXISTS", "k")
		want := "1 0 [SET] SET k 1; 2 0 [PING] PING; 3 0 [GET DEL EXISTS] GET k; " +
			"4 1 [GET DEL EXISTS] DEL k; 5 2 [GET DEL EXISTS] EXISTS k"
		if got := strings.Join(told, "; "); got != want || all != int64(0) || err != nil {
			t.Errorf("%s\n%v, %v", got, all, err)
		}
		if n.Count() != 5 || n.Writes() != 3 || n.Names() != "SET PING GET DEL EXISTS" || n.Sent()[3].String() != "DEL k" {
			t.Errorf("%d messages in %d writes: %s, %v", n.Count(), n.Writes(), n.Names(), n.Sent())
		}
		if n.Expect(nil); n.Count() != 0 || n.Writes() != 0 {
			t.Errorf("counted on")
		}
	})
}

// A cut network lets nothing through until Mend. A fate cuts the network in the same way.
func TestCut(t *testing.T) {
	for name, cut := range map[string]func(n *faulty.Network, c redis.Conn){
		"cut": func(n *faulty.Network, _ redis.Conn) { n.Cut() },
		"by a fate": func(n *faulty.Network, c redis.Conn) {
			n.Expect(faulty.Fate{Cut: true}.Of("PING"))
			if _, err := c.Do("PING"); err != nil {
				t.Error(err)
			}
		},
	} {
		for end, mend := range map[string]func(n *faulty.Network){
			"mended": (*faulty.Network).Mend, "cleared": (*faulty.Network).Clear,
			"begun anew": func(n *faulty.Network) { n.Expect(nil) },
		} {
			inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
				conn := dial(t, n, s)
				cut(n, conn)
				if _, err := incremented(conn); !errors.Is(err, io.ErrUnexpectedEOF) || value(s) != 0 {
					t.Errorf("%s: %v", name, err)
				}
				if _, err := n.Pool(s).GetContext(background); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("%s: dialled: %v", name, err)
				}
				mend(n)
				if _, err := incremented(dial(t, n, s)); err != nil || value(s) != 3 {
					t.Errorf("%s, then %s: %v", name, end, err)
				}
			})
		}
	}
}

// A network refuses a dial, or lets it hang until its context ends or Clear.
func TestDial(t *testing.T) {
	inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
		own := errors.New("its own")
		n.OnDial(func(context.Context) error { return own })
		get := n.Get(func(ctx context.Context, key string) (redis.Conn, error) { return s.GetContext(ctx) })
		if _, err := get(background, "k"); err != own {
			t.Error(err)
		}
		n.OnDial(faulty.Hang)
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if _, err := get(ctx, "k"); err != context.DeadlineExceeded {
			t.Error(err)
		}
		time.AfterFunc(time.Minute, func() {
			if n.Hanging() != 1 {
				t.Errorf("%d dials hang", n.Hanging())
			}
			n.Clear()
		})
		if _, err := get(background, "k"); err != syscall.ECONNREFUSED {
			t.Error(err)
		}
		c, err := get(background, "k")
		if err != nil || n.Open() != 1 {
			t.Fatalf("%v, %d open", err, n.Open())
		}
		if c.Close(); n.Open() != 0 {
			t.Errorf("%d open", n.Open())
		}
	})
}

// A connection with its own Carrier has a read timeout, and Break breaks it from outside.
func TestCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ends []bool
		c := faulty.Carried(func(ctx context.Context, write [][]any) ([]any, error) {
			if write[0][0] == "PING" {
				return []any{"PONG"}, nil
			}
			return nil, faulty.Pause(ctx, faulty.Forever)
		}, func(broke bool) { ends = append(ends, broke) })
		c.ReadTimeout = time.Minute
		if reply, err := c.Do("PING"); reply != "PONG" || err != nil {
			t.Errorf("%v, %v", reply, err)
		}
		began, why := time.Now(), errors.New("its own")
		time.AfterFunc(time.Second, func() { c.Break(why) })
		if _, err := c.Do("GET", "k"); err != why || c.Err() != why || time.Since(began) != time.Second {
			t.Errorf("broken: %v after %v", err, time.Since(began))
		}
		synctest.Wait() // Break has called end
		c.Close()
		if fmt.Sprint(ends) != "[true false]" {
			t.Errorf("told %v, want that it broke and was closed", ends)
		}
		c = faulty.Carried(func(ctx context.Context, _ [][]any) ([]any, error) {
			return nil, faulty.Pause(ctx, faulty.Forever)
		}, func(bool) {})
		c.ReadTimeout = time.Minute
		if _, err := c.Do("GET", "k"); err != os.ErrDeadlineExceeded {
			t.Errorf("the read timeout: %v", err)
		}
	})
}

// One goroutine sends while another receives.
func TestSendWhileReceiving(t *testing.T) {
	inBubble(t, func(t *testing.T, n *faulty.Network, s *oldredis.Server) {
		n.Expect(faulty.Fate{After: time.Millisecond}.Always())
		conn := dial(t, n, s)
		flushed := make(chan struct{}, 100)
		var sender sync.WaitGroup
		sender.Go(func() {
			for range cap(flushed) {
				conn.Send("INCR", "k") //nolint:errcheck // Receive says it
				conn.Flush()           //nolint:errcheck // likewise
				flushed <- struct{}{}
				time.Sleep(300 * time.Microsecond)
			}
		})
		for i := range cap(flushed) {
			<-flushed
			if reply, err := conn.Receive(); reply != int64(i+1) || err != nil {
				t.Fatalf("%v, %v", reply, err)
			}
		}
		sender.Wait()
		if _, err := conn.Receive(); err == nil || conn.Err() != nil {
			t.Errorf("nothing was sent: %v, %v", err, conn.Err())
		}
	})
}

// A real connection that broke is closed: its pool does not provide it again, in a transaction or not.
func TestRealServer(t *testing.T) {
	addr := realredis.Start(t)
	pool := &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
	defer pool.Close()
	for _, loss := range []faulty.Loss{faulty.LostRequest, faulty.LostReply} {
		n := new(faulty.Network)
		conn := dial(t, n, pool)
		n.Expect(faulty.Fate{Loss: loss}.Of("SET"))
		conn.Send("WATCH", "k") //nolint:errcheck // Do says it
		conn.Send("MULTI")      //nolint:errcheck // likewise
		_, err := conn.Do("SET", "k", "v")
		conn.Close()
		if !errors.Is(err, io.ErrUnexpectedEOF) || pool.ActiveCount() != 0 {
			t.Errorf("%s: %v, %d connections", loss, err, pool.ActiveCount())
		}
		n.Expect(faulty.Fate{Before: faulty.Forever}.Of("PING"))
		conn = dial(t, n, pool)
		if _, err := redis.DoWithTimeout(conn, time.Millisecond, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("swallowed: %v", err)
		}
		var timeout net.Error
		if err := conn.Err(); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("swallowed: %v", err)
		}
		conn.Close()
		conn = dial(t, n, pool)
		if reply, err := redis.String(conn.Do("ECHO", "here")); reply != "here" || err != nil {
			t.Errorf("%q, %v", reply, err)
		}
		if conn.Close(); pool.IdleCount() != 1 || n.Open() != 0 {
			t.Errorf("%d idle connections, %d open", pool.IdleCount(), n.Open())
		}
	}
}
