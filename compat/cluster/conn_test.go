package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/internal/limit"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/txlock"
)

var fence = protocol.Aux("k", "fence")

// conn returns a connection for key whose map was right when it was learnt.
func (f *fake) conn(s *cluster.Source, key string) *protocol.Conn {
	f.t.Helper()
	c := must.Get(s.Get(context.Background(), key))(f.t)
	f.t.Cleanup(func() { c.Close() })
	return protocol.NewConn(c)
}

// seen checks what the nodes were sent since the last look, and what they answered.
func (f *fake) seen(want ...string) {
	f.t.Helper()
	f.mu.Lock()
	got := f.log
	f.log = nil
	f.mu.Unlock()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		f.t.Errorf("the nodes saw\n%s\nwant\n%s", g, w)
	}
}

func (f *fake) do(node, name string, args ...any) {
	if _, err := f.nodes[node].admin.Do(name, args...); err != nil {
		f.t.Errorf("%s %v: %v", name, args, err)
	}
}

// A write of several commands is followed as a whole, in one write; the map is
// learnt anew, and the next connection begins at the new master.
func TestMoved(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	c := f.conn(s, "k")
	f.all()
	if replies, err := c.Pipe(protocol.Cmd{"SETNX", "k", "v"}, protocol.Cmd{"GET", "k"}); err != nil || replies[0] != int64(1) || string(replies[1].([]byte)) != "v" {
		t.Errorf("%v, %v", replies, err)
	}
	f.seen("a SETNX k v → MOVED", "a GET k → MOVED", "b SETNX k v → 1", "b GET k → v")
	if f.maps != 2 {
		t.Errorf("the map was asked for %d times, want 2", f.maps)
	}
	must.Get(c.Do("GET", "k"))(t)
	must.Get(f.conn(s, "k").Do("GET", "k"))(t)
	f.seen("b GET k → v", "b GET k → v")
}

// A key that was moved ahead of its slot is asked for with ASKING, this once
// each time; one that was not is found where it was.
func TestAsk(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	c := f.conn(s, "k")
	f.do(a, "SET", "stays", "1")
	f.begin()
	for range 2 {
		must.Get(c.Do("SETNX", "k", "v"))(t)
		must.Get(c.Do("GET", "stays"))(t)
	}
	f.seen("a SETNX k v → ASK", "b (asking) SETNX k v → 1", "a GET stays → 1",
		"a SETNX k v → ASK", "b (asking) SETNX k v → 0", "a GET stays → 1")
}

// Commands of one write run in the order in which they were given: a redirected
// one is not followed when another behind it has run. While the slot moves, each
// waits for the one before it, and then all are followed.
func TestOrder(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	c := f.conn(s, "k")
	f.do(a, "SET", "stays", "1")
	f.begin()
	write := []protocol.Cmd{{"SETNX", "k", "v"}, {"INCR", "stays"}, {"GET", "k"}}
	replies, err := c.Pipe(write...)
	if e, _ := replies[0].(redis.Error); err != nil || !strings.HasPrefix(string(e), "ASK ") || replies[1] != int64(2) {
		t.Errorf("%v, %v; want the first refused", replies, err)
	}
	f.seen("a SETNX k v → ASK", "a INCR stays → 2", "a GET k → ASK", "b (asking) GET k → <nil>")
	replies, err = f.conn(s, "k").Pipe(write...)
	if err != nil || replies[0] != int64(1) || replies[1] != int64(3) {
		t.Errorf("%v, %v; want all of them run", replies, err)
	}
	f.seen("a SETNX k v → ASK", "b (asking) SETNX k v → 1", "a INCR stays → 3", "a GET k → ASK", "b (asking) GET k → v")
}

// A WATCH follows its key, and the transaction goes to where the WATCH stands.
func TestWatchFollows(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	c := f.conn(s, "k")
	f.do(a, "SET", "k", "v")
	f.begin()
	f.migrate("k")
	replies, err := c.Run(protocol.Change{Key: "k", Value: "v", Do: []protocol.Cmd{{"DEL", "k"}}})
	if err != nil || replies[0] != int64(1) {
		t.Errorf("%v, %v", replies, err)
	}
	f.seen("a WATCH k → ASK", "a GET k → ASK", "b (asking) WATCH k → OK", "b (asking) GET k → v",
		"b (asking) MULTI → OK", "b (asking) DEL k → QUEUED", "b (asking) EXEC → [1]")
}

// A WATCH that is left behind guards nothing: the transaction does not run, on
// neither server, and the algorithm looks again (cluster/watch-left-behind).
func TestWatchLeftBehind(t *testing.T) {
	for name, move := range map[string]func(f *fake){
		"MOVED": (*fake).all,
		"ASK":   func(f *fake) { f.begin(); f.migrate("") },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, false)
			s := f.source()
			c := f.conn(s, "k")
			f.do(a, "SET", "k", "v")
			if _, _, err := c.Watch("k"); err != nil {
				t.Fatal(err)
			}
			move(f)
			replies, err := c.Exec(protocol.Cmd{"DEL", "k"})
			if replies != nil || err != nil {
				t.Errorf("%v, %v; want it aborted: nothing, and no error", replies, err)
			}
			f.seen("a WATCH k → OK", "a GET k → v", "a MULTI → OK", "a DEL k → "+name, "a EXEC → EXECABORT")
			if on, _ := f.where("k"); len(on) != 1 || on[0] != b {
				t.Errorf("the key is on %q", on)
			}
			replies, err = c.Run(protocol.Change{Key: "k", Value: "v", Do: []protocol.Cmd{{"DEL", "k"}}})
			if err != nil || replies[0] != int64(1) {
				t.Errorf("the next look: %v, %v", replies, err)
			}
		})
	}
}

// Two WATCHes on two servers can guard no transaction on either.
func TestWatchesApart(t *testing.T) {
	f := newFake(t, false)
	c := f.conn(f.source(), "k")
	f.do(a, "SET", "stays", "1")
	f.begin()
	for _, key := range []string{"stays", "k"} {
		must.Get(c.Do("WATCH", key))(t)
	}
	f.log = nil
	if replies, err := c.Exec(protocol.Cmd{"SET", "stays", "2"}); replies != nil || err != nil {
		t.Errorf("%v, %v; want it aborted", replies, err)
	}
	f.migrate("")
	if replies, err := c.Exec(protocol.Cmd{"SET", "k", "3"}); err != nil || len(replies) != 1 {
		t.Errorf("after it nothing is watched: %v, %v", replies, err)
	}
	f.seen("a UNWATCH → OK", "b UNWATCH → OK",
		"a MULTI → OK", "a SET k 3 → ASK", "a EXEC → EXECABORT",
		"b (asking) MULTI → OK", "b (asking) SET k 3 → QUEUED", "b (asking) EXEC → [OK]")
}

// A transaction whose keys may be on two servers is refused with TRYAGAIN, and is not followed: 3.0 would begin the
// fence again at 1 (cluster/keys-apart). Under a WATCH it is not called aborted either, which would have the algorithm look
// again at once, and again.
func TestKeysApart(t *testing.T) {
	for name, c := range map[string]struct {
		old   bool   // as 3.0 answers
		held  string // "": the key is asked for on the server to which the slot moves, and a WATCH stands there
		watch bool
	}{
		"3.0": {old: true}, "7.0": {},
		"under a WATCH":            {held: "v", watch: true},
		"under a WATCH there, 3.0": {old: true, watch: true}, "under a WATCH there, 7.0": {watch: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.old)
			conn := f.conn(f.source(), "k")
			if f.do(a, "SET", fence, "41"); c.held != "" {
				f.do(a, "SET", "k", c.held)
			}
			if f.begin(); c.held != "" {
				f.migrate(fence)
			}
			if c.watch {
				if _, exists, err := conn.Watch("k"); exists != (c.held != "") || err != nil {
					t.Fatal(exists, err)
				}
			}
			_, err := conn.Exec(protocol.Cmd{"SET", "k", "w"}, protocol.Cmd{"INCR", fence})
			if e, _ := err.(redis.Error); !strings.HasPrefix(string(e), "TRYAGAIN ") {
				t.Errorf("%v, want TRYAGAIN", err)
			}
			if on, number := f.where(fence); len(on) != 1 || number != "41" {
				t.Errorf("the fence is %s on %q", number, on)
			}
			if c.watch {
				return
			}
			f.migrate("")
			f.end()
			replies, err := conn.Exec(protocol.Cmd{"SET", "k", "w"}, protocol.Cmd{"INCR", fence})
			if err != nil || replies[1] != int64(42) {
				t.Errorf("%v, %v", replies, err)
			}
		})
	}
}

// A server that has got the whole slot is asked without ASKING, and all keys are there.
func TestMovedAfterAsked(t *testing.T) {
	f := newFake(t, false)
	c := f.conn(f.source(), "k")
	f.begin()
	must.Get(c.Do("GET", "k"))(t)
	f.end()
	must.Get(c.Do("GET", "k"))(t)
	replies, err := c.Exec(protocol.Cmd{"SET", "k", "v"}, protocol.Cmd{"INCR", fence})
	if err != nil || len(replies) != 2 {
		t.Errorf("%v, %v", replies, err)
	}
}

// A pair is a lock that reads two keys in one write.
type pair struct{ protocol.Algorithm }

func (pair) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Until: now.Add(ttl)}
	return l, pairOf(c, key)
}

func (pair) Inspect(c *protocol.Conn, now time.Time, key string) (compat.State, error) {
	return compat.State{Key: key}, pairOf(c, key)
}

func (pair) Release(l compat.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Custom: func(*protocol.Conn) ([]any, error) { return []any{int64(1)}, nil }}
}

func (pair) Traits() protocol.Traits { return protocol.Traits{} }

func pairOf(c *protocol.Conn, key string) error {
	replies, err := c.Pipe(protocol.Cmd{"GET", key}, protocol.Cmd{"GET", "stays"})
	return cmp.Or(err, answer.First(replies))
}

// A step that only met a redirection in the middle of a write is done again by
// the Locker: the connection that it gets then follows.
func TestOnceMore(t *testing.T) {
	for verb, do := range map[string]func(*compat.Locker) error{
		"TryLock": func(k *compat.Locker) error { _, err := k.TryLock(context.Background(), "k", time.Minute); return err },
		"Inspect": func(k *compat.Locker) error { _, err := k.Inspect(context.Background(), "k"); return err },
	} {
		f := newFake(t, false)
		f.do(a, "SET", "stays", "1")
		f.begin()
		if err := do(compat.NewOn(f.source().Source(), pair{}, compat.Options{NoRenew: true})); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
		f.seen("a GET k → ASK", "a GET stays → 1", "a GET k → ASK", "b (asking) GET k → <nil>", "a GET stays → 1")
	}
}

// A transaction that is not sent in one write is not followed: the error
// stands, and nothing of it ran.
func TestOpenTransaction(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	c := f.conn(s, "k")
	for _, step := range []struct {
		move bool
		cmd  protocol.Cmd
		want string
	}{
		{false, protocol.Cmd{"MULTI"}, ""},
		{false, protocol.Cmd{"SET", "k", "v"}, ""},
		{true, protocol.Cmd{"SET", "k", "w"}, "MOVED"},
		{false, protocol.Cmd{"EXEC"}, "EXECABORT"},
		{false, protocol.Cmd{"SET", "k", "x"}, ""},
	} {
		if step.move {
			f.all()
		}
		_, err := c.Do(step.cmd[0].(string), step.cmd[1:]...)
		if e, _ := err.(redis.Error); !strings.HasPrefix(string(e), step.want) || (err == nil) != (step.want == "") {
			t.Errorf("%v: %v, want %q", step.cmd, err, step.want)
		}
	}
	if on, value := f.where("k"); len(on) != 1 || on[0] != b || value != "x" {
		t.Errorf("%q on %q", value, on)
	}
}

// Two servers that send a client to and fro are not followed for ever.
func TestToAndFro(t *testing.T) {
	f := newFake(t, false)
	c := f.conn(f.source(), "k")
	f.before = func(int) { f.all() }
	_, err := c.Do("SET", "k", "v")
	if e, _ := err.(redis.Error); !strings.HasPrefix(string(e), "MOVED ") {
		t.Errorf("%v, want the last MOVED", err)
	}
	if f.n > 12 {
		t.Errorf("followed %d times", f.n)
	}
}

// Receive gives the replies one by one, as redigo's does.
func TestReceive(t *testing.T) {
	f := newFake(t, false)
	c := f.conn(f.source(), "k")
	f.all()
	if _, err := c.Receive(); err == nil {
		t.Error("Receive, but nothing was sent")
	}
	for _, m := range []protocol.Cmd{{"SET", "k", "v"}, {"INCR", "k"}, {"GET", "k"}} {
		must.Do(t, c.Send(m[0].(string), m[1:]...))
	}
	must.Do(t, c.Flush())
	if reply, err := c.Receive(); reply != "OK" || err != nil {
		t.Errorf("%v, %v", reply, err)
	}
	if _, err := c.Receive(); err == nil || !strings.Contains(err.Error(), "not an integer") {
		t.Errorf("INCR of a word: %v", err)
	}
	if reply, err := redis.String(c.Receive()); reply != "v" || err != nil {
		t.Errorf("%v, %v", reply, err)
	}
	c.Send("SET", "k", "1") //nolint:errcheck
	c.Send("INCR", "k")     //nolint:errcheck
	if reply, err := redis.Int(c.Do("INCR", "k")); reply != 3 || err != nil {
		t.Errorf("Do after Send: %v, %v; want the last reply", reply, err)
	}
	c.Close()
	if _, err := c.Do("GET", "k"); err == nil || c.Err() == nil || c.Send("GET", "k") == nil {
		t.Error("a returned connection still works")
	}
}

// A connection that is not for a key goes to where the first one leads it.
func TestWithoutKey(t *testing.T) {
	f := newFake(t, false)
	c := f.conn(f.source(), "")
	if pong, err := c.Do("PING"); pong != "PONG" || err != nil {
		t.Errorf("%v, %v", pong, err)
	}
	f.all()
	must.Get(c.Exec(protocol.Cmd{"SET", "k", "v"}))(t)
	f.log = nil
	must.Get(c.Exec(protocol.Cmd{"DEL", "k"}))(t)
	f.seen("b MULTI → OK", "b DEL k → QUEUED", "b EXEC → [1]")
}

// A master that died is replaced in the map as soon as another server says so;
// the epoch tells. A slot that was only moved does not begin one.
func TestReplacedMasterBeginsAnEpoch(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	ctx := context.Background()
	c := f.conn(s, "k")
	if _, err := c.Do("SET", "k", "v"); err != nil || s.Epoch() != 1 {
		t.Fatalf("%v, epoch %d", err, s.Epoch())
	}
	f.silent[a] = true
	if _, err := c.Do("GET", "k"); err == nil || c.Err() == nil {
		t.Errorf("a dead connection: %v, %v", err, c.Err())
	}
	c.Close()
	if _, err := s.Get(ctx, "k"); limit.Brought(err) != errSilent {
		t.Errorf("before the replica is promoted: %v, want that nobody answers", err)
	}
	f.owner = b
	c = f.conn(s, "k")
	if v, err := c.Do("GET", "k"); v != nil || err != nil {
		t.Errorf("GET on the replica: %v, %v", v, err)
	}
	if s.Epoch() != 2 {
		t.Errorf("epoch %d, want 2", s.Epoch())
	}
}

// The map is not asked of a server that nobody could connect to, while there is
// another.
func TestSilentServerIsNotAskedForTheMap(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	f.conn(s, "k")
	f.silent[a], f.owner = true, b
	dialed := 0
	for range 20 {
		c := must.Get(s.Get(context.Background(), "k"))(t)
		c.Close()
		dialed++
	}
	if f.maps != 2 {
		t.Errorf("the map was asked for %d times in %d uses, want 2: at first, and when %s fell silent", f.maps, dialed, a)
	}
}

// A server that has not heard yet that the suspect was replaced is not believed
// before others were asked.
func TestLaggingServerIsNotBelieved(t *testing.T) {
	for range 10 { // in whatever order they are asked
		f := newFake(t, false)
		const laggard = "c:1"
		f.nodes[laggard] = f.nodes[b]
		f.lags = laggard
		s := f.source(laggard)
		f.conn(s, "k")
		f.silent[a], f.owner = true, b
		must.Get(f.conn(s, "k").Do("GET", "k"))(t)
	}
}

// A slot that its server says it has passed on, while the map that is told says otherwise, was that
// server's: if the next map has that one no more, it counts as replaced.
func TestPassedOn(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	f.conn(s, "k")
	f.owner, f.lags = b, b
	must.Get(f.conn(s, "k").Do("GET", "k"))(t)
	if s.Since("k") != 0 || s.Epoch() != 1 {
		t.Fatalf("passed on: since %d, epoch %d", s.Since("k"), s.Epoch())
	}
	f.silent[a], f.lags = true, ""
	c, err := s.Get(context.Background(), "l")
	if err == nil {
		_, err = c.Do("GET", "l")
		c.Close()
	}
	f.conn(s, "k")
	if s.Since("k") != 2 || s.Since("l") != 2 || s.Epoch() != 2 {
		t.Errorf("since %d and %d, epoch %d, want 2 (%v)", s.Since("k"), s.Since("l"), s.Epoch(), err)
	}
	// That it was passed on is of the map before: now it is that of the one that has it.
	f.silent[a], f.silent[b], f.owner = false, true, a
	f.conn(s, "k")
	if s.Since("k") != 3 || s.Epoch() != 3 {
		t.Errorf("back at %s: since %d, epoch %d, want 3", a, s.Since("k"), s.Epoch())
	}
}

// If a server says that it has a slot no more, and nobody tells who is there, it may have been replaced.
func TestMovedAndNobodyTells(t *testing.T) {
	f := newFake(t, false)
	cut := false
	s := cluster.New([]string{a, b}, cluster.Options{Dial: func(ctx context.Context, addr string) (redis.Conn, error) {
		if cut {
			return nil, errSilent
		}
		return f.dial(ctx, addr)
	}})
	t.Cleanup(func() { s.Close() })
	c := f.conn(s, "k")
	cut, f.owner = true, b
	if _, err := c.Do("GET", "k"); err == nil {
		t.Error("it has the key still")
	}
	if s.Since("k") != 2 || s.Since("l") != 0 || s.Epoch() != 2 {
		t.Errorf("since %d, of another slot %d, epoch %d; want 2, 0 and 2", s.Since("k"), s.Since("l"), s.Epoch())
	}
}

// A hundred clients that find the same map wrong ask for it once.
func TestOneAsksForTheMap(t *testing.T) {
	f := newFake(t, false)
	s := f.source()
	var conns []redis.Conn
	for range 100 {
		conns = append(conns, f.conn(s, "k"))
	}
	f.all()
	f.gate = make(chan struct{})
	f.script(map[int]func(){len(conns): func() { close(f.gate) }}) // the last of them has been refused too
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			if _, err := c.Do("GET", "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if f.maps != 2 {
		t.Errorf("the map was asked for %d times, want 2", f.maps)
	}
}

// A cluster whose servers refuse CLUSTER SLOTS tells its map by CLUSTER NODES.
func TestNodesInstead(t *testing.T) {
	f := newFake(t, false)
	f.refuses = "SLOTS"
	must.Get(f.conn(f.source(), "k").Do("SET", "k", "v"))(t)
	if on, _ := f.where("k"); len(on) != 1 || on[0] != a {
		t.Errorf("on %q", on)
	}
}

// A cluster that is down, or moves the keys of a lock apart, refuses a step, and the step did not run. The refusal says
// nothing about the safety of the server. Lock waits until the cluster serves the key again, for a ttl at most.
func TestLockWaitsForTheCluster(t *testing.T) {
	for _, c := range []struct {
		says   string
		a      protocol.Algorithm
		breaks func(*fake)
		mends  func(*fake)
		after  int // commands
	}{
		{"CLUSTERDOWN", getsetlock.Guarded{}, func(f *fake) { f.down = true }, func(f *fake) { f.down = false }, 6},
		{"TRYAGAIN", txlock.Renamed{}, (*fake).begin, func(f *fake) { f.migrate(""); f.end() }, 30},
	} {
		inBubble(t, c.says, func(t *testing.T) {
			f := newFake(t, false)
			s := f.source()
			f.conn(s, "k")
			k := compat.NewOn(s.Source(), c.a, compat.Options{NoRenew: true, Poll: 50 * time.Millisecond})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			c.breaks(f)
			refused := func(what string, err error) {
				judged := errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrUnknown)
				if err == nil || judged || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v, want %s", what, err, c.says)
				}
			}
			_, err := k.TryLock(ctx, "k", time.Second)
			refused("TryLock", err)
			_, err = k.Lock(t.Context(), "k", time.Second)
			refused("Lock, while nothing changes", err)
			f.script(map[int]func(){c.after: func() { c.mends(f) }})
			if _, err := k.Lock(ctx, "k", 10*time.Second); err != nil {
				t.Errorf("Lock: %v", err)
			}
			if c.says == "CLUSTERDOWN" && f.maps < 3 {
				t.Errorf("the map was asked for %d times, want it learnt anew", f.maps)
			}
		})
	}
}

// Whatever a slot does in the middle of an extension or a release, it touches
// nothing of a client that has taken the lock over meanwhile.
func TestTakenOverMeanwhile(t *testing.T) {
	other := fmt.Sprintf("%d.123456789012", time.Now().Add(time.Hour).Unix())
	for _, algo := range algorithms() {
		if algo.name == "getset:classic" {
			continue // deletes another's lock on any server (getset/paused-release)
		}
		for name, move := range map[string]func(f *fake){
			"moved": (*fake).all,
			"asked": func(f *fake) { f.begin(); f.migrate("") },
		} {
			for verb, do := range map[string]func(*compat.Lock, context.Context) error{
				"extend":  func(l *compat.Lock, ctx context.Context) error { return l.Extend(ctx, time.Minute) },
				"release": (*compat.Lock).Release,
			} {
				t.Run(algo.name+"/"+name+"/"+verb, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						ran := 2
						for n := 1; n <= ran; n++ {
							f := newFake(t, false)
							from := f.source().Source()
							from.Listen = -1 // no release wakes anybody
							k := compat.NewOn(from, algo.new(false), compat.Options{NoRenew: true})
							lock := must.Get(k.TryLock(context.Background(), "k", 20*time.Second))(t)
							f.log = nil
							taken := false
							f.script(map[int]func(){n: func() { move(f); f.do(b, "SET", "k", other); taken = true }})
							err := do(lock, context.Background())
							f.mu.Lock() // an UNWATCH may still be on its way, in the background
							f.before, ran = nil, max(ran, f.n-1)
							f.mu.Unlock()
							on, value := f.where("k")
							if taken && (len(on) != 1 || on[0] != b || value != other || !errors.Is(err, compat.ErrLost)) {
								t.Errorf("taken over before command %d: %v, and %q on %q; want ErrLost and %q on %q\n%s",
									n, err, value, on, other, b, strings.Join(f.log, "\n"))
							}
						}
					})
				})
			}
		}
	}
}

// A context that has ended kills the connection, on all servers: that is how
// the Locker keeps one that it left in MULTI from the next user.
func TestEndedContextKillsTheConnection(t *testing.T) {
	f := newFake(t, false)
	c := f.conn(f.source(), "k")
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("why")
	cancel(why)
	if _, err := redis.DoContext(c.Conn, ctx, "PING"); limit.Brought(err) != why || c.Err() == nil {
		t.Errorf("%v, then %v; want it dead", err, c.Err())
	}
}

// No server that tells the map: each is named with its reason.
func TestEveryReasonIsNamed(t *testing.T) {
	f := newFake(t, false)
	f.silent[a], f.silent[b] = true, true
	_, err := f.source().Get(context.Background(), "k")
	if limit.Brought(err) != errSilent || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), b) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%q, want both servers' reasons, on one line", err)
	}
}
