package workload

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Locks returns the Client of a Locker whose connections are source's: every lock
// for ttl. The source is the caller's to close.
func Locks(k *compat.Locker, source compat.Source, ttl time.Duration) *Client {
	return &Client{
		Ping:   Ping(source),
		Remove: Remove(source),
		Lock: func(ctx context.Context, key string) (Held, error) {
			l, err := k.Lock(ctx, key, ttl)
			if err != nil {
				return nil, err
			}
			return l, nil
		},
	}
}

// Pool is connections to one server, counted by m: as many as are wanted at the
// same time, all of them kept.
func Pool(m *Meter, address string, options ...redis.DialOption) *redis.Pool {
	options = append([]redis.DialOption{redis.DialContextFunc(m.Dial)}, options...)
	return &redis.Pool{MaxIdle: 1 << 20, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", address, options...)
	}}
}

// Ping is one PING over a connection of source.
func Ping(source compat.Source) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := source.GetContext(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Do("PING")
		return err
	}
}

// Remove deletes keys over a connection of source, whatever they hold; one by one, since
// those of a cluster are not all in one place.
func Remove(source compat.Source) func(context.Context, ...string) error {
	return func(ctx context.Context, keys ...string) error {
		for _, key := range keys {
			if err := remove(ctx, source, key); err != nil {
				return err
			}
		}
		return nil
	}
}

func remove(ctx context.Context, source compat.Source, key string) error {
	get := source.GetContext
	if k, ok := source.(compat.KeySource); ok {
		get = func(ctx context.Context) (redis.Conn, error) { return k.GetFor(ctx, key) }
	}
	c, err := get(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do("DEL", key)
	return err
}

// A ping is what Pings holds.
type ping func(context.Context) error

func (p ping) Release(ctx context.Context) error { return p(ctx) }

// Pings is what no lock can be faster than: a PING in place of taking it, one in place of
// giving it back. It excludes nobody.
func Pings(address string) Subject {
	return Subject{Name: "two PINGs", Open: func(m *Meter) (*Client, error) {
		pool := Pool(m, address)
		p := ping(Ping(pool))
		return &Client{
			Lock:  func(ctx context.Context, _ string) (Held, error) { return p, p(ctx) },
			Ping:  p,
			Close: pool.Close,
		}, nil
	}}
}
