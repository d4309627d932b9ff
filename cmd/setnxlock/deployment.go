package main

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/sentinel"
)

const sentinelHint = "write NAME@host:port, further Sentinels after commas; one with a password as redis://:password@host:port"

// sentinels reads --sentinel: the master's name, the Sentinels as text, and taken apart.
func (a *app) sentinels() (name, list string, all []address, err error) {
	name, list, ok := strings.Cut(a.sentinel, "@")
	if !ok || name == "" || list == "" || strings.Contains(name, ":") {
		return "", "", nil, exit.Misuse("--sentinel does not name a master and its Sentinels", sentinelHint)
	}
	args := strings.Split(list, ",")
	for i, arg := range args {
		if args[i] = strings.TrimRight(arg, "\r\n"); !strings.Contains(arg, "://") && !strings.Contains(strings.Trim(arg, "[]"), ":") {
			args[i] += ":26379"
		}
	}
	all, err = parseAddresses("--sentinel", args)
	return name, list, all, err
}

// sentinelDeployment builds the deployment of --sentinel. master is the address of --redis, if there is one:
// its user, password, database and TLS count.
func (a *app) sentinelDeployment(master []address) (*deployment, error) {
	name, list, sentinels, err := a.sentinels()
	if err != nil {
		return nil, err
	}
	if len(master) > 1 {
		return nil, exit.Misuse("--sentinel allows one --redis at most",
			"its user, password, database and TLS are the master's")
	}
	named := append(slices.Clip(master), sentinels...) // by the user
	if len(master) == 0 {
		master = []address{{network: "tcp", tls: sentinels[0].tls}}
	} else if !strings.Contains(list, "://") { // nothing is said of TLS: they are asked as the master is
		for i := range sentinels {
			sentinels[i].tls = master[0].tls
		}
	}
	if err := cmp.Or(alikeInTLS(append(slices.Clip(sentinels), master...)), a.fitsTLS(master[0].tls)); err != nil {
		return nil, err
	}
	like, err := a.login(master[0])
	if err != nil {
		return nil, err
	}
	var hosts []string
	known := map[string]address{} // by host:port
	for i, at := range sentinels {
		at, _ = new(secrets).login(at) // a Sentinel has a password of its own, or none
		if at.network != "tcp" || at.db != 0 || like.network != "tcp" {
			return nil, exit.Misuse("--sentinel allows no socket and no database in an address, and no socket of the master",
				sentinelHint)
		}
		sentinels[i] = at
		hosts, known[at.host] = append(hosts, at.host), at
	}
	called := name + ", as " + strings.Join(hosts, ", ") + " say"
	intro := a.introduction(called)
	s := sentinel.New(name, hosts, sentinel.Options{
		Dial: intro.dialAt(a.dialLike(like, named)),
		DialSentinel: func(ctx context.Context, addr string) (redis.Conn, error) {
			at, ok := known[addr]
			if !ok {
				at = sentinels[0] // one that a majority of them told of
			}
			return a.dialLike(at, sentinels)(ctx, addr)
		},
		Patience: a.timeout,
	})
	return &deployment{nodes: []node{{called, s.Source(), s.Close, intro}}}, nil
}

// clusterDeployment builds the cluster of these nodes.
func (a *app) clusterDeployment(nodes []address) (*deployment, error) {
	like, err := merged(nodes)
	if err != nil {
		return nil, err
	}
	if like, err = a.login(like); err != nil {
		return nil, err
	}
	var hosts []string
	for _, at := range nodes {
		hosts = append(hosts, at.host)
	}
	called := "the cluster of " + strings.Join(hosts, ", ")
	intro := a.introduction(called)
	s := cluster.New(hosts, cluster.Options{Dial: intro.dialAt(a.dialLike(like, nodes)), MaxIdle: 2})
	return &deployment{cluster: true, nodes: []node{{called, s.Source(), s.Close, intro}}}, nil
}

// dialLike dials any address with the user, the password, the database and the TLS of another. A
// server whose host is not one of those named, which a Sentinel or a node tells of, must have the
// certificate of the first of them: it could have a valid one for its own name.
func (a *app) dialLike(like address, named []address) func(context.Context, string) (redis.Conn, error) {
	host := func(at string) string { h, _, _ := net.SplitHostPort(at); return h }
	return func(ctx context.Context, addr string) (redis.Conn, error) {
		at := like
		at.host, at.certified = addr, named[0].host
		if slices.ContainsFunc(named, func(n address) bool { return host(n.host) == host(addr) }) {
			at.certified = addr
		}
		return a.dial(ctx, at, nil)
	}
}
