//go:build linux

package main

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/cluster"
	"github.com/setnxlock/setnxlock/compat/internal/history"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A binary is a redis-server, and its version.
type binary struct{ path, version string }

// The kinds of groups.
const (
	alone      = "aof"        // one server; each change is on disk before the reply
	saved      = "rdb"        // one server, which saves before it ends
	unsaved    = "rdb-lossy"  // one server, which is killed, and forgets the changes since its last save
	five       = "redlock"    // five servers as alone's, of which two at a time are broken
	sentinels  = "sentinel"   // a master, two replicas and three Sentinels
	replicated = "replicated" // as sentinels, with a lock that waits for both replicas
	clustered  = "cluster"    // three masters, each with a replica
)

// since has the first version of Redis for a kind of group.
var since = map[string]string{sentinels: "2.8", replicated: "3.0", clustered: "3.0"}

// A group has the servers of a run.
type group struct {
	kind    string
	lock    string
	keys    []string // of the locks
	slots   bool     // slots of a cluster move
	servers []*server
	guards  []*server // the Sentinels
	seen    *counts

	mu     sync.Mutex
	losses []history.Event
	over   chan struct{} // closed to end looks
	looks  sync.WaitGroup
}

// A span of the machine's clock, both ends included.
type span struct{ from, to int64 }

func (s span) has(at int64) bool { return s.from <= at && at <= s.to }

func now() int64 { return time.Now().UnixNano() }

// usedFor is the time after a failover in which the old master may still answer clients: both Sources believe in a
// master for a second after they asked for it, and look and ask notice a new master a little late.
const usedFor = 1500 * time.Millisecond

// followed reports whether the kind of group has failovers, which a Source follows.
func followed(kind string) bool { return kind == sentinels || kind == replicated || kind == clustered }

// forgot records a possible loss of keys: a change acknowledged before the end of the span may be gone after its
// beginning.
func (g *group) forgot(s span, keys []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if form, _ := formOf(g.lock); form == inTurn && len(keys) > 0 { // a lost key loses its whole set
		keys = g.keys
	}
	for _, key := range keys {
		g.losses = append(g.losses, history.Event{Op: history.Forgot, Key: key, At: s.from, Until: s.to})
	}
}

// lost returns the recorded losses.
func (g *group) lost() []history.Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.losses)
}

// newGroup starts the servers of a run.
func newGroup(r run, seen *counts) (*group, error) {
	g := &group{kind: r.Kind, lock: r.Lock, keys: r.keys(), slots: r.Slots, seen: seen, over: make(chan struct{})}
	err := g.start(r)
	if err != nil {
		g.close()
	}
	return g, err
}

// add starts another server.
func (g *group) add(r run, b binary, conf string, disk bool) error {
	s, err := newServer(b, filepath.Join(r.Dir, fmt.Sprint("server-", len(g.servers))), conf, disk)
	if s != nil {
		g.servers = append(g.servers, s)
	}
	return err
}

func (g *group) start(r run) error {
	first := r.Binaries[0]
	switch g.kind {
	case alone:
		// Before 4.0, a reply could overtake the disk, and a server did not repair a torn end of its log.
		return g.add(r, first, aof, isolated() && !ability.Older(first.version, "4.0"))
	case saved, unsaved:
		return g.add(r, first, rdb, false)
	case five:
		for i := range 5 {
			if err := g.add(r, r.Binaries[i%len(r.Binaries)], aof, false); err != nil {
				return err
			}
		}
		return nil
	}
	if err := g.replicated(r, first); err != nil {
		return err
	}
	for i, s := range g.servers {
		is, err := s.master()
		if err != nil {
			return err
		}
		g.looks.Go(func() { g.look(s, is, g.keysOn(i)) })
	}
	for _, s := range g.guards {
		g.looks.Go(func() { g.ask(s) })
	}
	return nil
}

// replicated starts a cluster, or a master with its replicas and Sentinels.
func (g *group) replicated(r run, b binary) error {
	conf, n := aof, 3
	if !ability.Older(b.version, "3.0") {
		conf += "repl-diskless-sync-delay 0\n" // replicas get in sync without a delay
	}
	if g.kind == clustered {
		conf, n = conf+"cluster-enabled yes\ncluster-node-timeout 1000\ncluster-slave-validity-factor 0\n", 6
	}
	for i := range n {
		if i > 0 && r.Mixed {
			b = r.Binaries[len(r.Binaries)-1]
		}
		if i == 1 && g.kind != clustered {
			host, port, _ := net.SplitHostPort(g.servers[0].addr)
			conf += fmt.Sprintf("slaveof %s %s\n", host, port)
		}
		if err := g.add(r, b, conf, false); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	if g.kind == clustered {
		return realredis.Join(g.addrs())
	}
	return g.guard(r.Binaries[0], r.Dir)
}

// keysOn returns the keys on the i-th server, a master or a replica.
func (g *group) keysOn(i int) []string {
	if g.kind != clustered || g.slots {
		return g.keys
	}
	var keys []string
	for _, key := range g.keys {
		if slot := cluster.Slot(key); i%3*slots/3 <= slot && slot < (i%3+1)*slots/3 {
			keys = append(keys, key)
		}
	}
	return keys
}

// guard starts three Sentinels.
func (g *group) guard(b binary, dir string) error {
	conf, err := realredis.Monitor(g.servers[0].addr, "chaos", 700*time.Millisecond)
	for i := 0; i < 3 && err == nil; i++ {
		var s *server
		if s, err = newServer(b, filepath.Join(dir, fmt.Sprint("sentinel-", i)), conf, false, "--sentinel"); s != nil {
			g.guards = append(g.guards, s)
		}
	}
	if err != nil {
		return err
	}
	return realredis.Watched(g.addrs(), "chaos")
}

const slots = 16384 // the hash slots of a cluster

// look watches one server, and records a loss when the replica becomes a master: the changes that its
// predecessor had not replicated are gone then.
func (g *group) look(s *server, was bool, keys []string) {
	replica := now()
	for {
		select {
		case <-g.over:
			return
		case <-time.After(100 * time.Millisecond):
		}
		asked := now()
		is, err := s.master()
		switch {
		case err != nil:
			continue
		case is && !was:
			g.seen.add("failover")
			g.forgot(span{replica, now() + int64(usedFor)}, keys)
		case !is:
			replica = asked
		}
		was = is
	}
}

// ask watches one Sentinel, and records a loss when the Sentinel names another master. The named server may
// have been cut off or stopped while others were masters. It has none of their changes.
func (g *group) ask(s *server) {
	named, at := "", now()
	for {
		asked := now()
		m, err := redis.Strings(s.do("SENTINEL", "get-master-addr-by-name", "chaos"))
		if addr := strings.Join(m, ":"); err == nil {
			if named != "" && addr != named {
				g.forgot(span{at, now() + int64(usedFor)}, g.keys)
			}
			named, at = addr, asked
		}
		select {
		case <-g.over:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// addrs returns the addresses that clients begin with.
func (g *group) addrs() []string {
	servers := g.servers
	if g.guards != nil {
		servers = g.guards
	}
	var all []string
	for _, s := range servers {
		all = append(all, s.addr)
	}
	return all
}

// masters returns the servers that call themselves masters.
func (g *group) masters() []*server {
	if !followed(g.kind) {
		return g.servers
	}
	var all []*server
	for _, s := range g.servers {
		if is, err := s.master(); err == nil && is {
			all = append(all, s)
		}
	}
	return all
}

// heal ends faults that outlast their do.
func (g *group) heal() {
	for _, s := range g.servers {
		s.do("CONFIG", "SET", "maxmemory", "0") //nolint:errcheck // the oldest servers lack this setting
	}
}

// close ends all servers.
func (g *group) close() {
	close(g.over)
	g.looks.Wait()
	for _, s := range append(g.servers, g.guards...) {
		s.process.Kill()
		if s.disk {
			syscall.Unmount(s.dir, syscall.MNT_DETACH) //nolint:errcheck // the mount ends with the namespace
		}
	}
}

// left returns the clients' keys without a TTL. With times, a timestamp on a key is no leftover.
func (g *group) left(times bool) ([]string, error) {
	var all []string
	for _, s := range g.masters() {
		keys, err := redis.Strings(s.do("KEYS", "*"))
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if strings.HasPrefix(key, "other:") || strings.Contains(key, ":fence") || times && !strings.Contains(key, ":") { // a timestamp stays until the next client takes it over
				continue
			}
			if endless(s.do, key) {
				all = append(all, key)
			}
		}
	}
	return all, nil
}

// endless reports whether a key exists and has no TTL. Before 2.8, TTL answers -1 for a missing key, too.
func endless(do func(name string, args ...any) (any, error), key string) bool {
	ttl, err := redis.Int(do("TTL", key))
	if err != nil || ttl != -1 {
		return false
	}
	there, err := redis.Bool(do("EXISTS", key))
	return err == nil && there
}
