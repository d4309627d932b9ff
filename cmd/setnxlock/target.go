package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// A target is what is locked, and by which lock.
type target struct {
	name  string         // of the lock, as --algorithm has it
	locks *compat.Locker // without a prefix: key has it
	key   string         // for locks
	asked []string       // the keys as they were given
	says  string         // the key for people
	look  func(context.Context) (compat.State, error)
}

// target chooses the lock for keys, by what the servers can do.
func (a *app) target(ctx context.Context, p *place, keys []string, fence bool, o compat.Options) (*target, error) {
	key, err := a.onServer(keys[0])
	if err != nil {
		return nil, err
	}
	t, err := a.named(ctx, p, key, fence, o)
	if err == nil {
		t.asked = keys
	}
	return t, err
}

// named is the target of a key with its prefix.
func (a *app) named(ctx context.Context, p *place, key string, fence bool, o compat.Options) (*target, error) {
	c, err := a.pick(ctx, p.one(), key, fence)
	if err != nil {
		return nil, err
	}
	return &target{
		name: c.name, locks: compat.New(p.one(), c.Algorithm, o), key: key, says: fmt.Sprintf("%q", key),
		look: func(ctx context.Context) (compat.State, error) { return a.look(ctx, p, key) },
	}, nil
}

// busy is the failure of a wait that is over. It looks once more at the key, for
// the user to learn how long it would have taken; and a key that is no lock at
// all is told as that, since no wait would ever end.
func (t *target) busy(ctx context.Context, f runFlags) error {
	text := t.says + " is held by another client"
	s, err := t.look(ctx)
	switch {
	case errors.Is(err, compat.ErrForeign):
		return err
	case err != nil:
	case s.Status == compat.StatusEndless:
		text += ", without an end"
	case s.Status == compat.StatusForeign:
		text += ", in another format"
	case !s.Until.IsZero():
		text += fmt.Sprintf(" until %s (unless it is renewed)", clockTime(s.Until))
	}
	if f.wait > 0 {
		text += fmt.Sprintf("; not obtained within %v", time.Duration(f.wait))
	}
	return &failure{f.busyStatus, errors.New(text), "setnxlock inspect " + strings.Join(t.asked, " ") + " shows what holds it"}
}
