package realredis

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A Cluster is a Redis Cluster of six servers: three masters, each with a
// replica, which takes over about two seconds after its master has died.
type Cluster struct {
	Nodes []*Server // at first 0 to 2 are masters, and i+3 is the replica of i

	t testing.TB
}

const (
	clusterMasters = 3
	clusterSlots   = 16384
)

// RunCluster starts a cluster, with args as further options for each server. It returns when all
// six nodes see all slots served and the replicas are in sync. The cluster ends with the test.
func RunCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range 2 * clusterMasters {
		ours := plain(t.TempDir(), append([]string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
			"--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no",
			"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
		}, args...)...)
		c.Nodes = append(c.Nodes, run(t, func(port string) []string {
			_, bus, _ := net.SplitHostPort(freeAddr(t)) // it may be taken as well, and then another is tried
			return append(ours(port), "--cluster-port", bus)
		}))
	}
	must.Do(t, Join(c.Addrs()))
	return c
}

// Join makes a cluster of six servers: each of the first three has a third of the slots, and one of the others for its
// replica. It returns when all see all slots served and the replicas are in sync.
func Join(addrs []string) error {
	var ids []string
	var meet [][]any
	for i, addr := range addrs {
		nodes, err := redis.String(Ask(addr, "CLUSTER", "NODES")) // "ID HOST:PORT@BUS …", the bus since 4.0
		if err != nil {
			return err
		}
		self := strings.Fields(nodes)
		ids = append(ids, self[0])
		host, port, _ := net.SplitHostPort(addr)
		meet = append(meet, []any{"MEET", host, port})
		if _, bus, told := strings.Cut(self[1], "@"); told {
			bus, _, _ = strings.Cut(bus, ",")
			meet[i] = append(meet[i], bus)
		}
		if i >= clusterMasters {
			continue
		}
		slots := []any{"ADDSLOTS"}
		for slot := i * clusterSlots / clusterMasters; slot < (i+1)*clusterSlots/clusterMasters; slot++ {
			slots = append(slots, slot)
		}
		for _, args := range [][]any{slots, {"SET-CONFIG-EPOCH", i + 1}} {
			if _, err := Ask(addr, "CLUSTER", args...); err != nil {
				return err
			}
		}
	}
	for _, args := range meet[1:] {
		if _, err := Ask(addrs[0], "CLUSTER", args...); err != nil {
			return err
		}
	}
	for i, addr := range addrs[clusterMasters:] {
		err := Within(time.Minute, "a replica knows its master", func() error {
			_, err := Ask(addr, "CLUSTER", "REPLICATE", ids[i])
			return err
		})
		if err != nil {
			return err
		}
	}
	return Within(time.Minute, "each node sees the complete cluster", func() error {
		for _, addr := range addrs {
			if err := Complete(addr); err != nil {
				return err
			}
		}
		return nil
	})
}

// Complete returns nil if the node at addr sees all slots served, each with a replica, and, if it is a
// replica, is in sync.
func Complete(addr string) error {
	info, err := redis.String(Ask(addr, "CLUSTER", "INFO"))
	if err != nil || !strings.Contains(info, "cluster_state:ok") {
		return fmt.Errorf("CLUSTER INFO: %.60q, %v", info, err)
	}
	ranges, err := redis.Values(Ask(addr, "CLUSTER", "SLOTS"))
	if err != nil {
		return err
	}
	for _, r := range ranges {
		if fields, err := redis.Values(r, nil); err != nil || len(fields) != 4 {
			return fmt.Errorf("a slot range without a replica: %v, %v", fields, err)
		}
	}
	info, err = redis.String(Ask(addr, "INFO", "replication"))
	if err != nil || strings.Contains(info, "role:slave") && !strings.Contains(info, "master_link_status:up") {
		return fmt.Errorf("INFO replication: %.60q, %v", info, err)
	}
	return nil
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Do runs one command on node i, which must not refuse it.
func (c *Cluster) Do(i int, name string, args ...any) any {
	c.t.Helper()
	reply, err := c.Try(i, name, args...)
	if err != nil {
		c.t.Fatalf("node %d: %s %v: %v", i, name, args, err)
	}
	return reply
}

// Try runs one command on node i.
func (c *Cluster) Try(i int, name string, args ...any) (any, error) {
	return Ask(c.Nodes[i].Addr, name, args...)
}

// Move moves a slot with its keys from one master to another, as redis-cli does. While meanwhile runs, the old master
// redirects (ASK) to the new one for keys that it does not have. begun is false if one of the two refuses to begin. Move
// tells the new owner first, so that the slot always has one, and then the others: if the slot moved again before every
// master knew, it could end up without an owner, each node redirecting clients to the next.
func Move(slot int, from, to string, others []string, meanwhile func()) (begun bool, err error) {
	ids := map[string]string{}
	for _, addr := range []string{from, to} {
		if ids[addr], err = redis.String(Ask(addr, "CLUSTER", "MYID")); err != nil {
			return false, err
		}
	}
	if _, err := Ask(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from]); err != nil {
		return false, err
	}
	if _, err := Ask(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to]); err != nil {
		Ask(to, "CLUSTER", "SETSLOT", slot, "STABLE") //nolint:errcheck // no key has moved
		return false, err
	}
	meanwhile()
	// A cluster that fails over is down for a while.
	return true, Within(time.Minute, fmt.Sprintf("slot %d moves from %s to %s", slot, from, to), func() error {
		if err := moveKeys(slot, from, to); err != nil {
			return err
		}
		for _, addr := range append([]string{to, from}, others...) {
			if _, err := Ask(addr, "CLUSTER", "SETSLOT", slot, "NODE", ids[to]); err != nil {
				return err
			}
		}
		return nil
	})
}

// moveKeys moves the keys of a slot from one node to another. What is on the one that it leaves is what counts until
// then.
func moveKeys(slot int, from, to string) error {
	host, port, _ := net.SplitHostPort(to)
	for {
		keys, err := redis.Strings(Ask(from, "CLUSTER", "GETKEYSINSLOT", slot, 100))
		if err != nil || len(keys) == 0 {
			return err
		}
		for _, key := range keys {
			if _, err := Ask(from, "MIGRATE", host, port, key, 0, 5000, "REPLACE"); err != nil {
				return err
			}
		}
	}
}

// Owner returns the address of the master to which the node at addr assigns slot.
func Owner(addr string, slot int) (owner string, err error) {
	parts, err := redis.Values(Ask(addr, "CLUSTER", "SLOTS"))
	if err != nil {
		return "", err
	}
	for _, p := range parts {
		var first, last, port int
		var host string
		var node []any
		fields, _ := redis.Values(p, nil)
		if _, err := redis.Scan(fields, &first, &last, &node); err != nil || slot < first || slot > last {
			continue
		}
		_, err := redis.Scan(node, &host, &port)
		return net.JoinHostPort(host, strconv.Itoa(port)), err
	}
	return "", fmt.Errorf("slot %d has no owner", slot)
}

// Until calls done until it returns nil, for a minute at most.
func (c *Cluster) Until(what string, done func() error) {
	c.t.Helper()
	must.Do(c.t, Within(time.Minute, what, done))
}

// Within calls done until it returns nil, for as long as limit.
func Within(limit time.Duration, what string, done func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		err := done()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %v: %w", what, limit, err)
		}
	}
}
