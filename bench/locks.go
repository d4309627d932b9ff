package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// ttl is every lock's, ours and theirs: long enough to outlast a turn.
const ttl = 30 * time.Second

// A subject is a lock to be measured.
type subject struct {
	name  string
	waits bool // for a key that another has
	open  func(s *server, m *meter) (*client, error)
}

// A client belongs to one process. Its goroutines share it.
type client struct {
	lock  func(ctx context.Context, key string) (release func(context.Context) error, err error)
	close func()
}

// The subjects with a name of their own; the others have their lock's.
const (
	twoPings = "two PINGs"
	byHand   = "by hand"
)

// subjects returns two PINGs; auto's choice; the best of our two other families; and, where they run, a lock
// written by hand and those of other libraries. All of ours are as they come.
func subjects(s *server) []subject {
	list := []subject{
		{twoPings, false, pings},
		{s.auto.Name, true, ours(s.auto.Algorithm)},
	}
	for _, family := range []string{"tx", "getset"} {
		if name, a := best(s, family); name != "" && name != s.auto.Name {
			list = append(list, subject{name, false, ours(a)})
		}
	}
	if !s.atLeast("2.6.12") { // no SET NX PX
		return list
	}
	return append(list,
		subject{byHand, false, handWritten},
		subject{"redislock", true, bsm},
		subject{"redsync", true, redsyncs},
		subject{"rueidislock", true, rueidisLock})
}

// best finds the server's best lock of a family; "" if it has none.
func best(s *server, family string) (name string, a protocol.Algorithm) {
	p := pool(new(meter), s.address)
	defer p.Close()
	for _, l := range locks.Named(family) {
		a := l.New(locks.Options{Millis: s.atLeast("2.6")})
		lock, err := compat.New(p, a, compat.Options{}).TryLock(context.Background(), prefix+"try", ttl)
		if err == nil && lock.Release(context.Background()) == nil {
			return l.Name, a
		}
	}
	return "", nil
}

// pool makes a pool without a limit, which closes no idle connection.
func pool(m *meter, address string) *redis.Pool {
	return &redis.Pool{MaxIdle: 1 << 20, DialContext: func(ctx context.Context) (redis.Conn, error) {
		return redis.DialContext(ctx, "tcp", address, redis.DialContextFunc(m.dial))
	}}
}

// pings makes the floor: one PING instead of an acquisition, one instead of a release.
func pings(s *server, m *meter) (*client, error) {
	p := pool(m, s.address)
	ping := func(context.Context) error {
		c := p.Get()
		defer c.Close()
		_, err := c.Do("PING")
		return err
	}
	return &client{
		lock:  func(ctx context.Context, _ string) (func(context.Context) error, error) { return ping, ping(ctx) },
		close: func() { p.Close() },
	}, nil
}

func ours(a protocol.Algorithm) func(*server, *meter) (*client, error) {
	return func(s *server, m *meter) (*client, error) {
		p := pool(m, s.address)
		k := compat.New(p, a, compat.Options{})
		return &client{
			lock: func(ctx context.Context, key string) (func(context.Context) error, error) {
				l, err := k.Lock(ctx, key, ttl)
				if err != nil {
					return nil, err
				}
				return l.Release, nil
			},
			close: func() {
				k.Close(context.Background()) //nolint:errcheck // nothing is held
				p.Close()
			},
		}, nil
	}
}

var (
	errNotOurs = errors.New("it is not ours any more")
	delIfOurs  = redis.NewScript(1, `
		if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)
)

// handWritten makes the lock written by hand since 2.6.12: SET NX PX, and a script. It does not wait.
func handWritten(s *server, m *meter) (*client, error) {
	p := pool(m, s.address)
	return &client{
		lock: func(_ context.Context, key string) (func(context.Context) error, error) {
			var b [16]byte
			rand.Read(b[:]) //nolint:errcheck // it never fails
			token := base64.RawURLEncoding.EncodeToString(b[:])
			c := p.Get()
			defer c.Close()
			if _, err := redis.String(c.Do("SET", key, token, "NX", "PX", ttl.Milliseconds())); err != nil {
				return nil, err
			}
			return func(context.Context) error {
				c := p.Get()
				defer c.Close()
				n, err := redis.Int(delIfOurs.Do(c, key, token))
				if err == nil && n != 1 {
					err = errNotOurs
				}
				return err
			}, nil
		},
		close: func() { p.Close() },
	}, nil
}

// bsm makes redislock over go-redis. It comes without a wait: this is the longer one of its two strategies.
func bsm(s *server, m *meter) (*client, error) {
	c := goredis.NewClient(&goredis.Options{
		Addr: s.address, PoolSize: 4096, MaxIdleConns: 4096, Dialer: m.dial,
		DisableIdentity: true, // else old servers are asked for what they don't know
	})
	locks := redislock.New(c)
	return &client{
		lock: func(ctx context.Context, key string) (func(context.Context) error, error) {
			wait := redislock.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond)
			l, err := locks.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: wait})
			if err != nil {
				return nil, err
			}
			return l.Release, nil
		},
		close: func() { c.Close() },
	}, nil
}

// redsyncs makes redsync over redigo. It waits as it comes: 50 to 250 ms.
func redsyncs(s *server, m *meter) (*client, error) {
	p := pool(m, s.address)
	locks := redsync.New(redsyncredigo.NewPool(p))
	return &client{
		lock: func(ctx context.Context, key string) (func(context.Context) error, error) {
			l := locks.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithTries(1<<30))
			if err := l.LockContext(ctx); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				ok, err := l.UnlockContext(ctx)
				if err == nil && !ok {
					err = errNotOurs
				}
				return err
			}, nil
		},
		close: func() { p.Close() },
	}, nil
}

// rueidisLock locks one key, not the three of its default, as the others do. From 6.2 on the server
// notifies it; an acquisition that took longer than its default of 20 ms would then wait for ever.
func rueidisLock(s *server, m *meter) (*client, error) {
	old, next := !s.atLeast("6.2"), time.Second
	if old {
		next = 20 * time.Millisecond
	}
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		KeyMajority: 1, KeyValidity: ttl, KeyPrefix: prefix + "rueidis",
		TryNextAfter: next, FallbackSETPX: old,
		ClientOption: rueidis.ClientOption{
			InitAddress: []string{s.address}, DisableCache: old, AlwaysRESP2: old,
			DialCtxFn: func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return m.dial(ctx, "tcp", address)
			},
		},
	})
	if err != nil {
		return nil, err
	}
	return &client{
		lock: func(ctx context.Context, key string) (func(context.Context) error, error) {
			_, cancel, err := locks.WithContext(ctx, key)
			return func(context.Context) error { cancel(); return nil }, err // it does not say how the release went
		},
		close: locks.Close,
	}, nil
}
