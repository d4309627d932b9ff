package compat_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/txlock"
)

// An event carries the context of the call that did it; what nobody called for has that of the call which took the lock,
// and does not end with it.
func TestEventsCarryTheirContext(t *testing.T) {
	inItsOwnTime(t, func(t *testing.T, p *redis.Pool) {
		type call struct{}
		var mu sync.Mutex
		var seen []string
		o := compat.Options{Observer: func(e compat.Event) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, fmt.Sprint(e.Kind, " by ", e.Context.Value(call{}), ", ended ", e.Context.Err() != nil))
		}}
		k, repairs := compat.New(p, txlock.Renamed{}, o), compat.New(p, txlock.Classic{}, o)
		in := func(name string) context.Context { return context.WithValue(background, call{}, name) }
		var last *compat.Lock
		for _, step := range []struct {
			do   func() error
			want []string
		}{
			{func() error {
				c := p.Get()
				defer c.Close()
				if _, err := c.Do("SET", "crashed", protocol.NewToken()); err != nil { // before it set an end
					return err
				}
				ctx, stop := context.WithTimeout(in("waiting"), time.Minute)
				defer stop()
				l, err := repairs.Lock(ctx, "crashed", ttl)
				if err == nil {
					_, err = l.Detach(background)
				}
				return errors.Join(err, repairs.Close(background))
			}, []string{"attempt by waiting, ended false", "refused by waiting, ended false", "repaired by waiting, ended false",
				"attempt by waiting, ended false", "acquired by waiting, ended false"}},
			{func() (err error) { last, err = k.TryLock(in("TryLock"), "k", ttl); return err },
				[]string{"attempt by TryLock, ended false", "acquired by TryLock, ended false"}},
			{func() error {
				if _, err := k.TryLock(in("another"), "k", ttl); !errors.Is(err, compat.ErrHeld) {
					return fmt.Errorf("held by two: %w", err)
				}
				return nil
			}, []string{"attempt by another, ended false", "refused by another, ended false"}},
			{func() error { return last.Extend(in("Extend"), ttl) }, []string{"extended by Extend, ended false"}},
			{func() (err error) { last, err = last.Handoff(in("Handoff"), ttl); return err },
				[]string{"released by Handoff, ended false", "acquired by Handoff, ended false"}},
			{func() (err error) {
				h, err := last.Detach(in("Detach"))
				if err == nil {
					last, err = k.AdoptHandle(in("Adopt"), h, ttl)
				}
				return err
			}, []string{"acquired by Adopt, ended false"}},
			{func() error {
				ctx, cancel := context.WithCancel(in("Release"))
				cancel()
				return last.Release(ctx)
			}, []string{"released by Release, ended true"}},
			{func() error {
				return k.Do(in("Do"), "k", ttl, func(ctx context.Context) error {
					return compat.FromContext(ctx).Release(context.WithValue(ctx, call{}, "its function"))
				})
			}, []string{"attempt by Do, ended false", "acquired by Do, ended false", "released by its function, ended true"}},
			{func() (err error) {
				ctx, cancel := context.WithCancel(in("Lock"))
				defer cancel()
				last, err = k.Lock(ctx, "k", ttl)
				return err
			}, []string{"attempt by Lock, ended false", "acquired by Lock, ended false"}},
			{func() error { time.Sleep(ttl / 2); return nil }, []string{"extended by Lock, ended false"}},
			{func() error {
				c := p.Get()
				defer c.Close()
				_, err := c.Do("DEL", "k")
				time.Sleep(ttl / 2)
				return err
			}, []string{"lost by Lock, ended false"}},
			{func() (err error) { last, err = k.TryLock(in("TryLock"), "k", ttl); return err },
				[]string{"attempt by TryLock, ended false", "acquired by TryLock, ended false"}},
			{func() error { return k.Close(in("Close")) }, []string{"released by Close, ended false"}},
		} {
			if err := step.do(); err != nil {
				t.Fatal(step.want, err)
			}
			synctest.Wait()
			mu.Lock()
			if !slices.Equal(seen, step.want) {
				t.Errorf("%q, want %q", seen, step.want)
			}
			seen = nil
			mu.Unlock()
		}
	})
}
