package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/sentinel"
)

// sentinelDeployment is the master that --sentinel names. like is the address of --redis,
// of which all but the host counts.
func (a *app) sentinelDeployment(like address) (*deployment, error) {
	const hint = "it is NAME@host:port, with further Sentinels after commas; one with a password is redis://:password@host:port"
	name, list, ok := strings.Cut(a.sentinel, "@")
	if !ok || name == "" || list == "" || strings.Contains(name, "://") {
		return nil, &failure{statusUsage, errors.New("--sentinel does not name a master and its Sentinels"), hint}
	}
	var hosts []string
	var first address
	known := map[string]address{} // by host:port
	for _, arg := range strings.Split(list, ",") {
		if !strings.Contains(arg, "://") && !strings.Contains(strings.Trim(arg, "[]"), ":") {
			arg += ":26379"
		}
		at, err := parseAddress(arg)
		if err != nil {
			return nil, &failure{statusUsage, fmt.Errorf("--sentinel names no address: %w", err), hint}
		}
		at = new(secrets).as(at) // a Sentinel has a password of its own, or none
		if len(hosts) == 0 {
			first = at
		}
		hosts, known[at.host] = append(hosts, at.host), at
	}
	s := sentinel.New(name, hosts, sentinel.Options{
		Dial: a.dialLike(like),
		DialSentinel: func(ctx context.Context, addr string) (redis.Conn, error) {
			at, ok := known[addr]
			if !ok {
				at = first // one that was learnt of
			}
			return a.dialLike(at)(ctx, addr)
		},
		Patience: a.timeout,
	})
	return &deployment{nodes: []node{{name + ", as " + strings.Join(hosts, ", ") + " say", s.Source(), s.Close}}}, nil
}

// clusterDeployment is the cluster to which the servers belong.
func (a *app) clusterDeployment(nodes []address) (*deployment, error) {
	var hosts []string
	for _, at := range nodes {
		hosts = append(hosts, at.host)
	}
	s := cluster.New(hosts, cluster.Options{Dial: a.dialLike(nodes[0]), MaxIdle: 2})
	return &deployment{cluster: true, nodes: []node{{"the cluster of " + strings.Join(hosts, ", "), s.Source(), s.Close}}}, nil
}

// dialLike dials any address with the user, the password, the database and the
// TLS of another.
func (a *app) dialLike(like address) func(context.Context, string) (redis.Conn, error) {
	return func(ctx context.Context, addr string) (redis.Conn, error) {
		at := like
		at.network, at.host = "tcp", addr
		return a.dial(ctx, at, nil)
	}
}
