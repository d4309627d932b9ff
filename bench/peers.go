package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredigo "github.com/go-redsync/redsync/v4/redis/redigo"
	redigo "github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/workload"
)

// forever is more tries than there is time for: who waits is told when to stop.
const forever = 1 << 30

// floor is connections of redigo's beside a peer's own, which m does not count: PINGs over
// these are the floor that all are measured by.
func floor(s *server, m *workload.Meter) *redigo.Pool { return workload.Pool(m.Beside(), s.Address) }

// bsm is redislock over go-redis.
func bsm(s *server, name string, retry func() redislock.RetryStrategy) workload.Subject {
	return workload.Subject{Name: "redislock" + name, Open: func(m *workload.Meter) (*workload.Client, error) {
		client := goredis.NewClient(&goredis.Options{
			Addr: s.Address, PoolSize: 4096, MaxIdleConns: 4096, Dialer: m.Dial,
			DisableIdentity: true, // else old servers are asked for what they don't know
		})
		locks := redislock.New(client)
		beside := floor(s, m)
		return &workload.Client{
			Lock: func(ctx context.Context, key string) (workload.Held, error) {
				l, err := locks.Obtain(ctx, key, ttl, &redislock.Options{RetryStrategy: retry()})
				if err != nil {
					return nil, err
				}
				return l, nil
			},
			Ping:   workload.Ping(compat.Pooled(beside)),
			Remove: workload.Remove(compat.Pooled(beside)),
			Close:  func() error { return errors.Join(client.Close(), beside.Close()) },
		}, nil
	}}
}

type redsyncHeld struct{ *redsync.Mutex }

func (h redsyncHeld) Release(ctx context.Context) error {
	ok, err := h.UnlockContext(ctx)
	if err == nil && !ok {
		err = errors.New("redsync: not ours")
	}
	return err
}

// rsync is redsync over redigo.
func rsync(s *server, name string, options ...redsync.Option) workload.Subject {
	return workload.Subject{Name: "redsync" + name, Open: func(m *workload.Meter) (*workload.Client, error) {
		pool := workload.Pool(m, s.Address)
		locks := redsync.New(redsyncredigo.NewPool(pool))
		options = append([]redsync.Option{redsync.WithExpiry(ttl), redsync.WithTries(forever)}, options...)
		if err := tryRedsync(locks); err != nil {
			pool.Close()
			return nil, err
		}
		return &workload.Client{
			Lock: func(ctx context.Context, key string) (workload.Held, error) {
				l := locks.NewMutex(key, options...)
				if err := l.LockContext(ctx); err != nil {
					return nil, err
				}
				return redsyncHeld{l}, nil
			},
			Ping:   workload.Ping(compat.Pooled(pool)),
			Remove: workload.Remove(compat.Pooled(pool)),
			Close:  pool.Close,
		}, nil
	}}
}

// tryRedsync makes one try: with as many as it is told, it goes on after every error.
func tryRedsync(locks *redsync.Redsync) error {
	l := locks.NewMutex("setnxlock:bench:redsync", redsync.WithExpiry(ttl))
	if err := l.TryLock(); err != nil {
		return err
	}
	_, err := l.Unlock()
	return err
}

// A rueidisHeld is what gives a lock of rueidislock back: it waits until that is done, and
// does not say how it went.
type rueidisHeld context.CancelFunc

func (h rueidisHeld) Release(context.Context) error { h(); return nil }

const rueidisPrefix = "setnxlock:bench:rueidis"

// rueidisLock locks one key, not the three of its default, as the others do.
func rueidisLock(s *server, name string, tracking bool, next time.Duration) workload.Subject {
	return workload.Subject{Name: "rueidislock" + name, Open: func(m *workload.Meter) (*workload.Client, error) {
		o := rueidislock.LockerOption{
			KeyMajority: 1, KeyValidity: ttl, TryNextAfter: next, KeyPrefix: rueidisPrefix,
			FallbackSETPX: !s.atLeast("6.2"),
			ClientOption: rueidis.ClientOption{
				InitAddress: []string{s.Address}, DisableCache: !tracking, AlwaysRESP2: !tracking,
				DialCtxFn: func(ctx context.Context, address string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
					return m.Dial(ctx, "tcp", address)
				},
			},
		}
		locks, err := rueidislock.NewLocker(o)
		if err != nil {
			return nil, err
		}
		// WithContext asks again for ever where it is refused; this tells why.
		_, cancel, err := locks.TryWithContext(context.Background(), "try")
		if err != nil {
			locks.Close()
			return nil, err
		}
		cancel()
		beside := floor(s, m)
		return &workload.Client{
			Lock: func(ctx context.Context, key string) (workload.Held, error) {
				_, cancel, err := locks.WithContext(ctx, key)
				if err != nil {
					return nil, err
				}
				return rueidisHeld(cancel), nil
			},
			Ping: workload.Ping(compat.Pooled(beside)),
			Remove: func(ctx context.Context, keys ...string) error {
				for i, key := range keys {
					keys[i] = rueidisPrefix + ":0:" + key
				}
				return workload.Remove(compat.Pooled(beside))(ctx, keys...)
			},
			Close: func() error { locks.Close(); return beside.Close() },
		}, nil
	}}
}

// A modernHeld is a lock of what one writes by oneself since 2.6.12: SET NX PX and a script.
type modernHeld struct {
	pool  *redigo.Pool
	key   string
	token string
}

var modernRelease = redigo.NewScript(1, `if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) else return 0 end`)

func (h *modernHeld) Release(context.Context) error {
	c := h.pool.Get()
	defer c.Close()
	n, err := redigo.Int(modernRelease.Do(c, h.key, h.token))
	if err == nil && n != 1 {
		err = errors.New("not ours any more")
	}
	return err
}

const byHand = "SET NX PX + EVALSHA"

// modern is those few lines, without any of what a library adds. It does not wait.
func modern(s *server) workload.Subject {
	return workload.Subject{Name: byHand, Open: func(m *workload.Meter) (*workload.Client, error) {
		pool := workload.Pool(m, s.Address)
		return &workload.Client{
			Lock: func(_ context.Context, key string) (workload.Held, error) {
				var b [16]byte
				rand.Read(b[:]) //nolint:errcheck // it never fails
				token := base64.RawURLEncoding.EncodeToString(b[:])
				c := pool.Get()
				defer c.Close()
				ok, err := redigo.String(c.Do("SET", key, token, "NX", "PX", ttl.Milliseconds()))
				if err != nil {
					return nil, fmt.Errorf("SET NX PX: %w", err)
				}
				if ok != "OK" {
					return nil, errors.New("held")
				}
				return &modernHeld{pool, key, token}, nil
			},
			Ping:   workload.Ping(compat.Pooled(pool)),
			Remove: workload.Remove(compat.Pooled(pool)),
			Close:  pool.Close,
		}, nil
	}}
}

func never() redislock.RetryStrategy { return redislock.NoRetry() }

func linear(d time.Duration) func() redislock.RetryStrategy {
	return func() redislock.RetryStrategy { return redislock.LinearBackoff(d) }
}

func exponential() redislock.RetryStrategy {
	return redislock.ExponentialBackoff(16*time.Millisecond, 512*time.Millisecond)
}

// peers are the others where nobody waits.
func peers(s *server) []workload.Subject {
	return []workload.Subject{
		modern(s),
		bsm(s, "", never),
		rsync(s, ""),
		rueidisLock(s, ", no cache", false, 0),
		rueidisLock(s, ", tracking", true, 0),
	}
}

// waitingPeers are the others where somebody does, as they come and tuned.
// (redislock comes without a retry; its documentation shows the linear one.)
func waitingPeers(s *server) []workload.Subject {
	return []workload.Subject{
		bsm(s, ", 1 ms", linear(time.Millisecond)),
		bsm(s, ", 10 ms", linear(10*time.Millisecond)),
		bsm(s, ", 16..512 ms", exponential),
		rsync(s, ", 50..250 ms"),
		rsync(s, ", 1 ms", redsync.WithRetryDelay(time.Millisecond)),
		rueidisLock(s, ", no cache", false, 0),
		rueidisLock(s, ", tracking", true, 0),
	}
}
