package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/sentinel"
)

// sentinelDeployment is the master that --sentinel names. like is the URL of --redis,
// of which all but the host counts.
func (a *app) sentinelDeployment(like string) (*deployment, error) {
	const hint = "it is NAME@host:port, with further Sentinels after commas; one with a password is redis://:password@host:port"
	name, list, ok := strings.Cut(a.sentinel, "@")
	if !ok || name == "" || list == "" {
		return nil, &failure{statusUsage, errors.New("--sentinel does not name a master and its Sentinels"), hint}
	}
	var hosts []string
	first := ""
	known := map[string]string{} // host:port → URL
	for _, arg := range strings.Split(list, ",") {
		if !strings.Contains(arg, "://") && !strings.Contains(strings.Trim(arg, "[]"), ":") {
			arg += ":26379"
		}
		u, err := redisURL(arg)
		if err != nil {
			return nil, &failure{statusUsage, fmt.Errorf("--sentinel names no address: %w", err), hint}
		}
		host := serverName(arg)
		if first == "" {
			first = u
		}
		hosts, known[host] = append(hosts, host), u
	}
	idle := 0 // its default
	if a.meter != nil {
		idle = a.idle()
	}
	s := sentinel.New(name, hosts, sentinel.Options{
		Dial:    a.dialLike(like),
		MaxIdle: idle,
		DialSentinel: func(ctx context.Context, addr string) (redis.Conn, error) {
			u, ok := known[addr]
			if !ok {
				u = first // one that was learnt of
			}
			return a.dialLike(u)(ctx, addr)
		},
		Patience: a.timeout,
	})
	return &deployment{nodes: []node{{name + ", as " + strings.Join(hosts, ", ") + " say", s.Source(), s.Close}}}, nil
}

// clusterDeployment is the cluster to which the servers belong.
func (a *app) clusterDeployment(urls []string) (*deployment, error) {
	var hosts []string
	for _, arg := range a.redis.list {
		hosts = append(hosts, serverName(arg))
	}
	s := cluster.New(hosts, cluster.Options{Dial: a.dialLike(urls[0]), MaxIdle: a.idle()})
	return &deployment{cluster: true, nodes: []node{{"the cluster of " + strings.Join(hosts, ", "), s.Source(), s.Close}}}, nil
}

// dialLike dials any address with the user, the password, the database and the
// TLS of a URL.
func (a *app) dialLike(like string) func(context.Context, string) (redis.Conn, error) {
	return func(ctx context.Context, addr string) (redis.Conn, error) {
		u, err := url.Parse(like)
		if err != nil {
			return nil, err
		}
		u.Host = addr
		return a.dialURL(ctx, u.String())
	}
}
