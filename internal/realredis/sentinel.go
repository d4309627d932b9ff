package realredis

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Sentinels are a master, two replicas and the three Sentinels (quorum 2) that monitor them, for
// the length of a test. A Sentinel considers a master down after half a second without a reply.
type Sentinels struct {
	Name      string    // the master's
	Servers   []*Server // the first is the first master
	Sentinels []*Server

	t testing.TB
}

// RunSentinels starts them and waits until each knows all the others. The servers get args as
// further options.
func RunSentinels(t testing.TB, name string, args ...string) *Sentinels {
	t.Helper()
	s := &Sentinels{Name: name, t: t}
	for i := range 3 {
		more := append([]string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}, args...)
		if i > 0 {
			host, port, _ := net.SplitHostPort(s.Servers[0].Addr)
			more = append(more, "--replicaof", host, port)
		}
		s.Servers = append(s.Servers, Run(t, more...))
	}
	conf := must.Get(Monitor(s.Servers[0].Addr, name, 500*time.Millisecond))(t)
	for range 3 {
		s.Sentinels = append(s.Sentinels, RunSentinel(t, conf))
	}
	must.Do(t, Watched(s.Addrs(), name))
	return s
}

// Monitor waits until the master at addr has two replicas in sync, and returns the configuration of one of its
// Sentinels: a master that has not replied for so long is down.
func Monitor(addr, name string, down time.Duration) (conf string, err error) {
	host, port, _ := net.SplitHostPort(addr)
	conf = fmt.Sprintf(`sentinel monitor %[1]s %[2]s %[3]s 2
sentinel down-after-milliseconds %[1]s %[4]d
sentinel failover-timeout %[1]s 3000
sentinel parallel-syncs %[1]s 2
`, name, host, port, down.Milliseconds())
	return conf, Within(time.Minute, "the replicas are in sync", func() error {
		info, err := redis.String(Ask(addr, "INFO", "replication"))
		if n := strings.Count(info, "state=online"); err == nil && n < 2 {
			err = fmt.Errorf("%d of 2", n)
		}
		return err
	})
}

// Watched waits until each of the Sentinels at addrs knows two others, and a master with two replicas that is up.
func Watched(addrs []string, name string) error {
	return Within(time.Minute, "the Sentinels know each other and the replicas", func() error {
		for _, addr := range addrs {
			m, err := redis.StringMap(Ask(addr, "SENTINEL", "master", name))
			if err == nil && (m["num-other-sentinels"] != "2" || m["num-slaves"] != "2" || m["flags"] != "master") {
				err = fmt.Errorf("%s: %s Sentinels, %s replicas, %s", addr, m["num-other-sentinels"], m["num-slaves"], m["flags"])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// RunSentinel starts the redis-server from the PATH as a Sentinel with this configuration, on a
// free port of 127.0.0.1.
func RunSentinel(t testing.TB, conf string) *Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf") // Sentinel rewrites it
	must.Do(t, os.WriteFile(file, []byte(conf), 0o600))
	return run(t, func(port string) []string {
		return []string{file, "--sentinel", "--port", port, "--bind", "127.0.0.1", "--dir", filepath.Dir(file)}
	})
}

// Addrs returns the Sentinels' addresses.
func (s *Sentinels) Addrs() []string {
	var addrs []string
	for _, w := range s.Sentinels {
		addrs = append(addrs, w.Addr)
	}
	return addrs
}

// Master returns the server that a majority of the Sentinels names as master.
func (s *Sentinels) Master() (*Server, error) {
	votes := map[string]int{}
	for _, w := range s.Sentinels {
		if addr, err := redis.Strings(Ask(w.Addr, "SENTINEL", "get-master-addr-by-name", s.Name)); err == nil && len(addr) == 2 {
			votes[net.JoinHostPort(addr[0], addr[1])]++
		}
	}
	for _, server := range s.Servers {
		if votes[server.Addr] >= 2 {
			return server, nil
		}
	}
	return nil, fmt.Errorf("the Sentinels do not agree on a master: %v", votes)
}

// Failover makes a Sentinel replace the master although it is up, and returns once the failover has
// begun. Sentinel rejects a replica that has only just come back, so Failover retries.
func (s *Sentinels) Failover() {
	s.t.Helper()
	must.Do(s.t, Within(time.Minute, "SENTINEL FAILOVER", func() error {
		_, err := Ask(s.Sentinels[0].Addr, "SENTINEL", "failover", s.Name)
		return err
	}))
}

// Replaced waits until a majority of the Sentinels names a master other than old, and returns it.
func (s *Sentinels) Replaced(old *Server) *Server {
	s.t.Helper()
	var now *Server
	must.Do(s.t, Within(time.Minute, "another master", func() (err error) {
		if now, err = s.Master(); err == nil && now == old {
			err = fmt.Errorf("still %s", old.Addr)
		}
		return err
	}))
	return now
}

// Ask sends one command over a new connection, and waits a minute at most.
func Ask(addr, name string, args ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := redis.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return redis.DoContext(c, ctx, name, args...)
}
