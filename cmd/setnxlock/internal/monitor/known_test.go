package monitor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/broken"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

var update = flag.Bool("update", false, "rewrite known.txt")

// record is what MONITOR prints on a real server while f runs, until a command with the word end.
func record(t *testing.T, addr string, f func()) string {
	t.Helper()
	c := must.Get(redis.Dial("tcp", addr))(t)
	defer c.Close()
	must.Get(c.Do("MONITOR"))(t)
	got := make(chan string, 1)
	go func() {
		var b strings.Builder
		for {
			line, err := redis.String(redis.ReceiveWithTimeout(c, time.Minute))
			if err != nil || strings.HasSuffix(line, `"ECHO" "the end"`) {
				got <- b.String()
				return
			}
			b.WriteString(line + "\n")
		}
	}()
	f()
	must.Get(realredis.Ask(addr, "ECHO", "the end"))(t)
	return <-got
}

// Each lock is recognised by what it does, as MONITOR of a real server prints it: taken, refused, extended, released, and
// taken over. known.txt is what is seen.
func TestLocksAreRecognised(t *testing.T) {
	addr := realredis.Start(t)
	type subject struct {
		name, key string
	}
	var subjects []subject
	log := record(t, addr, func() {
		var all sync.WaitGroup
		begin := func(name string, algorithm func() protocol.Algorithm) {
			s := subject{name, "lock." + strings.ReplaceAll(name, ":", ".")}
			subjects = append(subjects, s)
			all.Go(func() {
				if err := live(addr, s.key, algorithm); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			})
		}
		for _, l := range locks.All() {
			if f := l.Family(); l.New == nil || l.Shared || f != "getset" && f != "tx" && f != "set" || l.Name == "getset:patient" || l.Name == "getset:two-keys" || l.Name == "set:ifeq" { // one wants a lease for all, one has no key of this name, one wants a newer server
				continue
			}
			begin(l.Name, func() protocol.Algorithm { return l.New(locks.Options{}) })
		}
		for _, l := range broken.Published() {
			if !strings.HasPrefix(l.Name, "rw:") && l.Most == 0 {
				begin(l.Name, func() protocol.Algorithm { return l.New(protocol.NewToken, false) })
			}
		}
		all.Wait()
	})
	var text strings.Builder
	for _, s := range subjects {
		got, err := Read(log, Options{Key: s.key})
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
			continue
		}
		if v := got.Trace.Verdict; v.Violated != "" {
			t.Errorf("%s: %s at step %d", s.name, v.Violated, v.Step)
			for _, e := range got.Trace.Events {
				t.Logf("%d %s %s → %s: %s %q", e.At, e.Who, e.Cmd, e.Reply, e.Why, e.Server.Value)
			}
		}
		does := map[string]bool{}
		for _, f := range got.Follows {
			for _, d := range f.Does {
				does[d] = true
			}
			if !*update && !slices.Contains(f.Like, s.name) && len(f.Does) > 0 {
				t.Errorf("%s: %s is like %q, by %q", s.name, f.Client, f.Like, f.Does)
			}
		}
		fmt.Fprintf(&text, "%s | %s\n", s.name, strings.Join(slices.Sorted(maps.Keys(does)), " | "))
	}
	if *update {
		must.Do(t, os.WriteFile("known.txt", []byte(text.String()), 0o666))
	} else if text.String() != knownText {
		t.Errorf("go test ./cmd/setnxlock/internal/monitor -run LocksAreRecognised -update\n%s", text.String())
	}
}

// live is the life of a lock: two clients take it, are refused, extend and release it, and one takes over what the other left.
func live(addr, key string, algorithm func() protocol.Algorithm) error {
	ctx := context.Background()
	const ttl = time.Minute
	lockers := make([]*compat.Locker, 2)
	for i := range lockers {
		pool := &redis.Pool{MaxIdle: 1, MaxActive: 1, Wait: true, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", addr) }}
		defer pool.Close()
		lockers[i] = compat.New(pool, algorithm(), compat.Options{Timeout: time.Minute, NoRenew: true})
	}
	l, err := lockers[0].TryLock(ctx, key, ttl)
	if err != nil {
		return err
	}
	if _, err := lockers[1].TryLock(ctx, key, ttl); !errors.Is(err, compat.ErrHeld) {
		return fmt.Errorf("the second got it: %w", err)
	}
	if err := l.Extend(ctx, ttl); err != nil {
		return err
	}
	if err := l.Release(ctx); err != nil {
		return err
	}
	if _, err := lockers[0].TryLock(ctx, key, time.Second); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	l, err = lockers[1].Lock(ctx, key, ttl)
	if err != nil {
		return err
	}
	return l.Release(ctx)
}
