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

// A fault is something that is done to a server. It returns when it is over.
type fault struct {
	what string
	do   func(s *server, d time.Duration) error
}

var clientAddr = regexp.MustCompile(`\baddr=(\S+)`) // of a CLIENT LIST

// ordinary faults leave a server what it has answered.
func (g *group) ordinary() []fault {
	all := []fault{
		stopped,
		{"connections killed", func(s *server, _ time.Duration) error {
			list, _ := redis.String(s.do("CLIENT", "LIST"))
			for _, c := range clientAddr.FindAllStringSubmatch(list, -1) {
				s.do("CLIENT", "KILL", c[1]) //nolint:errcheck // it may be gone
			}
			return nil
		}},
		{"scripts forgotten", func(s *server, _ time.Duration) error {
			s.do("SCRIPT", "FLUSH") //nolint:errcheck // older ones have none
			return nil
		}},
		{"server busy", func(s *server, d time.Duration) error {
			s.do("DEBUG", "SLEEP", fmt.Sprintf("%.2f", d.Seconds()/2)) //nolint:errcheck // older ones have none
			return nil
		}},
	}
	if g.kind != clustered {
		all = append(all, fault{"slow KEYS", slowKeys})
	}
	if !slices.ContainsFunc(g.servers, func(s *server) bool { return ability.Older(s.version, "2.2") }) { // 2.0 makes room by the keys that have a TTL, whatever it is told
		all = append(all, fault{"memory full", func(s *server, d time.Duration) error {
			if _, err := s.do("CONFIG", "SET", "maxmemory", "1"); err != nil {
				return nil
			}
			time.Sleep(d)
			s.do("CONFIG", "SET", "maxmemory", "0") //nolint:errcheck // asked for again in the end
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
	s.kill()
	time.Sleep(d / 4)
	return s.start()
}}

// faults are what may be done to the servers of this group.
func (g *group) faults() []fault {
	all := g.ordinary()
	switch g.kind {
	case alone:
		all = append(all, killed)
		if g.servers[0].disk {
			all = append(all, fault{"disk full", diskFull})
		}
	case saved, unsaved:
		if !ability.Older(g.servers[0].version, "2.6") { // before, a save that failed was nobody's concern
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
			s.do("SAVE") //nolint:errcheck // then there is more to lose
			return nil
		}}
		forgets := fault{"server killed, unsaved", func(s *server, d time.Duration) error {
			from := now()
			s.kill()
			g.forgot(span{from, now()}, g.keys)
			time.Sleep(d / 4)
			return s.start()
		}}
		all = append(all, saves, forgets, saves, forgets, forgets) // what it is there for comes more often
	case five:
		all = append(all, killed, killed)
	}
	return all
}

// breakOne does one thing to one server, or to two of five.
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
	for i, which := range pick(random, n, len(g.servers)) {
		f := all[random.IntN(len(all))]
		g.seen.add(f.what)
		wg.Go(func() { errs[i] = f.do(g.servers[which], d) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// breakMaster does one thing to a master, or has it replaced. What would do that comes seldom enough
// for most of the time to lie outside of what a failover may lose.
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
		s.kill()
		time.Sleep(3 * time.Second)
		return s.start()
	case 1:
		g.seen.add("master stopped")
		return stopped.do(s, 4500*time.Millisecond)
	case 2:
		g.seen.add("failover asked for")
		if g.guards != nil {
			g.guards[0].do("SENTINEL", "FAILOVER", "chaos") //nolint:errcheck // it has reasons to refuse
			return nil
		}
		for _, r := range g.servers {
			if is, err := r.master(); err == nil && !is {
				r.do("CLUSTER", "FAILOVER") //nolint:errcheck // it has reasons to refuse
				return nil
			}
		}
	case 3, 4:
		return g.part(random, s)
	}
	return nil
}

// part parts a master from those that follow it, from those that would replace it, or from both; its clients reach it all the time.
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

// slowKeys has the server look through many keys, three times: it answers nobody else meanwhile.
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
			c.Send("MSET", args...) //nolint:errcheck // Flush tells
		}
		c.Do("") //nolint:errcheck // there are fewer, then
	}
	for range 3 {
		c.Send("KEYS", "*") //nolint:errcheck // Do tells
	}
	c.Do("") //nolint:errcheck // the answer is nobody's concern
	return nil
}

// diskFull leaves the server no byte for its log: it ends by itself at the next change, without an
// answer. With room again it starts from what it had answered.
func diskFull(s *server, d time.Duration) error {
	free, err := fillDisk(s.dir)
	if err != nil {
		return err
	}
	time.Sleep(d / 2)
	if err := free(); err != nil {
		return err
	}
	s.kill() // nobody may have asked for a change
	return s.start()
}

// snapshotsFail has a directory stand where the server wants to save, until it has tried: it refuses
// changes from then on (MISCONF), and goes on when it has saved again.
func snapshotsFail(s *server, d time.Duration) error {
	at := filepath.Join(s.dir, "dump.rdb")
	os.Remove(at) //nolint:errcheck // there may be none
	if err := os.MkdirAll(filepath.Join(at, "in the way"), 0o755); err != nil {
		return err
	}
	status := func(want string) error {
		s.do("BGSAVE") //nolint:errcheck // one may be on its way
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
