package locks_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/multilock"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// besides are the commands that docs/servers.md says something needs beside a lock's line.
func besides(t *testing.T, what string) []string {
	t.Helper()
	page := must.Get(os.ReadFile("../../docs/servers.md"))(t)
	m := regexp.MustCompile(regexp.QuoteMeta(what) + " needs `([^`]*)`").FindSubmatch(page)
	if m == nil {
		t.Fatalf("docs/servers.md does not say what %s needs", what)
	}
	return strings.Fields(string(m[1]))
}

// A restricted is a server with one user who may do little.
type restricted struct {
	*testing.T
	addr  string
	admin redis.Conn
	used  map[string]bool
}

func restrict(t *testing.T) *restricted {
	r := &restricted{T: t, addr: realredis.Start(t), used: map[string]bool{}}
	var err error
	if r.admin, err = redis.Dial("tcp", r.addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.admin.Close() })
	return r
}

func (r *restricted) do(words ...any) any {
	r.Helper()
	reply, err := r.admin.Do(words[0].(string), words[1:]...)
	if err != nil {
		r.Fatalf("%v: %v", words, err)
	}
	return reply
}

// begin forgets the refusals and the commands so far.
func (r *restricted) begin() {
	r.Helper()
	r.do("ACL", "LOG", "RESET")
	r.do("CONFIG", "RESETSTAT")
}

// as runs f as a user with l's line and more, and demands that nothing is refused.
func (r *restricted) as(l locks.Lock, more []string, f func(compat.Source)) {
	r.Helper()
	words := []any{"SETUSER", "locker", "reset", "on", ">secret"}
	for _, rule := range append(strings.Fields(l.ACL("app:")), more...) {
		words = append(words, rule)
	}
	r.do(append([]any{"ACL"}, words...)...)
	pool := &redis.Pool{MaxIdle: 4, Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", r.addr, redis.DialUsername("locker"), redis.DialPassword("secret"))
	}}
	defer pool.Close()
	r.begin()
	source := compat.Pooled(pool)
	if !slices.Contains(more, "+rpoplpush") {
		source.Listen = -1 // no release wakes anybody
	}
	f(source)
	for _, entry := range r.do("ACL", "LOG").([]any) {
		fields, _ := redis.Values(entry, nil)
		r.Errorf("%s: the lines lack something: %q", l.Name, fields[:10])
	}
	stats, _ := redis.String(r.do("INFO", "commandstats"), nil)
	for line := range strings.Lines(stats) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		r.used["+"+name] = true
	}
	r.do("FLUSHALL")
}

// sent demands that each of these was sent by somebody.
func (r *restricted) sent(granted []string) {
	for _, c := range granted {
		if !r.used[c] {
			r.Errorf("%s is granted, and never sent; sent are %q", c, slices.Sorted(maps.Keys(r.used)))
		}
	}
}

// What docs/servers.md says that wake-ups need beside a lock's line is enough, and all of it
// is sent: by one that waits, by one that gives up, and by a release that wakes.
func TestSignalACL(t *testing.T) {
	more := besides(t, "A wake-up")
	r := restrict(t)
	for _, l := range locks.All() {
		a := made(l, false)
		if a == nil || l.Shared || l.Name == "getset:two-keys" || l.OneOf != nil { // see TestACLToday
			continue
		}
		r.as(l, more, func(source compat.Source) {
			const key = "app:k"
			// A wake-up, or nothing.
			o := compat.Options{Timeout: time.Minute, Poll: time.Minute}
			holder, waiter := compat.NewOn(source, a, o), compat.NewOn(source, a, o)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			waiting := func(n int64) {
				for ctx.Err() == nil && r.do("LLEN", protocol.Aux(key, "waiters")) != n {
					r.do("WAIT", 1, 10) // a pause of 10 ms: it has no replica
				}
			}
			lock, err := holder.TryLock(ctx, key, time.Minute)
			if err != nil {
				t.Fatalf("%s: %v", l.Name, err)
			}
			leaving, leave := context.WithCancel(ctx)
			left := make(chan error, 1)
			go func() { _, err := waiter.Lock(leaving, key, time.Minute); left <- err }()
			waiting(1)
			leave()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: a wait that was given up: %v", l.Name, err)
			}
			waiting(0)
			got := make(chan error, 1)
			var next *compat.Lock
			go func() { var err error; next, err = waiter.Lock(ctx, key, time.Minute); got <- err }()
			waiting(1)
			if err := lock.Release(ctx); err != nil {
				t.Errorf("%s: %v", l.Name, err)
			}
			if err := <-got; err != nil {
				t.Fatalf("%s: a wait for a release: %v", l.Name, err)
			}
			if err := next.Release(ctx); err != nil {
				t.Errorf("%s: %v", l.Name, err)
			}
			for _, k := range []*compat.Locker{holder, waiter} {
				if err := k.Close(ctx); err != nil {
					t.Errorf("%s: Close: %v", l.Name, err)
				}
			}
		})
	}
	r.sent(more)
}

// So is what it says of locks of several keys.
func TestSeveralACL(t *testing.T) {
	more := besides(t, "A lock of several keys")
	r := restrict(t)
	for _, l := range locks.All() {
		if l.OneOf != nil { // see TestACLToday
			continue
		}
		for _, fence := range []bool{false, true} {
			o := locks.Options{Fence: fence, Millis: true}
			ways := map[string]func(compat.Source) compat.Backend{}
			if l.New != nil && l.Name != "getset:two-keys" {
				ways["in turn"] = func(s compat.Source) compat.Backend { return multilock.New(s, made(l, fence)) }
			}
			if l.Several != nil {
				ways["at once"] = func(s compat.Source) compat.Backend { return compat.NewBackend(s, l.Several(o)) }
			}
			for way, backend := range ways {
				r.as(l, more, func(source compat.Source) { r.set(l.Name+", "+way, backend(source), l.Shared) })
			}
		}
	}
	r.sent(more)
}

// set does with the lock of a set what can be done with it.
func (r *restricted) set(name string, b compat.Backend, shared bool) {
	ctx := r.Context()
	k := compat.NewLocker(b, compat.Options{Timeout: time.Minute})
	defer k.Close(ctx) //nolint:errcheck // nothing is held
	must := func(what string, err error) {
		r.Helper()
		if err != nil && !errors.Is(err, errors.ErrUnsupported) {
			r.Errorf("%s: %s: %v", name, what, err)
		}
	}
	key := multilock.Join("app:a", "app:b")
	r.do("INCR", protocol.Aux("app:b", "fence")) // counters that are apart
	lock, err := k.TryLock(ctx, key, 10*time.Second)
	if must("TryLock", err); err != nil {
		return
	}
	if _, err := k.TryLock(ctx, key, 10*time.Second); !shared && !errors.Is(err, compat.ErrHeld) {
		r.Errorf("%s: a second TryLock: %v, want ErrHeld", name, err)
	}
	must("Extend", lock.Extend(ctx, 20*time.Second))
	_, err = k.Inspect(ctx, key)
	must("Inspect", err)
	handle, err := lock.Detach(ctx)
	must("Detach", err)
	lock, err = k.AdoptHandle(ctx, handle, 10*time.Second)
	if must("Adopt", err); err != nil {
		return
	}
	must("Release", lock.Release(ctx))
	if strings.HasPrefix(name, "getset:") && !strings.HasPrefix(name, "getset:patient") { // a dead time is taken over
		r.do("MSET", "app:a", "1000000000.5", "app:b", "1000000000.5")
		lock, err = k.TryLock(ctx, key, 10*time.Second)
		if must("a takeover", err); err == nil {
			must("its Release", lock.Release(ctx))
		}
	}
	r.do("FLUSHALL")
	lock, err = k.TryLock(ctx, key, 10*time.Second)
	if must("TryLock", err); err == nil {
		r.do("DEL", "app:a")
		if err := lock.Release(ctx); !shared && !errors.Is(err, compat.ErrLost) {
			r.Errorf("%s: Release of a set that has lost a key: %v, want ErrLost", name, err)
		}
	}
}
