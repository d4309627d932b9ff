package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A process is one client's: it is killed and started again.
type process struct {
	mu    sync.Mutex
	cmd   *exec.Cmd
	start func() (*exec.Cmd, error)
	over  bool
}

func (p *process) run() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return nil
	}
	cmd, err := p.start()
	p.cmd = cmd
	return err
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd.Process.Signal(s) //nolint:errcheck // it may have ended
}

// run starts the server and the clients, breaks things for the given time, and judges.
func (r run) run(ctx context.Context) (verdict, error) {
	if err := os.RemoveAll(r.Dir); err != nil {
		return verdict{}, err
	}
	s, err := newServer(r.Binary, r.Dir)
	if err != nil {
		return verdict{}, err
	}
	defer func() { s.kill() }()
	random := rand.New(rand.NewPCG(r.Seed, 1))
	counts := &counts{n: map[string]int{}}
	until := time.Now().Add(r.For)
	var keys []string
	for i := range r.Keys {
		keys = append(keys, fmt.Sprint("chaos", i))
	}
	var proxies []*proxy
	var processes []*process
	var diaries []string
	for i := range r.Clients {
		p, err := newProxy(s.addr, r.Seed+uint64(i)*17, counts)
		if err != nil {
			return verdict{}, err
		}
		defer p.close()
		proxies = append(proxies, p)
		o := order{Client: i, Addr: p.addr(), Lock: r.Lock, Variant: r.Variant, Millis: !older(r.Version, "2.6") && i%2 == 0,
			Goroutines: r.Goroutines, Keys: keys, Seed: r.Seed, Until: until, Diary: filepath.Join(r.Dir, fmt.Sprintf("client-%d.jsonl", i))}
		diaries = append(diaries, o.Diary)
		proc := &process{start: func() (*exec.Cmd, error) {
			o.Seed++
			text, _ := json.Marshal(o)
			cmd := exec.Command(os.Args[0], "client", string(text))
			cmd.Stderr = os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			return cmd, cmd.Start()
		}}
		if err := proc.run(); err != nil {
			return verdict{}, err
		}
		processes = append(processes, proc)
	}
	var crashes []crash
	for time.Now().Before(until.Add(-3*time.Second)) && ctx.Err() == nil {
		wait := time.Duration(200+random.IntN(2500)) * time.Millisecond
		time.Sleep(min(wait, time.Until(until)))
		if time.Until(until) < 3*time.Second {
			break
		}
		i, d := random.IntN(len(processes)), time.Duration(random.Int64N(int64(2*time.Second)))
		p := processes[i]
		switch what := random.IntN(11); what {
		case 0:
			counts.add("server stopped")
			s.signal(syscall.SIGSTOP)
			time.Sleep(d)
			s.signal(syscall.SIGCONT)
		case 1:
			counts.add("server killed")
			s.kill()
			time.Sleep(d / 4)
			if err := s.start(); err != nil {
				return verdict{}, err
			}
		case 2:
			counts.add("connections killed")
			list, _ := redis.String(s.do("CLIENT", "LIST"))
			for _, c := range strings.Split(list, "\n") {
				if addr, _, ok := strings.Cut(strings.TrimPrefix(field(c, "addr="), "addr="), " "); ok || addr != "" {
					s.do("CLIENT", "KILL", addr) //nolint:errcheck // it may be gone
				}
			}
		case 3:
			counts.add("scripts forgotten")
			s.do("SCRIPT", "FLUSH") //nolint:errcheck // older ones have none
		case 4:
			counts.add("server busy")
			s.do("DEBUG", "SLEEP", fmt.Sprintf("%.2f", d.Seconds()/2)) //nolint:errcheck // older ones have none
		case 5:
			counts.add("server full")
			if _, err := s.do("CONFIG", "SET", "maxmemory", "1"); err == nil {
				time.Sleep(d)
				s.do("CONFIG", "SET", "maxmemory", "0") //nolint:errcheck // asked for again at the end
			}
		case 6, 7:
			counts.add("client stopped")
			p.signal(syscall.SIGSTOP)
			time.AfterFunc(2*d, func() { p.signal(syscall.SIGCONT) })
		case 8:
			counts.add("client killed")
			p.signal(syscall.SIGKILL)
			p.cmd.Wait() //nolint:errcheck // killed
			crashes = append(crashes, crash{i, time.Now().UnixNano()})
			if err := p.run(); err != nil {
				return verdict{}, err
			}
		case 9:
			counts.add("client partitioned")
			proxies[i].cut.Store(true)
			time.AfterFunc(d, func() { proxies[i].cut.Store(false) })
		case 10:
			counts.add("connections dropped")
			proxies[i].drop()
		}
	}
	s.do("CONFIG", "SET", "maxmemory", "0") //nolint:errcheck // older ones have no such thing
	for i, p := range processes {
		proxies[i].calm.Store(true)
		proxies[i].cut.Store(false)
		p.signal(syscall.SIGCONT)
	}
	v := verdict{Counts: counts.n}
	for i, p := range processes {
		done := make(chan error, 1)
		go func() { done <- p.cmd.Wait() }()
		select {
		case err := <-done:
			if err != nil {
				v.broken("client %d: %v", i, err)
			}
		case <-time.After(90 * time.Second):
			p.signal(syscall.SIGQUIT)
			v.broken("client %d has not ended 90 s after it was asked to", i)
		}
	}
	time.Sleep(longest + 2*time.Second)
	if err := v.judge(r, diaries, crashes); err != nil {
		return v, err
	}
	left, _ := redis.Strings(s.do("KEYS", "*"))
	for _, key := range left {
		ttl, _ := redis.Int(s.do("TTL", key))
		if !strings.Contains(key, ":fence") && ttl < 0 && !(strings.HasPrefix(r.Lock, "getset") && !strings.Contains(key, ":")) {
			v.broken("left without a TTL: %s", key)
		}
	}
	return v, nil
}

// field is the field of a CLIENT LIST line that begins so.
func field(text, begins string) string {
	for _, f := range strings.Fields(text) {
		if strings.HasPrefix(f, begins) {
			return f
		}
	}
	return ""
}
