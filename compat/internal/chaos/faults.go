//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A fault harms a server. Its do returns when the fault is over.
type fault struct {
	what string
	do   func(s *server, d time.Duration) error
}

var clientAddr = regexp.MustCompile(`\baddr=(\S+)`) // in a reply to CLIENT LIST

// ordinary returns faults after which a server still has every change that it acknowledged.
func (g *group) ordinary() []fault {
	all := []fault{
		stopped,
		{"connections killed", func(s *server, _ time.Duration) error {
			list, _ := redis.String(s.do("CLIENT", "LIST"))
			for _, c := range clientAddr.FindAllStringSubmatch(list, -1) {
				s.do("CLIENT", "KILL", c[1]) //nolint:errcheck // the connection may be gone
			}
			return nil
		}},
		{"scripts forgotten", func(s *server, _ time.Duration) error {
			s.do("SCRIPT", "FLUSH") //nolint:errcheck // before 2.6 there are no scripts
			return nil
		}},
		{"server busy", func(s *server, d time.Duration) error {
			s.do("DEBUG", "SLEEP", fmt.Sprintf("%.2f", d.Seconds()/2)) //nolint:errcheck // the oldest servers lack DEBUG SLEEP
			return nil
		}},
	}
	if g.kind != clustered {
		all = append(all, fault{"slow KEYS", slowKeys})
	}
	if !slices.ContainsFunc(g.servers, func(s *server) bool { return ability.Older(s.version, "2.2") }) { // 2.0 always removes keys with a TTL to make room
		all = append(all, fault{"memory full", func(s *server, d time.Duration) error {
			if _, err := s.do("CONFIG", "SET", "maxmemory", "1"); err != nil {
				return nil
			}
			time.Sleep(d)
			s.do("CONFIG", "SET", "maxmemory", "0") //nolint:errcheck // heal repeats it
			return nil
		}})
	}
	return all
}

var stopped = fault{"server stopped", func(s *server, d time.Duration) error {
	s.signal(syscall.SIGSTOP)
	time.Sleep(d)
	s.signal(syscall.SIGCONT)
	return nil
}}

var killed = fault{"server killed", func(s *server, d time.Duration) error {
	s.process.Kill()
	time.Sleep(d / 4)
	return s.start()
}}

// faults returns the faults that suit the servers of the group.
func (g *group) faults() []fault {
	all := g.ordinary()
	switch g.kind {
	case alone:
		all = append(all, killed)
		if g.servers[0].disk {
			all = append(all, fault{"disk full", diskFull})
		}
	case saved, unsaved:
		if !ability.Older(g.servers[0].version, "2.6") { // before, a server went on after a failed save
			all = append(all, fault{"snapshots fail", snapshotsFail})
		}
		if g.kind == saved {
			return append(all, fault{"server shut down, saved", func(s *server, d time.Duration) error {
				if err := s.shutdown(); err != nil {
					return err
				}
				time.Sleep(d / 4)
				return s.start()
			}})
		}
		saves := fault{"server saved", func(s *server, _ time.Duration) error {
			s.do("SAVE") //nolint:errcheck // without the save, more may be lost
			return nil
		}}
		forgets := fault{"server killed, unsaved", func(s *server, d time.Duration) error {
			from := now()
			s.process.Kill()
			g.forgot(span{from, now()}, g.keys)
			time.Sleep(d / 4)
			return s.start()
		}}
		all = append(all, saves, forgets, saves, forgets, forgets) // a lossy server is there for these faults
	case five:
		all = append(all, killed, killed)
	}
	return all
}

// breakOne runs one fault on one server, or on two of five.
func (g *group) breakOne(random *rand.Rand, d time.Duration) error {
	if followed(g.kind) {
		return g.breakMaster(random, d)
	}
	n := 1
	if g.kind == five {
		n = 2
	}
	all := g.faults()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i, which := range random.Perm(len(g.servers))[:n] {
		f := all[random.IntN(len(all))]
		g.seen.add(f.what)
		wg.Go(func() { errs[i] = f.do(g.servers[which], d) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// breakMaster runs one fault on a master, or makes a failover. Failovers are rare enough that most
// of the time lies outside the spans in which they may lose changes.
func (g *group) breakMaster(random *rand.Rand, d time.Duration) error {
	masters := g.masters()
	if len(masters) == 0 {
		return nil
	}
	s := masters[random.IntN(len(masters))]
	losses := g.lost()
	calm := len(losses) == 0 || now()-losses[len(losses)-1].Until > int64(3*time.Second)
	if g.slots && g.kind == clustered && random.IntN(5) == 0 {
		return g.slotMoves(random, d)
	}
	if !calm || random.IntN(2) > 0 {
		all := g.ordinary()
		f := all[random.IntN(len(all))]
		g.seen.add(f.what)
		return f.do(s, min(d, 300*time.Millisecond))
	}
	ways := 3
	if isolated() {
		ways = 5
	}
	switch random.IntN(ways) {
	case 0:
		g.seen.add("master killed")
		s.process.Kill()
		time.Sleep(3 * time.Second)
		return s.start()
	case 1:
		g.seen.add("master stopped")
		return stopped.do(s, 4500*time.Millisecond)
	case 2:
		g.seen.add("failover asked for")
		if g.guards != nil {
			g.guards[0].do("SENTINEL", "FAILOVER", "chaos") //nolint:errcheck // a Sentinel may refuse
			return nil
		}
		for _, r := range g.servers {
			if is, err := r.master(); err == nil && !is {
				r.do("CLUSTER", "FAILOVER") //nolint:errcheck // a replica may refuse
				return nil
			}
		}
	case 3, 4:
		return g.part(random, s)
	}
	return nil
}

// part cuts a master off from its replicas, from the Sentinels, or from both. Clients still reach the master.
func (g *group) part(random *rand.Rand, s *server) error {
	servers := slices.DeleteFunc(slices.Clone(g.servers), func(o *server) bool { return o == s })
	what, others := "master parted from all servers", slices.Concat(servers, g.guards)
	if g.guards != nil {
		switch random.IntN(3) {
		case 0:
			what, others = "master parted from its replicas", servers
		case 1:
			what, others = "master parted from the Sentinels", g.guards
		}
	}
	g.seen.add(what)
	return part(s, others, 4*time.Second)
}

// slowKeys runs KEYS over many keys, three times. The server answers no other client meanwhile.
func slowKeys(s *server, _ time.Duration) error {
	c, err := redis.Dial("tcp", s.addr, redis.DialReadTimeout(20*time.Second))
	if err != nil {
		return nil
	}
	defer c.Close()
	if have, err := redis.Bool(c.Do("EXISTS", "other:0")); err == nil && !have {
		const pieces, each = 100, 1000
		for i := range pieces {
			args := make([]any, 0, 2*each)
			for j := range each {
				args = append(args, fmt.Sprint("other:", i*each+j), "")
			}
			c.Send("MSET", args...) //nolint:errcheck // Do fails, too
		}
		c.Do("") //nolint:errcheck // fewer keys will do
	}
	for range 3 {
		c.Send("KEYS", "*") //nolint:errcheck // Do fails, too
	}
	c.Do("") //nolint:errcheck // the keys themselves do not matter
	return nil
}

// diskFull leaves the server no room for its log. The server ends at the next change, without a
// reply. With room again, it starts with every change that it acknowledged.
func diskFull(s *server, d time.Duration) error {
	free, err := fillDisk(s.dir)
	if err != nil {
		return err
	}
	time.Sleep(d / 2)
	if err := free(); err != nil {
		return err
	}
	s.process.Kill() // no change may have ended the server
	return s.start()
}

// snapshotsFail puts a directory at the path of the server's dump. After its next save has failed, the
// server refuses changes (MISCONF), until a save succeeds again.
func snapshotsFail(s *server, d time.Duration) error {
	at := filepath.Join(s.dir, "dump.rdb")
	os.Remove(at) //nolint:errcheck // there may be no dump
	if err := os.MkdirAll(filepath.Join(at, "in the way"), 0o755); err != nil {
		return err
	}
	status := func(want string) error {
		s.do("BGSAVE") //nolint:errcheck // a save may be under way
		info, err := redis.String(s.do("INFO", "persistence"))
		if err == nil && !strings.Contains(info, "rdb_last_bgsave_status:"+want) {
			err = fmt.Errorf("the last save is not %s", want)
		}
		return err
	}
	err := realredis.Within(10*time.Second, "a save", func() error { return status("err") })
	time.Sleep(d / 2)
	if gone := os.RemoveAll(at); gone != nil {
		return gone
	}
	return errors.Join(err, realredis.Within(20*time.Second, "a save", func() error { return status("ok") }))
}
