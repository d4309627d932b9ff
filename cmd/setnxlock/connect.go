package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// connect returns a pool of connections to the server, and makes the first one,
// so that a server that is not there is told at once, before anything waits.
func (a *app) connect(ctx context.Context) (*redis.Pool, error) {
	address, err := redisURL(a.redis)
	if err != nil {
		return nil, err
	}
	pool := &redis.Pool{
		MaxIdle: 2,
		// A server's timeout, or a router between us, closes idle connections
		// and we learn of it only by a failed renewal. Polls are closer
		// together than this, renewals dial anew. (A PING to find out is
		// refused by old proxies.)
		IdleTimeout: time.Second,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialURLContext(ctx, address,
				redis.DialConnectTimeout(a.timeout),
				redis.DialTLSHandshakeTimeout(a.timeout),
				redis.DialReadTimeout(a.timeout),
				redis.DialWriteTimeout(a.timeout))
		},
	}
	c, err := pool.GetContext(ctx)
	if err != nil {
		pool.Close()
		return nil, a.unreachable(ctx, err)
	}
	c.Close()
	return pool, nil
}

// unreachable is the failure of a connection that could not be made.
func (a *app) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	const hint = "give the server's address with --redis or in SETNXLOCK_REDIS"
	var refused redis.Error
	switch {
	case errors.As(err, &refused):
		return explain(err)
	case noRedis(err):
		return &failure{statusUnavailable, fmt.Errorf("what answers at %s is no Redis: %w", serverName(a.redis), err), hint}
	}
	return &failure{statusUnavailable, fmt.Errorf("no connection to %s: %w", serverName(a.redis), err), hint}
}

// noRedis reports that an answer was not in Redis's protocol.
func noRedis(err error) bool { return strings.Contains(err.Error(), "redigo: ") }

// silent reports that a server took longer to answer than --timeout.
func silent(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// redisURL makes a URL of what --redis was given. Its errors don't repeat the
// argument, which may hold a password.
func redisURL(arg string) (string, error) {
	const hint = "it is host:port, redis://[:password@]host:port[/db] or rediss://..."
	if !strings.Contains(arg, "://") {
		if strings.Contains(arg, "@") || strings.Contains(arg, "/") {
			return "", &failure{statusUsage, fmt.Errorf("--redis is neither host:port nor a URL"), hint}
		}
		if _, _, err := net.SplitHostPort(arg); err != nil {
			if strings.Contains(strings.Trim(arg, "[]"), ":") && !strings.HasPrefix(arg, "[") {
				return "", &failure{statusUsage, fmt.Errorf("--redis %q is not host:port", arg), hint}
			}
			arg = net.JoinHostPort(strings.Trim(arg, "[]"), "6379")
		}
		arg = "redis://" + arg
	}
	u, err := url.Parse(arg)
	if err != nil {
		return "", &failure{statusUsage, fmt.Errorf("--redis is not a URL that can be read"), hint + "; special characters in the password are written %40 and so on"}
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return "", &failure{statusUsage, fmt.Errorf("--redis is a %s:// URL", u.Scheme), hint}
	}
	if db := strings.Trim(u.Path, "/"); strings.Trim(db, "0123456789") != "" {
		return "", &failure{statusUsage, fmt.Errorf("--redis has %q where a database's number belongs", db), hint}
	}
	return u.String(), nil
}

// serverName is the server as messages call it: without the password.
func serverName(arg string) string {
	s, err := redisURL(arg)
	if err != nil {
		return arg
	}
	u, err := url.Parse(s)
	if err != nil {
		return "the server"
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "6379")
	}
	return u.Host
}
