package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// The masters of these tests are replaced while many clients hold and want
// locks. Each hold is recorded, and what each replica was sent by its master;
// then
//
//   - the old master gives no lock, extends none and takes none back later than
//     Recheck after the new one gave its first;
//   - two hold a key at a time only on two masters, the old and the new, and only if the
//     old one's lock, or its last extension, never reached the new one (any/failover);
//   - not even then, if all replicas had it (Replicated).
//
// Recheck is exact, not a guess at how long something takes: two majorities
// have a Sentinel in common.
const (
	recheck = 100 * time.Millisecond
	ttl     = 2 * time.Second
)

// A hold is what one client believes of one lock.
type hold struct {
	kind, key, token string
	client           int
	brief            bool
	server           string    // the master that gave it, or extended it last
	asked, extended  time.Time // when it was asked for, first and last
	start, end       time.Time // end: its lease's, or when it was released
	err              error     // how it ended
}

func (h hold) String() string {
	const ms = "05.000"
	return fmt.Sprintf("client %d: %s %.8s on %s, asked %s, last %s, held %s to %s: %v", h.client, h.key, h.token, h.server,
		h.asked.Format(ms), h.extended.Format(ms), h.start.Format(ms), h.end.Format(ms), h.err)
}

// A failover is a test under way.
type failover struct {
	t     *testing.T
	s     *realredis.Sentinels
	old   string
	stop  context.CancelFunc
	ctx   context.Context
	ended sync.WaitGroup
	n     int   // clients so far
	brief []int // those that take turns

	mu       sync.Mutex
	holds    []hold
	wrongs   int
	received map[string]map[string]time.Time // by server and token: when the lease ends that its master sent it
}

func TestFailover(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*failover, *realredis.Server)
	}{
		// The old master lives on as a master for eight seconds and more.
		{"on command", func(f *failover, _ *realredis.Server) { f.s.Failover() }},
		{"killed", func(f *failover, m *realredis.Server) { m.Kill() }},
		// It comes back as a master, and answers what it was asked before.
		{"stood still", func(f *failover, m *realredis.Server) {
			m.Stop()
			f.s.Replaced(m)
			m.Continue()
			role, err := redis.Values(realredis.Ask(m.Addr, "ROLE"))
			// As a master, if the machine does not stand still and give the Sentinels time to tell it.
			t.Logf("the old master came back as %s, %v", role, err)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := begin(t)
			f.progress(3, "")
			master := f.s.Servers[0]
			c.do(f, master)
			now := f.s.Replaced(master)
			f.clients(2, 1) // who know of no other
			f.progress(10, now.Addr)
			f.end()
			f.judge(now.Addr)
		})
	}
}

// begin starts the servers and the clients.
func begin(t *testing.T) *failover {
	f := &failover{t: t, s: realredis.RunSentinels(t, "m"), received: map[string]map[string]time.Time{}}
	f.old = f.s.Servers[0].Addr
	f.ctx, f.stop = context.WithCancel(context.Background())
	t.Cleanup(f.end)
	for _, replica := range f.s.Servers[1:] {
		f.listen(replica.Addr)
	}
	f.clients(4, 2)
	return f
}

// clients adds clients that take turns at one key, and some that want to hold
// another for good, for each kind of lock. Each has its own Source, as its own
// process would.
func (f *failover) clients(inTurns, forGood int) {
	for kind, a := range map[string]protocol.Algorithm{
		"renamed":    txlock.Renamed{},
		"pinned":     txlock.Renamed{}, // over the connection that took it
		"lua":        setlock.Lua{},    // the new master knows no script
		"replicated": sentinel.Replicated{Algorithm: txlock.Renamed{}, Replicas: 2, Timeout: 50 * time.Millisecond},
	} {
		for i := range inTurns + forGood {
			f.n++
			n := f.n
			if i < inTurns && kind != "replicated" { // the replicated want both replicas, and one is gone
				f.brief = append(f.brief, n)
			}
			f.ended.Go(func() { f.client(n, kind, a, i < inTurns) })
		}
	}
}

// client takes and releases a lock, again and again.
func (f *failover) client(n int, kind string, a protocol.Algorithm, brief bool) {
	o := compat.Options{Poll: 20 * time.Millisecond, Timeout: 500 * time.Millisecond, Cleanup: time.Second, NoRenew: brief}
	source := sentinel.New(f.s.Name, f.s.Addrs(), sentinel.Options{Recheck: recheck, Patience: 300 * time.Millisecond})
	defer source.Close()
	var server atomic.Value // that gave or extended the lock; one step of this client's runs at a time
	o.Observer = compat.Observer(func(e compat.Event) {
		if e.Kind == compat.EventAcquired || e.Kind == compat.EventExtended {
			server.Store(source.Named())
		}
	})
	from := source.Source()
	if kind == "pinned" {
		from.Keep = 1
	}
	k := compat.NewOn(from, a, o)
	key := kind + "-for-good"
	if brief {
		key = kind + "-in-turns"
	}
	for f.ctx.Err() == nil {
		lock, err := k.Lock(f.ctx, key, ttl)
		if err != nil {
			if errors.Is(err, compat.ErrUnsafeServer) || errors.Is(err, compat.ErrForeign) || errors.Is(err, compat.ErrInvalid) {
				f.t.Errorf("client %d: %v", n, err)
				return
			}
			continue // no master for now, or nobody knows
		}
		h := hold{kind: kind, key: key, token: lock.Token(), client: n, brief: brief, asked: asked(lock), start: time.Now()}
		if brief {
			for range 5 { // some time passes inside
				if _, err := k.Inspect(lock.Context(), key); err != nil {
					break
				}
			}
		} else {
			select {
			case <-lock.Context().Done():
			case <-f.ctx.Done():
			}
		}
		h.end = time.Now()
		h.err = errors.Join(context.Cause(lock.Context()), lock.Release(context.WithoutCancel(f.ctx))) // no renewal follows
		h.server, h.extended = server.Load().(string), asked(lock)
		if h.end.After(lock.Until()) {
			h.end = lock.Until()
		}
		f.mu.Lock()
		f.holds = append(f.holds, h)
		f.mu.Unlock()
	}
}

// asked is when the lock was last asked for, by the client's clock.
func asked(l *compat.Lock) time.Time {
	return l.Until().Add(-protocol.Until(time.Time{}, ttl).Sub(time.Time{}))
}

// What a 7.0 sends to its replicas for SETEX, SET NX PX, RENAMENX, EXPIRE and PEXPIRE.
var (
	set      = regexp.MustCompile(`"SET" "([^"]+)" "([0-9a-z]+)" "PXAT" "(\d+)"`)
	renamenx = regexp.MustCompile(`"RENAMENX" "[^"]*:([0-9a-z]+)" "([^"]+)"`)
	expire   = regexp.MustCompile(`"PEXPIREAT" "([^"]+)" "(\d+)"`)
)

// listen notes what the replica at addr gets from its master, until it is
// promoted: then it ends its clients' connections.
func (f *failover) listen(addr string) {
	c, err := redis.Dial("tcp", addr)
	if err == nil {
		_, err = c.Do("MONITOR")
	}
	if err != nil {
		f.t.Fatal(err)
	}
	ends, written, on := map[string]time.Time{}, map[string]time.Time{}, map[string]string{}
	f.received[addr] = ends // the lease of each token that got onto its key
	f.ended.Go(func() {
		defer c.Close()
		defer context.AfterFunc(f.ctx, func() { c.Close() })()
		for {
			line, err := redis.String(c.Receive())
			if err != nil {
				return
			}
			if m := set.FindStringSubmatch(line); m != nil {
				written[m[2]] = millis(m[3])
			}
			f.mu.Lock()
			if m := set.FindStringSubmatch(line); m != nil && !strings.HasSuffix(m[1], m[2]) { // no temporary name
				on[m[1]], ends[m[2]] = m[2], millis(m[3])
			}
			if m := renamenx.FindStringSubmatch(line); m != nil {
				on[m[2]], ends[m[1]] = m[1], written[m[1]]
			}
			if m := expire.FindStringSubmatch(line); m != nil {
				ends[on[m[1]]] = millis(m[2])
			}
			f.mu.Unlock()
		}
	})
}

func millis(s string) time.Time {
	ms, _ := strconv.ParseInt(s, 10, 64) // digits, says the pattern
	return time.UnixMilli(ms)
}

// progress waits until each client that takes turns has had n holds on server,
// or anywhere.
func (f *failover) progress(n int, server string) {
	f.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(3 * time.Minute) // under the race detector, beside other tests
	for {
		had := map[int]int{}
		f.mu.Lock()
		for _, h := range f.holds {
			if h.brief && h.kind != "replicated" && (server == "" || h.server == server) {
				had[h.client]++
			}
		}
		f.mu.Unlock()
		waiting := 0
		for _, client := range f.brief {
			if had[client] < n {
				waiting++
			}
		}
		if waiting == 0 {
			return
		}
		select {
		case <-deadline:
			f.t.Fatalf("holds by client on %q: %v, want %d each", server, had, n)
		case <-tick.C:
		}
	}
}

func (f *failover) end() {
	f.stop()
	f.ended.Wait()
}

// judge looks at each hold, and at each two of one key that overlap.
func (f *failover) judge(now string) {
	var first time.Time // when the new master was first asked for what it gave
	onNew := 0
	for _, h := range f.holds {
		if h.server == now {
			if onNew++; first.IsZero() || h.extended.Before(first) { // a hold may have begun on the old one
				first = h.extended
			}
		}
	}
	for _, h := range f.holds {
		switch {
		case h.server == now:
		case h.server != f.old:
			f.wrong("given by a replica", h)
		case h.extended.Sub(first) > recheck:
			f.wrong(fmt.Sprintf("given by the old master %v after the new one gave its first", h.extended.Sub(first)), h)
		case h.err == nil && h.end.Sub(first) > recheck:
			f.wrong(fmt.Sprintf("released on the old master %v after the new one gave its first: it was lost", h.end.Sub(first)), h)
		}
	}
	together, longest := 0, time.Duration(0)
	for _, n := range f.holds {
		for _, o := range f.holds {
			if o.key != n.key || o.asked.After(n.asked) || !o.end.After(n.start) || !n.end.After(o.start) || o.token == n.token {
				continue
			}
			together++
			longest = max(longest, min(o.end.Sub(n.start), n.end.Sub(n.start)))
			if o.server == n.server {
				f.wrong("two hold one key of one master", o, n)
				continue
			}
			if o.server == now { // asked first, on the new one
				o, n = n, o
			}
			if end := f.received[now][o.token]; end.After(n.start) {
				f.wrong("the new master had the lock, until "+end.Format("05.000")+", and gave it away", o, n)
			} else if o.kind == "replicated" {
				f.wrong("a lock that all replicas had was given away", o, n)
			}
		}
	}
	f.t.Logf("%d holds, %d of them by the new master; any/failover %d times, for %v at most", len(f.holds), onNew, together, longest)
	if f.wrongs > 0 {
		f.t.Errorf("%d of these in all", f.wrongs)
	}
}

// wrong reports the first few of what is wrong.
func (f *failover) wrong(what string, holds ...hold) {
	if f.wrongs++; f.wrongs <= 5 {
		f.t.Errorf("%s:\n%v", what, holds)
	}
}
