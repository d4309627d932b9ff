// Package adaptertest tests a Source over another client: by the conformance suite on a real
// redis-server and on the servers of SETNXLOCK_TEST_REDIS. A connection in an unknown state must
// never reach the next user.
package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/conformance"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/rwlock"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// An Open returns a Source over a client of the server at addr, with size connections at most. It
// ends the client with the test.
type Open func(t testing.TB, addr string, size int) compat.Source

// size is more connections than the suite uses at a time.
const size = 256

// Conformance runs the suite over one lock of each kind, and over one with pinned connections.
func Conformance(t *testing.T, open Open) {
	for name, addr := range servers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := open(t, addr, size)
			v := version(t, source)
			for _, l := range []struct {
				name string
				lock protocol.Algorithm
				keep int
			}{
				{"getset:classic", getsetlock.Classic{Options: getsetlock.Options{Dialect: getsetlock.Millis}}, 0},
				{"tx:guarded", txlock.Guarded{Options: txlock.Options{Fence: true}}, 0},
				{"tx:renamed", txlock.Renamed{Options: txlock.Options{Fence: true}}, 0},
				{"tx:renamed/kept", txlock.Renamed{Options: txlock.Options{Fence: true}}, 2},
				{"set:ifeq", setlock.IfEq{Options: setlock.Options{Fence: true}}, 0},
				{"set:ifeq/kept", setlock.IfEq{Options: setlock.Options{Fence: true}}, 2},
				{"set:lua", setlock.Lua{Options: setlock.Options{Fence: true}}, 0},
				{"set:lua/kept", setlock.Lua{Options: setlock.Options{Fence: true}}, 2},
			} {
				t.Run(l.name, func(t *testing.T) {
					t.Parallel()
					conformance.Run(t, conformance.Lock{
						Name: l.name, Server: name, Version: v, Sources: []compat.Source{source},
						New: func(wrap func(compat.Source) compat.Source, o compat.Options) *compat.Locker {
							from := wrap(source)
							from.Keep = l.keep
							return compat.NewOn(from, l.lock, o)
						},
						Fence: strings.HasPrefix(l.name, "tx") || strings.HasPrefix(l.name, "set"), Ambiguous: strings.HasPrefix(l.name, "getset"),
						TTL: 2 * time.Second,
					})
				})
			}
		})
	}
}

// servers returns the addresses of the servers.
func servers(t *testing.T) map[string]string {
	all := map[string]string{"real-redis-server": realredis.Start(t)}
	for addr := range strings.SplitSeq(os.Getenv("SETNXLOCK_TEST_REDIS"), ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			all["at-"+addr] = addr
		}
	}
	return all
}

func get(t testing.TB, s compat.Source) redis.Conn {
	t.Helper()
	return must.Get(s.Get(context.Background(), "k"))(t)
}

func version(t testing.TB, s compat.Source) string {
	t.Helper()
	c := get(t, s)
	defer c.Close()
	text := must.Get(redis.String(c.Do("INFO")))(t)
	_, after, _ := strings.Cut(text, "redis_version:")
	v, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(v)
}

// RESP3 runs the suite, and checks replies unknown in RESP2: scores in pairs, a map, a text with its format.
func RESP3(t *testing.T, open Open) {
	Conformance(t, open)
	s, ctx := open(t, realredis.Start(t), 4), context.Background()
	readers, writers := compat.NewOn(s, rwlock.Read{}, compat.Options{}), compat.NewOn(s, rwlock.Write{}, compat.Options{})
	first := must.Get(readers.TryLock(ctx, "rw", time.Minute))(t)
	if _, err := readers.TryLock(ctx, "rw", time.Minute); err != nil {
		t.Errorf("a second reader: %v", err)
	}
	if _, err := writers.TryLock(ctx, "rw", time.Minute); !errors.Is(err, compat.ErrHeld) {
		t.Errorf("a writer beside them: %v, want ErrHeld", err)
	}
	if err := first.Extend(ctx, time.Minute); err != nil {
		t.Errorf("an extension: %v", err)
	}
	if st, err := readers.Inspect(ctx, "rw"); err != nil || len(st.Holders) != 2 {
		t.Errorf("%+v, %v", st, err)
	}
	if r, err := probe.Ask(ctx, s, probe.Options{}); err != nil || r.Has(probe.WarnConfigUnknown) || r.Version == "" || r.Role != "master" {
		t.Errorf("the probe: %q, %q, warnings %v, %v", r.Version, r.Role, r.Warnings, err)
	}
}

// Connections checks the engine's assumptions about a connection.
func Connections(t *testing.T, open Open) {
	for name, check := range map[string]func(t *testing.T, open Open){
		"replies":                                   replies,
		"one at a time":                             oneAtATime,
		"broken by a context":                       brokenByAContext,
		"returned in MULTI":                         returnedInMulti,
		"a server that does not answer":             noAnswer,
		"shared, and a server that does not answer": sharedNoAnswer,
		"a server that has gone":                    gone,
	} {
		t.Run(name, func(t *testing.T) { check(t, open) })
	}
}

func replies(t *testing.T, open Open) {
	c := get(t, open(t, realredis.Start(t), 1))
	defer c.Close()
	c.Send("MULTI")              //nolint:errcheck // Do tells
	c.Send("SET", "k", "v")      //nolint:errcheck
	c.Send("GET", "k")           //nolint:errcheck
	c.Send("INCR", "k")          //nolint:errcheck
	c.Send("GET", []byte("no"))  //nolint:errcheck
	c.Send("STRLEN", "k")        //nolint:errcheck
	c.Send("EXISTS", int64(500)) //nolint:errcheck
	r, err := redis.Values(c.Do("EXEC"))
	if err != nil || len(r) != 6 {
		t.Fatalf("EXEC: %v, %v", r, err)
	}
	value, bytes := r[1].([]byte)
	_, refused := r[2].(redis.Error)
	if r[0] != "OK" || !bytes || string(value) != "v" || !refused || r[3] != nil || r[4] != int64(1) || r[5] != int64(0) {
		t.Errorf("EXEC: %#v", r)
	}
	if _, err := c.Do("INCR", "k"); !strings.HasPrefix(errText(err), "ERR value is not an integer") || c.Err() != nil {
		t.Errorf("an error of the server: %v, and the connection %v", err, c.Err())
	}
	for _, text := range []string{"OOM full, on @user_script:1", "ERR DISCARD without MULTI"} {
		if _, err := c.Do("EVAL", "return redis.error_reply(ARGV[1])", 0, "-"+text); errText(err) != text {
			t.Errorf("an error that says %q: %v", text, err)
		}
	}
	defer readonly(t, c)
	c.Send("SET", "k", "w") //nolint:errcheck // Do tells
	c.Send("INCR", "k")     //nolint:errcheck
	all, err := redis.Values(c.Do(""))
	if err != nil || len(all) != 2 || all[0] != "OK" {
		t.Errorf("what was sent: %v, %v", all, err)
	}
}

// readonly reads the key k after a READONLY: a client may give up the connection, and must not answer nil.
func readonly(t *testing.T, c redis.Conn) {
	if _, err := c.Do("EVAL", "return redis.error_reply(ARGV[1])", 0, "-READONLY no"); errText(err) != "READONLY no" {
		t.Errorf("READONLY: %v", err)
	}
	if r, err := c.Do("GET", "k"); r == nil && err == nil {
		t.Error("after READONLY, GET is answered nil")
	}
}

func oneAtATime(t *testing.T, open Open) {
	s := open(t, realredis.Start(t), 8)
	a, b := get(t, s), get(t, s)
	defer a.Close()
	defer b.Close()
	for _, c := range []redis.Conn{a, b} {
		must.Get(c.Do("WATCH", "k"))(t)
	}
	must.Get(b.Do("SET", "k", "b"))(t)
	a.Send("MULTI")         //nolint:errcheck // Do tells
	a.Send("SET", "k", "a") //nolint:errcheck
	if r, err := a.Do("EXEC"); err != nil || r != nil {
		t.Errorf("EXEC after another connection's SET of the watched key: %v, %v", r, err)
	}
}

func brokenByAContext(t *testing.T, open Open) {
	s := open(t, realredis.Start(t), 1)
	c := get(t, s)
	must.Get(c.Do("MULTI"))(t)
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := redis.DoContext(c, done, "PING"); !errors.Is(err, context.Canceled) || c.Err() == nil {
		t.Errorf("with a context that is done: %v, and the connection %v", err, c.Err())
	}
	c.Close()
	clean(t, s)
}

func returnedInMulti(t *testing.T, open Open) {
	s := open(t, realredis.Start(t), 1)
	c := get(t, s)
	must.Get(c.Do("MULTI"))(t)
	c.Close()
	clean(t, s)
}

func noAnswer(t *testing.T, open Open) {
	server := realredis.Run(t)
	s := open(t, server.Addr, 1)
	c := get(t, s)
	must.Get(c.Do("PING"))(t)
	server.Stop()
	_, err := redis.DoWithTimeout(c, 50*time.Millisecond, "INCR", "n")
	if !errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || c.Err() == nil || protocol.OutcomeOf(err) != protocol.Unknown {
		t.Errorf("a limit that ended: %v, and the connection %v", err, c.Err())
	}
	c.Close()
	server.Continue()
	c = get(t, s)
	defer c.Close()
	if r, err := redis.String(c.Do("ECHO", "mine")); r != "mine" || err != nil {
		t.Errorf("the next user got %q, %v", r, err)
	}
}

func sharedNoAnswer(t *testing.T, open Open) {
	server := realredis.Run(t)
	s := open(t, server.Addr, 8)
	s.Keep = 2
	locks := compat.NewOn(s, setlock.Lua{}, compat.Options{Timeout: 200 * time.Millisecond})
	var keys atomic.Int64 // a lock whose outcome is unknown stays: each has its own
	cycle := func() error {
		lease, err := locks.TryLock(context.Background(), fmt.Sprint("shared:", keys.Add(1)), time.Minute)
		if err != nil {
			return err
		}
		return lease.Release(context.Background())
	}
	all := func() (errs []error) {
		errs = make([]error, 16)
		var wg sync.WaitGroup
		for g := range errs {
			wg.Go(func() {
				for range 20 {
					if errs[g] = cycle(); errs[g] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		return errs
	}
	if err := errors.Join(all()...); err != nil {
		t.Error(err)
	}
	server.Stop()
	for _, err := range all() {
		if !errors.Is(err, compat.ErrTimeout) {
			t.Errorf("while the server hangs: %v, want ErrTimeout", err)
		}
	}
	server.Continue()
	for until := time.Now().Add(10 * time.Second); ; {
		err := errors.Join(all()...)
		if err == nil || time.Now().After(until) {
			if err != nil {
				t.Errorf("when it goes on: %v", err)
			}
			break
		}
	}
	if err := locks.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func gone(t *testing.T, open Open) {
	server := realredis.Run(t)
	s := open(t, server.Addr, 1)
	c := get(t, s)
	must.Get(c.Do("PING"))(t)
	server.Kill()
	if _, err := c.Do("INCR", "n"); err == nil || protocol.OutcomeOf(err) != protocol.Unknown {
		t.Errorf("INCR over a connection that broke: %v", err)
	}
	c.Close()
	c = get(t, s)
	defer c.Close()
	if _, err := c.Do("INCR", "n"); protocol.OutcomeOf(err) != protocol.NotSent {
		t.Errorf("INCR without a server: %v, want an error that says that nothing was sent", err)
	}
}

// clean returns a connection in MULTI, and checks that its next user finds none.
func clean(t *testing.T, s compat.Source) {
	t.Helper()
	c := get(t, s)
	defer c.Close()
	if r, err := c.Do("SET", "k", "v"); r != "OK" || err != nil {
		t.Errorf("SET by the next user: %v, %v: it got a connection in MULTI", r, err)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
