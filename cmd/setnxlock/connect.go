package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/guard"
)

// A deployment holds the keys: one server, the master of Sentinels, or a cluster; for a quorum, several
// independent servers.
type deployment struct {
	nodes   []node
	cluster bool
}

// A node is one server, or one cluster, of a deployment.
type node struct {
	name   string // as messages call it: without the password
	source compat.Source
	close  func() error
	named  *introduction
}

// one returns the deployment's only node. A quorum has none.
func (p *deployment) one() node { return p.nodes[0] }

// name returns the deployment's name in messages.
func (p *deployment) name() string {
	var names []string
	for _, n := range p.nodes {
		names = append(names, n.name)
	}
	if len(names) > 1 {
		return "a majority of " + strings.Join(names, ", ")
	}
	return names[0]
}

// Close gives up all connections.
func (p *deployment) Close() {
	for _, n := range p.nodes {
		n.close() //nolint:errcheck // nothing is asked of it any more
	}
}

// connect opens the deployment of the flags and makes the first connection, so that the user learns at once
// of a server that is not there. Of a quorum a majority must be there.
func (a *app) connect(ctx context.Context) (*deployment, error) {
	p, err := a.deployment()
	if err != nil {
		return nil, err
	}
	a.deploymentName = p.name()
	errs := make([]error, len(p.nodes))
	var all sync.WaitGroup
	for i, n := range p.nodes {
		all.Go(func() {
			c, err := n.source.Get(ctx, "")
			if err == nil {
				c.Close()
			}
			errs[i] = err
		})
	}
	all.Wait()
	away := 0
	for i, err := range errs {
		if err == nil {
			continue
		}
		if away++; 2*away >= len(p.nodes) || ctx.Err() != nil {
			p.Close()
			return nil, a.unreachable(ctx, p.nodes[i], err)
		}
		a.log().Warn("a server of the quorum can't be reached", "server", p.nodes[i].name, "error", err)
	}
	return p, nil
}

// oneServer refuses flags with several servers, for commands that read the keys of one.
func (a *app) oneServer() error {
	if len(a.redis.list) > 1 || a.cluster {
		return exit.Misuse("this command reads one server, and --redis names several or a cluster",
			"give the address of one; of a cluster, of one master after the other")
	}
	return nil
}

// session opens one connection to the only server. Close both, the connection first.
func (a *app) session(ctx context.Context) (*deployment, redis.Conn, error) {
	p, err := a.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	a.introduceUnasked(ctx, p.one())
	c, err := p.one().source.Get(ctx, "")
	if err != nil {
		p.Close()
		return nil, nil, a.unreachable(ctx, p.one(), err)
	}
	return p, c, nil
}

// deployment builds the deployment of the flags, without connecting.
func (a *app) deployment() (*deployment, error) {
	if err := positive("timeout", a.timeout); err != nil {
		return nil, exit.Because(exit.Wrong, err, "")
	}
	if a.hurries() {
		a.timeout = time.Second // four steps: its answers about itself may take longer
	}
	if err := a.prepare(); err != nil {
		return nil, err
	}
	at, err := parseAddresses(a.redis.from(), a.redis.list)
	if err != nil {
		return nil, err
	}
	switch {
	case a.sentinel != "" && a.cluster:
		return nil, exit.Misuse("--sentinel and --cluster exclude each other", "")
	case a.sentinel != "":
		return a.sentinelDeployment(at)
	case len(at) == 0:
		at = []address{{network: "tcp", host: defaultRedis}}
	}
	if err := a.fitsTLS(at[0].tls); err != nil {
		return nil, err
	}
	switch {
	case a.cluster:
		return a.clusterDeployment(at)
	case len(at) > 1 && a.algorithm != "redlock":
		return nil, exit.Misuse("--redis names several servers",
			"--algorithm redlock takes its locks on a majority of them; --cluster says that they are nodes of one cluster")
	}
	p := &deployment{}
	for _, one := range at {
		one, err := a.login(one)
		if err != nil {
			return nil, err
		}
		if len(at) == 1 {
			a.only = &one
		}
		named := a.introduction(one.host)
		pool := a.pool(one, named)
		p.nodes = append(p.nodes, node{one.host, compat.Pooled(pool), pool.Close, named})
	}
	return p, nil
}

// pool makes connections to the server at an address.
func (a *app) pool(at address, named *introduction) *redis.Pool {
	first := &firstAnswer{limit: a.timeout}
	return &redis.Pool{
		MaxIdle: 2,
		// A server's timeout, or a router between us, closes idle connections
		// and we learn of it only by a failed renewal. Polls are closer
		// together than this, renewals dial anew. (A PING to find out is
		// refused by old proxies.)
		IdleTimeout: time.Second,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			if end := first.deadline(); !end.IsZero() && !time.Now().Before(end) {
				return nil, errUnanswered{limit: a.timeout}
			}
			return named.dial(func() (redis.Conn, error) { return a.dial(ctx, at, first) })
		},
	}
}

// unreachable turns an error of connecting into a failure.
func (a *app) unreachable(ctx context.Context, n node, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if late, ok := dialled(err).(errUnanswered); ok {
		err = late // whichever step it was
	}
	var refused redis.Error
	if errors.As(err, &refused) {
		return a.explain(err)
	}
	return a.broken(n.name, err)
}

// broken turns a broken connection to a server into a failure.
func (a *app) broken(server string, err error) *exit.Failure {
	if said := a.overheard(err); said != nil {
		return a.explain(said)
	}
	c := causeOf(err)
	switch {
	case strings.Contains(err.Error(), "unknown command 'SENTINEL'"):
		return exit.Because(statusUnavailable, fmt.Errorf("the server at %s is no Sentinel: %w", shownList(a.sentinel), err), "--sentinel NAME@host:port has the Sentinels' addresses (port 26379), and --redis the server's")
	case a.sentinel != "" && (c == nil || c.hint == addressWord):
		return exit.Because(statusUnavailable, fmt.Errorf("can't connect to %s: %w", server, err), "check the addresses of --sentinel, and that the Sentinels run there and know this name")
	case notRedis(err):
		return exit.Because(statusUnavailable, fmt.Errorf("the server at %s is not a Redis server: %w", server, err), foreignHint(err))
	case c == nil:
		return exit.Because(statusUnavailable, fmt.Errorf("can't connect to %s: %w", server, err), addressWord)
	case c.hint == addressWord && len(a.redis.list) == 0 && a.sentinel == "":
		c.hint = "give the server's address with --redis or in SETNXLOCK_REDIS"
	}
	return exit.Because(statusUnavailable, fmt.Errorf("can't connect to %s: %w", server, err), c.hint)
}

// notRedis reports an answer outside of Redis's protocol.
func notRedis(err error) bool {
	return errors.Is(err, guard.ErrNotRESP) || strings.Contains(err.Error(), "redigo: ")
}

// silent reports a server slower than --timeout.
func silent(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout() || errors.As(dialled(err), &t) && t.Timeout()
}

// dialled returns the error of our own Dial within err, or err.
func dialled(err error) error {
	var d interface{ Caller() error }
	if errors.As(err, &d) {
		return d.Caller()
	}
	return err
}
