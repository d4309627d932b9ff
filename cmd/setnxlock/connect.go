package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// A deployment is where the keys live: one server, the master that Sentinels name, or
// a cluster; for a quorum, several servers that know nothing of each other.
type deployment struct {
	nodes   []node
	cluster bool
}

// A node is one server, or one cluster, of a deployment.
type node struct {
	name   string // as messages call it: without the password
	source compat.Source
	close  func() error
}

// one is the deployment's only node. A quorum has none.
func (p *deployment) one() node { return p.nodes[0] }

// Close gives up all connections.
func (p *deployment) Close() {
	for _, n := range p.nodes {
		n.close() //nolint:errcheck // nothing is asked of it any more
	}
}

// connect opens the deployment that the flags name and makes the first connection,
// so that the user learns at once that a server is not there. Of a quorum a
// majority must be there.
func (a *app) connect(ctx context.Context) (*deployment, error) {
	p, err := a.deployment()
	if err != nil {
		return nil, err
	}
	away := 0
	for _, n := range p.nodes {
		c, err := n.source.Get(ctx, "")
		if err == nil {
			c.Close()
			continue
		}
		if away++; 2*away >= len(p.nodes) || ctx.Err() != nil {
			p.Close()
			return nil, a.unreachable(ctx, n, err)
		}
		a.log().Warn("a server of the quorum can't be reached", "server", n.name, "error", err)
	}
	return p, nil
}

// session is one connection to the only server there is. Close both, the
// connection first.
func (a *app) session(ctx context.Context) (*deployment, redis.Conn, error) {
	p, err := a.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	c, err := p.one().source.Get(ctx, "")
	if err != nil {
		p.Close()
		return nil, nil, a.unreachable(ctx, p.one(), err)
	}
	return p, c, nil
}

// deployment makes the one that the flags name.
func (a *app) deployment() (*deployment, error) {
	var urls []string
	for _, arg := range a.redis.list {
		u, err := redisURL(arg)
		if err != nil {
			return nil, err
		}
		urls = append(urls, u)
	}
	switch {
	case a.sentinel != "" && a.cluster:
		return nil, &failure{statusUsage, errors.New("--sentinel and --cluster exclude each other"), ""}
	case a.sentinel != "":
		return a.sentinelDeployment(urls[0])
	case a.cluster:
		return a.clusterDeployment(urls)
	case len(urls) > 1 && a.algorithm != "redlock":
		return nil, &failure{statusUsage, errors.New("--redis names several servers"),
			"--algorithm redlock takes its locks on a majority of them; --cluster says that they are nodes of one cluster"}
	}
	p := &deployment{}
	for i, u := range urls {
		pool := a.pool(u)
		p.nodes = append(p.nodes, node{serverName(a.redis.list[i]), compat.Pooled(pool), pool.Close})
	}
	return p, nil
}

// pool makes connections to the server at a URL.
func (a *app) pool(address string) *redis.Pool {
	return &redis.Pool{
		MaxIdle: a.idle(),
		// A server's timeout, or a router between us, closes idle connections
		// and we learn of it only by a failed renewal. Polls are closer
		// together than this, renewals dial anew. (A PING to find out is
		// refused by old proxies.)
		IdleTimeout: time.Second,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return a.dialURL(ctx, address)
		},
	}
}

// idle is how many connections wait for their next use: a benchmark must not
// measure how long dialling takes.
func (a *app) idle() int {
	if a.meter != nil {
		return 1 << 16
	}
	return 2
}

// dialURL connects to the server at a URL. What is to be counted must be seen
// before TLS hides it, so it is put on top of it.
func (a *app) dialURL(ctx context.Context, address string) (redis.Conn, error) {
	options := a.dialOptions()
	if a.meter == nil {
		return redis.DialURLContext(ctx, address, options...)
	}
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	meter := a.meter
	if u.Scheme == "rediss" {
		u.Scheme = "redis"
		meter = meter.Over((&tls.Dialer{NetDialer: &net.Dialer{Timeout: a.timeout}, Config: &tls.Config{ServerName: u.Hostname()}}).DialContext)
	}
	return redis.DialURLContext(ctx, u.String(), append(options, redis.DialContextFunc(meter.Dial))...)
}

func (a *app) dialOptions() []redis.DialOption {
	return []redis.DialOption{
		redis.DialConnectTimeout(a.timeout),
		redis.DialTLSHandshakeTimeout(a.timeout),
		redis.DialReadTimeout(a.timeout),
		redis.DialWriteTimeout(a.timeout),
	}
}

// unreachable is the failure of a connection that could not be made.
func (a *app) unreachable(ctx context.Context, n node, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	const hint = "give the server's address with --redis or in SETNXLOCK_REDIS"
	var refused redis.Error
	switch {
	case errors.As(err, &refused):
		return explain(err)
	case notRedis(err):
		return &failure{statusUnavailable, fmt.Errorf("what answers at %s is not a Redis server: %w", n.name, err), hint}
	}
	return &failure{statusUnavailable, fmt.Errorf("no connection to %s: %w", n.name, err), hint}
}

// notRedis reports that an answer was not in Redis's protocol.
func notRedis(err error) bool { return strings.Contains(err.Error(), "redigo: ") }

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

// addresses are the flag's value: what is given first replaces the default, what
// follows is added. A comma in a password is written %2C.
type addresses struct {
	list  []string
	given bool
}

func (a *addresses) Type() string   { return "address" }
func (a *addresses) String() string { return strings.Join(a.list, ",") }

func (a *addresses) Set(s string) error {
	if !a.given {
		a.list, a.given = nil, true
	}
	a.list = append(a.list, strings.Split(s, ",")...)
	return nil
}
