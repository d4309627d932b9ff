//go:build unix

package main

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// doctor says UNSAFE exactly where run refuses or warns that it is: of every lock, on every kind of
// server. Of a weaker lock that is safe both say why it is not the better one.
func TestDoctorAndRunAgree(t *testing.T) {
	t.Parallel()
	servers := map[string][]string{} // flags, by a name
	for _, v := range []string{"1.2", "2.0", "2.4", "noscript", "twemproxy"} {
		servers[v] = []string{"--redis", startServer(t, v)}
	}
	master := realredis.Start(t)
	host, port, _ := strings.Cut(master, ":")
	replica := realredis.Start(t, "--replicaof", host+" "+port)
	memory := []string{"--maxmemory", "100mb", "--maxmemory-policy"}
	full := realredis.Start(t, "--maxmemory", "1")
	restricted := realredis.Start(t, "--user", "app", "on", ">pw", "~app:*", "&*", "+@all", "-@scripting", "--user", "mute", "on", ">pw", "~*", "+ping", "+get")
	servers["real"] = []string{"--redis", master}
	servers["replica"] = []string{"--redis", replica}
	servers["allkeys"] = []string{"--redis", realredis.Start(t, append(memory, "allkeys-lru")...)}
	servers["volatile"] = []string{"--redis", realredis.Start(t, append(memory, "volatile-lru")...)}
	servers["full"] = []string{"--redis", full}
	servers["no config"] = []string{"--redis", realredis.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru", "--rename-command", "CONFIG", "")}
	servers["restricted"] = []string{"--redis", "redis://app:pw@" + restricted, "--prefix", "app:"}
	servers["another prefix"] = []string{"--redis", "redis://app:pw@" + restricted}
	servers["two masters"] = []string{"--redis", between(t, "", master, realredis.Start(t))}
	servers["two masters without INFO"] = []string{"--redis", between(t, "", startServer(t, "2.2"), startServer(t, "2.2"))}
	servers["active replica"] = []string{"--redis", between(t, "active", master)}
	servers["node"] = []string{"--redis", realredis.RunCluster(t).Addrs()[0]}
	servers["mute"] = []string{"--redis", "redis://mute:pw@" + restricted}

	algorithms := append([]string{"auto", "getset:classic", "set:lua", "rw:write", "tx:classic"}, locks.Families()...)
	for name, flags := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, algorithm := range algorithms {
				flags := append(slices.Clone(flags), "--algorithm", algorithm)
				diagnosis, complaint, verdict := cli(t, nil, append([]string{"doctor"}, flags...)...)
				_, warning, status := cli(t, nil, append(append([]string{"run", "--try"}, flags...), "agree", "--", "true")...)
				weaker := strings.Contains(warning, "is taken instead of the better ")
				safe := status == 0 && (warning == "" || weaker)
				if weaker && !strings.Contains(strings.Join(strings.Fields(diagnosis), " "), "it is not ") {
					t.Errorf("%s: run warns %s, and doctor does not say why: %s", algorithm, warning, diagnosis)
				}
				if (verdict == 0) != safe {
					t.Errorf("%s: doctor exits %d, run %d\ndoctor: %s%srun: %s", algorithm, verdict, status, complaint, diagnosis, warning)
				}
				twoHold := strings.HasPrefix(name, "two ") || name == "active replica"
				if twoHold && (verdict != 1 || status != statusUnavailable) {
					t.Errorf("%s: two clients can hold it, and doctor exits %d, run %d", algorithm, verdict, status)
				}
				if verdict == 1 && !strings.Contains(diagnosis, "UNSAFE") {
					t.Errorf("%s: doctor exits 1 and does not say why: %s", algorithm, diagnosis)
				}
				if status == 0 && verdict == 1 && !strings.Contains(warning, "UNSAFE on ") {
					t.Errorf("%s: run warns of something else: %s", algorithm, warning)
				}
			}
		})
	}
}

// between is the address of a balancer that connects in turns to addrs. role, if not "", is what it makes
// of the role in INFO: a word as long as master.
func between(t *testing.T, role string, addrs ...string) string {
	var n atomic.Int32
	return serve(t, func(c net.Conn) {
		relay(acting{c, role}, addrs[int(n.Add(1))%len(addrs)], func([]byte) {})
	})
}

// An acting connection tells its client another role than its server's.
type acting struct {
	net.Conn
	role string
}

func (a acting) Write(said []byte) (int, error) {
	if a.role != "" {
		said = bytes.ReplaceAll(said, []byte("role:master"), []byte("role:"+a.role))
	}
	return a.Conn.Write(said) // an INFO comes in one piece
}
