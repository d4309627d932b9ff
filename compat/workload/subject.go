package workload

import (
	"context"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// Locks returns a Client of a Locker that uses source's connections and takes every lock for ttl.
// The caller must close the source.
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

// Pool returns a pool of connections to one server, counted by m, without a limit and without
// closing idle ones.
func Pool(m *Meter, address string, options ...redis.DialOption) *redis.Pool {
	options = append([]redis.DialOption{redis.DialContextFunc(m.Dial)}, options...)
	return &redis.Pool{MaxIdle: 1 << 20, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", address, options...)
	}}
}

// Ping returns a function that sends one PING over a connection of source.
func Ping(source compat.Source) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := source.Get(ctx, "")
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Do("PING")
		return err
	}
}

// Remove returns a function that deletes keys over a connection of source, one by one, because a
// cluster's keys are on several servers.
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
	c, err := source.Get(ctx, key)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do("DEL", key)
	return err
}

// A ping is the Held lock of Pings.
type ping func(context.Context) error

func (p ping) Release(ctx context.Context) error { return p(ctx) }

// Pings is a lower bound for every lock: one PING instead of acquiring, one instead of releasing.
// It does not exclude other clients.
func Pings(address string) Subject {
	return Subject{Name: "two PINGs", Open: func(m *Meter) (*Client, error) {
		pool := Pool(m, address)
		p := ping(Ping(compat.Pooled(pool)))
		return &Client{
			Lock:  func(ctx context.Context, _ string) (Held, error) { return p, p(ctx) },
			Ping:  p,
			Close: pool.Close,
		}, nil
	}}
}
