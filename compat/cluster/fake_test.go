package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	slots "github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A fake is a cluster of embedded servers that answer as real ones were seen to
// (3.0.7, 5.0.14, 7.0.15) while slots move. All slots move together, and its state
// can be changed before any given command: what a real cluster does once in a
// thousand runs it does in each.
type fake struct {
	t     *testing.T
	nodes map[string]*fakeNode

	// The manner of 3.0: EXEC is not checked, and runs on whatever keys are
	// there; so nothing happens to a slot within a transaction, which arrives in
	// one piece.
	old bool

	mu      sync.Mutex
	owner   string
	to      string // where the slots are being moved; "": they are not
	down    bool
	silent  map[string]bool // nodes that no one can connect to
	wants   string          // a node that wants another password
	refuses string          // a subcommand of CLUSTER that they do not let us use
	n       int             // commands that clients have sent, but for CLUSTER and ASKING
	before  func(n int)     // called before the n-th
	maps    int             // how often the map was asked for
	lags    string          // a node that takes a for the owner, whatever happens
	gate    chan struct{}   // if it is there, the map is not told before it is closed
	log     []string
}

type fakeNode struct {
	name  string
	admin redis.Conn
	dial  func() redis.Conn
}

const a, b = "a:1", "b:1"

func newFake(t *testing.T, old bool) *fake {
	f := &fake{t: t, old: old, owner: a, nodes: map[string]*fakeNode{}, silent: map[string]bool{}}
	for _, name := range []string{a, b} {
		s := oldredis.Run(t, "7.0")
		f.nodes[name] = &fakeNode{name, s.Dial(), s.Dial}
	}
	return f
}

// reset makes it new again.
func (f *fake) reset() {
	for _, n := range f.nodes {
		must.Get(n.admin.Do("FLUSHALL"))(f.t)
	}
	f.mu.Lock() // the UNWATCH of a refused attempt may still be on its way, in the background
	defer f.mu.Unlock()
	f.owner, f.to, f.down, f.before, f.log = a, "", false, nil, nil
}

// source returns a client's Source, which ends with the test.
func (f *fake) source(more ...string) *cluster.Source {
	s := f.open(more...)
	f.t.Cleanup(func() { s.Close() })
	return s
}

func (f *fake) open(more ...string) *cluster.Source {
	return cluster.New(append([]string{a, b}, more...), cluster.Options{Dial: f.dial})
}

var errSilent = errors.New("fake: nobody answers")

func (f *fake) dial(_ context.Context, addr string) (redis.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent[addr] {
		return nil, errSilent
	}
	if f.wants == addr {
		return nil, redis.Error("WRONGPASS invalid username-password pair")
	}
	n := f.nodes[addr]
	c := &fakeConn{to: n.dial(), f: f, node: n, lags: addr == f.lags}
	return faulty.Carried(c.carry, func(bool) { c.to.Close() }), nil
}

// script has do called before the commands of these numbers, counted from now.
func (f *fake) script(steps map[int]func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n = 0
	f.before = func(n int) {
		for due := 1; due <= n; due++ {
			if step := steps[due]; step != nil {
				step()
				delete(steps, due)
			}
		}
	}
}

// settle runs what is left of a script.
func (f *fake) settle(steps map[int]func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = nil
	var left []int
	for n := range steps {
		left = append(left, n)
	}
	slices.Sort(left)
	for _, n := range left {
		steps[n]()
	}
}

// The steps of a move. f.mu is held.
func (f *fake) begin() { f.to = f.other() }
func (f *fake) end()   { f.owner, f.to = f.to, "" }
func (f *fake) other() string {
	if f.owner == a {
		return b
	}
	return a
}

// migrate moves the keys that begin with prefix: MIGRATE copies, then deletes.
func (f *fake) migrate(prefix string) {
	from, to := f.nodes[f.owner].admin, f.nodes[f.to].admin
	keys, _ := redis.Strings(from.Do("KEYS", "*"))
	for _, key := range keys {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		value, err := redis.String(from.Do("GET", key))
		if err != nil {
			f.t.Errorf("migrating %q: %v", key, err)
		}
		args := []any{key, value, "NX"}
		if ttl, _ := redis.Int(from.Do("PTTL", key)); ttl > 0 {
			args = append(args, "PX", ttl)
		}
		if set, err := to.Do("SET", args...); set != "OK" {
			f.t.Errorf("BUSYKEY: %q is on both servers: %v, %v", key, set, err)
		}
		from.Do("DEL", key) //nolint:errcheck // it was there
	}
}

// all moves all at once.
func (f *fake) all() { f.begin(); f.migrate(""); f.end() }

// where are the nodes that have key, and its value there: not in the middle of a move, which a command of the
// background may set off.
func (f *fake) where(key string) (on []string, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range []string{a, b} {
		if v, err := redis.String(f.nodes[name].admin.Do("GET", key)); err == nil {
			on, value = append(on, name), v
		}
	}
	return on, value
}

// A fakeConn is a client's connection to one node.
type fakeConn struct {
	to   redis.Conn
	f    *fake
	node *fakeNode
	lags bool

	asking bool
	multi  bool
	dirty  bool     // a command was not queued
	keys   []string // of the commands that were
}

func (c *fakeConn) carry(_ context.Context, write [][]any) (replies []any, err error) {
	for _, m := range write {
		reply := c.answer(m)
		if reply == io.EOF {
			return nil, io.EOF
		}
		replies = append(replies, reply)
	}
	return replies, nil
}

func (c *fakeConn) answer(m protocol.Cmd) any {
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	name := strings.ToUpper(m[0].(string))
	if name == "CLUSTER" {
		if gate := f.gate; gate != nil {
			f.mu.Unlock()
			<-gate
			f.mu.Lock()
		}
		return f.cluster(c, m[1].(string))
	}
	if name == "ASKING" {
		c.asking = true
		return "OK"
	}
	if name == "BLPOP" { // it would block the others
		return redis.Error("ERR unknown command 'BLPOP'")
	}
	f.n++
	if f.before != nil && !(f.old && c.multi) {
		f.before(f.n)
	}
	if f.silent[c.node.name] {
		return io.EOF
	}
	asking := c.asking
	c.asking = asking && (c.multi || name == "MULTI")
	if name == "EXEC" || name == "DISCARD" {
		c.asking = false
	}
	reply := c.run(name, m, asking)
	f.log = append(f.log, strings.Join(append([]string{c.node.name[:1]}, words(m, asking, reply)...), " "))
	return reply
}

func words(m protocol.Cmd, asking bool, reply any) []string {
	var s []string
	if asking {
		s = append(s, "(asking)")
	}
	for _, arg := range m {
		s = append(s, fmt.Sprint(arg))
	}
	if b, ok := reply.([]byte); ok {
		reply = string(b)
	}
	word, _, _ := strings.Cut(fmt.Sprint(reply), " ")
	return append(s, "→", word)
}

func (c *fakeConn) run(name string, m protocol.Cmd, asking bool) any {
	f := c.f
	keys := keysOf(name, m)
	if name == "EXEC" && c.multi && !c.dirty && !f.old {
		keys = c.keys
	}
	refusal := f.refusal(c.node.name, keys, asking)
	switch {
	case name == "EXEC" && c.dirty:
		refusal = "EXECABORT Transaction discarded because of previous errors."
	case refusal != "" && c.multi && name != "EXEC":
		c.dirty = true
	case refusal == "" && c.multi:
		c.keys = append(c.keys, keys...)
	}
	if name == "EXEC" || name == "DISCARD" {
		if refusal != "" {
			c.to.Do("DISCARD") //nolint:errcheck // as the server does by itself
		}
		c.multi, c.dirty, c.keys = false, false, nil
	}
	if refusal != "" {
		return refusal
	}
	reply, err := c.to.Do(name, m[1:]...)
	if err != nil {
		return err
	}
	if name == "MULTI" {
		c.multi = true
	}
	return reply
}

// refusal is the answer of node to a command with these keys; "" if it runs.
func (f *fake) refusal(node string, keys []string, asking bool) redis.Error {
	if len(keys) == 0 {
		return ""
	}
	if f.down {
		return "CLUSTERDOWN The cluster is down"
	}
	missing, distinct := 0, map[string]bool{}
	for _, k := range keys {
		if n, _ := redis.Int(f.nodes[node].admin.Do("EXISTS", k)); n == 0 {
			missing++
		}
		distinct[k] = true
	}
	const apart = "TRYAGAIN Multiple keys request during rehashing of slot"
	slot := slots.Of(keys[0])
	switch {
	case node == f.owner && f.to != "" && missing > 0:
		if len(keys) > missing && !f.old {
			return apart
		}
		return redis.Error(fmt.Sprintf("ASK %d %s", slot, f.to))
	case node == f.owner:
		return ""
	case node == f.to && asking:
		if len(distinct) > 1 && missing > 0 {
			return apart
		}
		return ""
	}
	return redis.Error(fmt.Sprintf("MOVED %d %s", slot, f.owner))
}

func keysOf(name string, m protocol.Cmd) []string {
	str := func(args []any) (keys []string) {
		for _, k := range args {
			keys = append(keys, fmt.Sprint(k))
		}
		return keys
	}
	switch name {
	case "MULTI", "EXEC", "DISCARD", "UNWATCH", "PING", "INFO", "TIME", "SCRIPT":
		return nil
	case "EVAL", "EVALSHA":
		n, _ := strconv.Atoi(fmt.Sprint(m[2]))
		return str(m[3 : 3+n])
	case "DEL", "WATCH", "RENAMENX":
		return str(m[1:])
	}
	return str(m[1:2])
}

func (f *fake) cluster(c *fakeConn, what string) any {
	if what == f.refuses {
		return redis.Error("NOPERM this user has no permissions to run the 'cluster|slots' command")
	}
	f.maps++
	owner := f.owner
	if c.lags {
		owner = a
	}
	host, _, _ := strings.Cut(owner, ":")
	switch what {
	case "SLOTS":
		return []any{[]any{int64(0), int64(16383), []any{[]byte(host), int64(1), []byte("id of " + host)}}}
	case "NODES":
		return []byte(fmt.Sprintf("id-of-%[1]s %[1]s@2 master - 0 0 1 connected 0-16383\n", owner))
	}
	f.t.Errorf("CLUSTER %s", what)
	return nil
}

// TestEveryMoment has the slots move, begin to move, or go down before each
// single command of an acquisition, an extension and a release, in every
// algorithm; and whatever comes, what the client is told is so.
func TestEveryMoment(t *testing.T) { everyMoment(t, 0) }

// The locks without a fence where that one has those with one, and the other way round.
func TestLongEveryMoment(t *testing.T) {
	realredis.Long(t)
	everyMoment(t, 1)
}

func everyMoment(t *testing.T, part int) {
	for i, algo := range algorithms() {
		for _, manner := range []string{"3.0", "7.0"} {
			for j, fence := range []bool{false, true} {
				if manner == "7.0" && (i+j)%2 != part {
					continue
				}
				if manner == "3.0" && (part == 1 || !fence || !strings.HasPrefix(algo.name, "tx:")) {
					continue // on one key 3.0 answers no differently, and the others send the same transactions
				}
				t.Run(fmt.Sprintf("%s/%s/fence=%v", algo.name, manner, fence), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						moments := 0
						f := newFake(t, manner == "3.0")
						for _, s := range scenarios {
							if s.fenced && !fence {
								continue
							}
							for n := 1; ; n++ {
								f.reset()
								ran := f.everyMoment(algo, fence, s.steps(f, n), s.name == "down")
								if t.Failed() {
									t.Fatalf("%s before command %d:\n%s", s.name, n, strings.Join(f.log, "\n"))
								}
								if n > ran {
									break
								}
								moments++
							}
						}
						if moments < 25 {
							t.Errorf("only %d moments: the scenarios do not reach into the steps", moments)
						}
					})
				})
			}
		}
	}
}

var scenarios = []struct {
	name   string
	fenced bool // says something new about locks with a fence alone
	steps  func(f *fake, n int) map[int]func()
}{
	{"moved", false, func(f *fake, n int) map[int]func() { return map[int]func(){n: f.all} }},
	{"to and fro", false, func(f *fake, n int) map[int]func() { return map[int]func(){n: f.all, n + 1: f.all} }},
	{"asked", false, func(f *fake, n int) map[int]func() {
		return map[int]func(){n: func() { f.begin(); f.migrate("") }, n + 12: func() { f.migrate(""); f.end() }}
	}},
	{"begun", false, func(f *fake, n int) map[int]func() {
		return map[int]func(){n: f.begin, n + 2: func() { f.migrate("") }, n + 9: func() { f.migrate(""); f.end() }}
	}},
	{"begun, the fence first", true, func(f *fake, n int) map[int]func() {
		return map[int]func(){n: func() { f.begin(); f.migrate(protocol.Aux("k", "fence")) }, n + 14: func() { f.migrate(""); f.end() }}
	}},
	{"begun, the lock first", true, func(f *fake, n int) map[int]func() {
		return map[int]func(){n: func() { f.begin(); f.migrate("k") }, n + 14: func() { f.migrate(""); f.end() }}
	}},
	{"down", false, func(f *fake, n int) map[int]func() {
		return map[int]func(){n: func() { f.down = true }, n + 5: func() { f.down = false }}
	}},
}

// everyMoment takes, extends and releases a lock while steps come to pass, and
// returns how many commands there were until they were done. mayDoubt: a server
// that answers nothing may leave the client in doubt, but not in error.
func (f *fake) everyMoment(a algorithm, fence bool, steps map[int]func(), mayDoubt bool) (ran int) {
	t := f.t
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	algo, o := a.new(fence), compat.Options{NoRenew: true, Poll: 20 * time.Microsecond}
	ours, theirs := f.open(), f.open()
	defer ours.Close() // now: a test has thousands of moments, and a Source a map of all slots
	defer theirs.Close()
	k, rival := compat.NewOn(ours.Source(), algo, o), compat.NewOn(theirs.Source(), algo, o)
	first := int64(0)
	if lock, err := k.TryLock(ctx, "k", 20*time.Second); err != nil { // so that all know the map, and the fence has begun
		t.Error(err)
	} else {
		first = lock.Fence()
		must.Do(t, lock.Release(ctx))
	}
	must.Get(rival.Inspect(ctx, "k"))(t)

	f.script(steps)
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.n
	}
	defer func() {
		f.settle(steps)
		if on, value := f.where("k"); len(on) > 1 {
			t.Errorf("two locks: %q on %q", value, on)
		}
		if on, _ := f.where(protocol.Aux("k", "fence")); fence != (len(on) == 1) {
			t.Errorf("the fence is on %q", on)
		}
	}()
	lock, err := k.Lock(ctx, "k", 20*time.Second)
	ran = count()
	if err != nil {
		if !mayDoubt || !errors.Is(err, compat.ErrUnknown) {
			t.Errorf("Lock: %v", err)
		}
		return ran
	}
	if on, value := f.where("k"); len(on) != 1 || value != lock.Token() {
		t.Errorf("told held by %q, but %q is on %q", lock.Token(), value, on)
	}
	if fence && lock.Fence() <= first {
		t.Errorf("fence %d after %d", lock.Fence(), first)
	}
	if second, err := rival.TryLock(ctx, "k", 20*time.Second); err == nil {
		t.Errorf("a rival holds it too, by %q", second.Token())
	} else if errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrUnknown) && !mayDoubt {
		t.Errorf("a rival's TryLock: %v", err)
	}
	if err := lock.Extend(ctx, 30*time.Second); errors.Is(err, compat.ErrLost) {
		t.Errorf("Extend: %v", err)
	}
	if on, value := f.where("k"); len(on) != 1 || value != lock.Token() && !mayDoubt {
		t.Errorf("after the extension %q is on %q, the token is %q", value, on, lock.Token())
	}
	err = lock.Release(ctx)
	for mayDoubt && errors.Is(err, compat.ErrUnknown) && ctx.Err() == nil {
		err = lock.Release(ctx)
	}
	ran = count()
	if err != nil {
		t.Errorf("Release: %v", err)
	}
	if on, _ := f.where("k"); len(on) != 0 {
		t.Errorf("released, and yet on %q", on)
	}
	return ran
}
