package promises_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/guard"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
	"github.com/setnxlock/setnxlock/txlock"
)

// A speaker is a server that is asked, and answers, in bytes. lie, if it is not nil, makes of the bytes of the n-th
// reply, from 1, what is sent instead.
type speaker struct {
	s   *oldredis.Server
	lie func(n int, honest []byte) []byte

	mu      sync.Mutex
	replies int
	pools   []*redis.Pool
}

// dial connects to it.
func (s *speaker) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	asked := make(chan []any, 1000) // what is written is read at once: a pipe has no room
	go func() {
		defer close(asked)
		r := bufio.NewReader(there)
		for {
			cmd, err := request(r)
			if err != nil {
				return
			}
			asked <- cmd
		}
	}()
	go func() {
		defer there.Close()
		c := s.s.Dial()
		defer c.Close()
		for cmd := range asked {
			reply, err := c.Do(cmd[0].(string), cmd[1:]...)
			if e, refused := err.(redis.Error); refused {
				reply = e
			} else if err != nil {
				return
			}
			answer := encode(nil, reply)
			s.mu.Lock()
			if s.replies++; s.lie != nil {
				answer = s.lie(s.replies, answer)
			}
			s.mu.Unlock()
			if _, err := there.Write(answer); err != nil {
				for range asked { //nolint:revive // nobody listens
				}
				return
			}
		}
	}()
	return here, nil
}

// answered is how many replies it has given.
func (s *speaker) answered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replies
}

// source is a pool whose connections dial makes.
func (s *speaker) source(dial func(ctx context.Context, network, addr string) (net.Conn, error)) compat.Source {
	pool := &redis.Pool{MaxIdle: 4, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", "hostile", redis.DialContextFunc(dial))
	}}
	s.pools = append(s.pools, pool)
	return compat.Pooled(pool)
}

// close ends the connections that are idle.
func (s *speaker) close() {
	for _, p := range s.pools {
		p.Close()
	}
	s.s.Close()
}

// request reads one command.
func request(r *bufio.Reader) ([]any, error) {
	n, err := header(r, '*')
	cmd := make([]any, max(n, 0))
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, err = header(r, '$'); err != nil {
			break
		}
		arg := make([]byte, size+2)
		_, err = io.ReadFull(r, arg)
		cmd[i] = string(arg[:size])
	}
	return cmd, err
}

func header(r *bufio.Reader, kind byte) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil || line[0] != kind {
		return 0, fmt.Errorf("no request: %q, %w", line, err)
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}

// encode appends a reply as RESP.
func encode(b []byte, reply any) []byte {
	switch r := reply.(type) {
	case nil:
		return append(b, "$-1\r\n"...)
	case int64:
		return fmt.Appendf(b, ":%d\r\n", r)
	case string:
		return fmt.Appendf(b, "+%s\r\n", r)
	case redis.Error:
		return fmt.Appendf(b, "-%s\r\n", string(r))
	case []byte:
		return fmt.Appendf(b, "$%d\r\n%s\r\n", len(r), r)
	case []any:
		b = fmt.Appendf(b, "*%d\r\n", len(r))
		for _, one := range r {
			b = encode(b, one)
		}
		return b
	}
	panic(fmt.Sprintf("a reply of type %T", reply))
}

// poisons are replies that no server of a lock sends. deadly: nothing that reads them with redigo survives, or learns
// what they are, unless the bytes are looked at first.
var poisons = []struct {
	name, head string
	times      int // that the head is said
	deadly     bool
}{
	{"a string of any length", "$9223372036854775807\r\n", 1, false},
	{"a list of any length", "*9223372036854775807\r\n", 1, false},
	{"a list of any length in a list", "*1\r\n*9223372036854775807\r\n", 1, false},
	{"a length that is none", "$18446744073709551615\r\n", 1, true}, // nil, to redigo
	{"a length below none", "*-7\r\n", 1, false},
	{"no kind", "?1\r\n", 1, false},
	{"nothing", "\r\n", 1, false},
	{"a string of 16 GB", "$17179869184\r\n", 1, true},
	{"a list of 16 TB", "*1099511627776\r\n", 1, true},
	{"a list of 32 MB", "*2097152\r\n", 1, true},
	{"lists of 16 MB in a list", "*262144\r\n", 4, true},
	{"a deep list", "*1\r\n", 8 << 20, true},
	{"a line of 32 MB", "+x", 16 << 20, true},
	{"an error of 32 MB", "-x", 16 << 20, true},
	{"a number of 32 MB", ":1", 16 << 20, true},
	{"a length of 32 MB", "$0", 16 << 20, true},
	{"lists of lists", "*100\r\n", 1 << 20, true},
}

// spoken are kinds that hostile bytes are tried on.
func spoken() []kind {
	return append(withShared([]kind{
		one("getset:guarded", "2.2", getsetlock.Guarded{Options: getsetlock.Options{Fence: true}}),
		one("tx:renamed", "2.4", txlock.Renamed{}), one("set:lua", "7.0", setlock.Lua{}),
	}), composites(true)[0], composites(true)[9])
}

// A reply that can't be read ends its connection, and nothing else: the call returns, what it says of the lock is true,
// and the next one works.
func TestHostileBytes(t *testing.T) {
	every := 8
	if realredis.UnderRace() {
		every = 1
	}
	for _, poison := range poisons {
		t.Run(poison.name, func(t *testing.T) {
			bytes := strings.Repeat(poison.head, poison.times)
			for _, k := range spoken() {
				for _, guarded := range []bool{true, false} {
					if poison.deadly && (!guarded || k.shared || k.name != "set:lua") {
						continue
					}
					for at := 1; at <= 40; at += 1 + at/every {
						reached := false
						synctest.Test(t, func(t *testing.T) { reached = poisoned(t, k, bytes, at, guarded) })
						if !reached {
							break
						}
					}
				}
			}
		})
	}
}

// poisoned has a client take, extend, renew and release locks, with poison in place of the reply at; reached: it was
// asked for so many.
func poisoned(t *testing.T, k kind, poison string, at int, guarded bool) (reached bool) {
	s := must.Get(oldredis.New(k.versions[0], oldredis.Options{Clock: clock.New()}))(t)
	speaks := &speaker{s: s, lie: func(n int, honest []byte) []byte {
		if n == at {
			return []byte(poison)
		}
		return honest
	}}
	defer speaks.close()
	dial := speaks.dial
	if guarded {
		dial = guard.Dial(dial)
	}
	source := speaks.source(dial)
	sources := make([]compat.Source, len(k.versions))
	for i := range sources {
		sources[i] = source
	}
	o := compat.Options{Rand: func() float64 { return 0 }}
	locker := k.make(sources, o)
	look := func() compat.Status {
		direct := slices.Repeat([]compat.Source{compat.Pooled(s)}, len(sources))
		onlooker := k.make(direct, compat.Options{NoRenew: true})
		defer onlooker.Close(background) //nolint:errcheck
		st, err := onlooker.Inspect(background, k.key)
		if err != nil {
			t.Error(err)
		}
		return st.Status
	}
	within := func(d time.Duration) context.Context { // a call with a limit is another path
		ctx, cancel := context.WithTimeout(background, d)
		t.Cleanup(cancel)
		return ctx
	}
	for round, ctx := range []context.Context{background, within(time.Hour)} {
		l, err := locker.TryLock(ctx, k.key, 6*time.Second)
		if err != nil {
			if l, err = locker.TryLock(ctx, k.key, 6*time.Second); err != nil {
				t.Errorf("%s, %q at reply %d, round %d: %v", k.name, poison[:min(40, len(poison))], at, round, err)
				break
			}
		}
		time.Sleep(20 * time.Second) // of renewals
		if err := context.Cause(l.Context()); err != nil || look() != compat.StatusHeld {
			t.Errorf("%s, %q at reply %d: renewed, it is %s: %v", k.name, poison[:min(40, len(poison))], at, look(), err)
		}
		l.Extend(ctx, 5*time.Second) //nolint:errcheck // what is left is looked at
		if err := l.Release(ctx); err != nil {
			time.Sleep(time.Minute)
		}
		if is := look(); is != compat.StatusFree && is != compat.StatusDead {
			t.Errorf("%s, %q at reply %d: released, it is %s", k.name, poison[:min(40, len(poison))], at, is)
		}
	}
	locker.Close(background) //nolint:errcheck
	n := speaks.answered()
	time.Sleep(time.Hour)
	return n >= at
}

// No reply takes more than 16 MB.
func TestHostileBytesTakeNoMemory(t *testing.T) {
	for _, poison := range poisons {
		bytes := strings.Repeat(poison.head, poison.times)
		s := oldredis.MustNew("7.0", oldredis.Options{})
		speaks := &speaker{s: s, lie: func(int, []byte) []byte { return []byte(bytes) }}
		c, err := speaks.source(guard.Dial(speaks.dial)).Get(background, "k")
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = c.Do("GET", "k")
		runtime.ReadMemStats(&after)
		took := int64(after.TotalAlloc-before.TotalAlloc) - int64(len(bytes)) // the speaker's copy
		if took > 16<<20 || err == nil || c.Err() == nil {
			t.Errorf("%s: it took %d bytes: %v", poison.name, took, err)
		}
		c.Close()
		speaks.close()
	}
}

// FuzzRESP answers with any bytes, in pieces.
func FuzzRESP(f *testing.F) {
	for _, p := range poisons {
		f.Add([]byte(strings.Repeat(p.head, min(p.times, 20))), uint8(3))
	}
	f.Add([]byte("*3\r\n$3\r\nabc\r\n:1\r\n-ERR x\r\n+OK\r\n"), uint8(1))
	k := one("set:lua", "7.0", setlock.Lua{})
	f.Fuzz(func(t *testing.T, data []byte, at uint8) {
		synctest.Test(t, func(t *testing.T) {
			s := must.Get(oldredis.New("7.0", oldredis.Options{Clock: clock.New()}))(t)
			speaks := &speaker{s: s}
			defer speaks.close()
			speaks.lie = func(n int, honest []byte) []byte {
				if n >= int(at%16) && len(data) > 0 {
					piece := data[:min(len(data), 1+int(at)/16)]
					data = data[len(piece):]
					return piece
				}
				return honest
			}
			sources := []compat.Source{speaks.source(guard.Dial(speaks.dial))}
			locker := k.make(sources, compat.Options{NoRenew: true, Rand: func() float64 { return 0 }})
			for range 3 {
				if l, err := locker.TryLock(background, "k", time.Second); err == nil {
					l.Release(background) //nolint:errcheck // that it returns is what is asked
				}
			}
			locker.Close(background) //nolint:errcheck
			time.Sleep(time.Hour)
		})
	})
}
