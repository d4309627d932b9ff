package promises_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
)

// nested is a proxy, as Envoy: of two transactions that are pipelined it refuses the second MULTI, and runs what follows
// one by one.
func nested(s compat.Pool, refused *int) compat.Pool {
	return &redis.Pool{MaxIdle: 16, DialContext: func(ctx context.Context) (redis.Conn, error) {
		to, err := s.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		return faulty.Carried(func(_ context.Context, write [][]any) (replies []any, err error) {
			time.Sleep(10 * time.Millisecond) // others send meanwhile
			ended, alone := false, false
			for _, cmd := range write {
				name := cmd[0].(string)
				if ended && name == "MULTI" {
					*refused++
					alone = true
					replies = append(replies, redis.Error("ERR MULTI calls can not be nested"))
					continue
				}
				if alone && name == "EXEC" {
					replies = append(replies, redis.Error("ERR EXEC without MULTI"))
					continue
				}
				reply, err := to.Do(name, cmd[1:]...)
				var said redis.Error
				if errors.As(err, &said) {
					reply = said
				} else if err != nil {
					return nil, err
				}
				ended = ended || name == "EXEC"
				replies = append(replies, reply)
			}
			return replies, nil
		}, func(bool) { to.Close() }), nil
	}}
}

// full is a server that has as many clients as it takes, once the first has come.
func full(s compat.Pool) compat.Pool {
	clients := 0
	return &redis.Pool{MaxIdle: 16, DialContext: func(ctx context.Context) (redis.Conn, error) {
		if clients++; clients == 1 {
			return s.GetContext(ctx)
		}
		over := false
		return faulty.Carried(func(_ context.Context, write [][]any) ([]any, error) {
			if over = over || len(write) > 1; over {
				return nil, io.EOF
			}
			over = true
			return []any{redis.Error("ERR max number of clients reached")}, nil
		}, func(bool) {}), nil
	}}
}

// A server that takes no more clients is not taken for a proxy that lacks commands, because a connection that is shared
// lives; and no key is left on it.
func TestNoMoreClientsIsNoProxy(t *testing.T) {
	eachKind(t, withShared(singles(false)), func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			locker := k.make([]compat.Source{compat.Pooled(full(w.servers[0]))}, compat.Options{NoRenew: true, Clock: clock.New()})
			if _, err := locker.Inspect(background, "k"); err != nil { // by the first
				t.Fatal(err)
			}
			for i := range 3 {
				_, err := locker.TryLock(background, fmt.Sprint("k", i), long)
				for _, wrong := range []error{compat.ErrUnanswered, compat.ErrUnsafeServer, compat.ErrUnknown} {
					if errors.Is(err, wrong) {
						t.Errorf("TryLock: %v", err)
					}
				}
				if n := w.integer("DBSIZE"); err != nil && n > 0 {
					t.Errorf("%v, and %d keys are left", err, n)
				}
			}
			locker.Close(background) //nolint:errcheck // something may be held
		})
	})
}

// Where transactions can't be pipelined none is, whoever shares a connection.
func TestNoTransactionIsPipelinedIntoAnother(t *testing.T) {
	kinds := singles(true)
	for i := range kinds {
		kinds[i] = sharing(kinds[i])
	}
	eachKind(t, kinds, func(t *testing.T, k kind) {
		inWorld(t, k, func(w *world) {
			refused, asked := 0, 0
			locker := k.make([]compat.Source{compat.Pooled(nested(w.servers[0], &refused))}, compat.Options{NoRenew: true, Clock: clock.New()})
			for round := range 3 {
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						l, err := locker.TryLock(background, fmt.Sprint("k", i), long)
						if err == nil {
							err = errors.Join(l.Extend(background, long), l.Release(background))
						}
						if err != nil {
							t.Errorf("round %d: %v", round, err)
						}
					})
				}
				wg.Wait()
				if round == 0 {
					asked = refused
				}
			}
			if refused > max(asked, 2) {
				t.Errorf("%d transactions were pipelined into others, after %d questions", refused, asked)
			}
			locker.Close(background) //nolint:errcheck // nothing is held
		})
	})
}
