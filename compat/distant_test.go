package compat_test

import (
	"context"
	"time"

	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// A distant connection leads to an embedded server that is so far away: the first half of the time a
// write is on its way, the second half its replies.
type distant struct {
	*oldredis.Conn
	away *time.Duration
}

func (c distant) Do(name string, args ...any) (any, error) {
	return c.DoContext(context.Background(), name, args...)
}

func (c distant) DoContext(ctx context.Context, name string, args ...any) (reply any, err error) {
	if err := pause(ctx, *c.away/2); err != nil {
		c.Close()
		return nil, err
	}
	if reply, err = c.Conn.DoContext(ctx, name, args...); err == nil {
		if err = pause(ctx, *c.away/2); err != nil {
			c.Close()
			return nil, err
		}
	}
	return reply, err
}

func (c distant) DoWithTimeout(limit time.Duration, name string, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.DoContext(ctx, name, args...)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
