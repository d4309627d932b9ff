//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A process runs one client, and starts it again after a kill.
type process struct {
	ways  []*proxy // to each server
	diary string
	start func() (*exec.Cmd, error)

	mu  sync.Mutex
	cmd *exec.Cmd

	crashes []span // a kill happened within each
	aways   []span // the client could not compete
}

func (p *process) run() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	cmd, err := p.start()
	p.cmd = cmd
	return err
}

// away records that the client is stopped, or cut off, for d from now on.
func (p *process) away(d time.Duration) { p.aways = append(p.aways, span{now(), now() + int64(d)}) }

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd.Process.Signal(s) //nolint:errcheck // the process may have ended
}

// run starts the servers and the clients, breaks things for the given time, and judges.
func (r run) run(ctx context.Context) (v verdict, err error) {
	if err := os.RemoveAll(r.Dir); err != nil {
		return v, err
	}
	seen := &counts{n: map[string]int{}}
	g, err := newGroup(r, seen)
	if err != nil {
		return v, err
	}
	defer g.close()
	until := time.Now().Add(r.For)
	var clients []*process
	defer func() {
		for _, p := range clients {
			p.signal(syscall.SIGKILL) // after an error, clients may still run
			for _, way := range p.ways {
				way.close()
			}
		}
	}()
	for i := range r.Clients {
		p, err := r.client(g, i, until)
		if err != nil {
			return v, err
		}
		clients = append(clients, p)
	}
	if err := r.breakThings(ctx, g, clients, until); err != nil {
		return v, err
	}
	for i, p := range clients {
		if err := p.ends(time.Until(until) + 90*time.Second); err != nil {
			v.broken("client %d: %v", i, err)
		}
	}
	v.Counts = seen.all()
	left, err := r.left(g)
	if err != nil {
		return v, err
	}
	// Before 2.6.14, a rewrite of the AOF drops the TTL of a key that has expired but still exists: after a restart the
	// key never expires.
	brought := r.Kind == alone && ability.Older(g.servers[0].version, "2.6.14")
	return v, v.judge(r, clients, g.lost(), left, brought)
}

// client starts the i-th client, with its own proxy to each server.
func (r run) client(g *group, i int, until time.Time) (*process, error) {
	o := order{Client: i, Kind: r.Kind, Mixed: r.Mixed, Addrs: g.addrs(), Ways: map[string]string{},
		Goroutines: r.Goroutines, Keys: r.keys(), Seed: r.Seed, Until: until, Diary: filepath.Join(r.Dir, fmt.Sprintf("client-%d.jsonl", i))}
	p := &process{diary: o.Diary}
	for n, s := range append(g.guards, g.servers...) {
		way, err := newProxy(s.addr, r.Seed+uint64(i*100+n)*17, g.seen)
		if err != nil {
			return nil, err
		}
		way.calm.Store(r.Calm)
		p.ways = append(p.ways, way)
		o.Ways[s.addr] = way.addr()
	}
	for _, s := range g.servers {
		o.Locks = append(o.Locks, r.lockFor(s.version))
		o.Millis = append(o.Millis, i%2 == 0 && !ability.Older(s.version, "2.6"))
	}
	p.start = func() (*exec.Cmd, error) {
		o.Seed++
		text, _ := json.Marshal(o)
		cmd := exec.Command(os.Args[0], "client", string(text))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd, cmd.Start()
	}
	return p, p.run()
}

// ends waits for the end of a client, and then for its late requests. After within, or 90 s if longer, the client has
// failed to end.
func (p *process) ends(within time.Duration) error {
	defer func() {
		for _, way := range p.ways {
			way.under.Wait()
		}
	}()
	done := make(chan error, 1)
	go func() { done <- p.cmd.Wait() }()
	select {
	case err := <-done:
		return err
	case <-time.After(max(within, 90*time.Second)):
		p.signal(syscall.SIGQUIT)
		return errors.New("it has not ended 90 s after it was asked to")
	}
}

// breakThings breaks clients, servers and the network until shortly before the end, and then heals them.
func (r run) breakThings(ctx context.Context, g *group, clients []*process, until time.Time) error {
	const calm = 1500 * time.Millisecond
	random := rand.New(rand.NewPCG(r.Seed, 1))
	var last sync.WaitGroup // goroutines that end a fault
	for ctx.Err() == nil {
		wait := time.Duration(200+random.IntN(1800)) * time.Millisecond
		if time.Until(until) < wait+calm {
			break
		}
		time.Sleep(wait)
		if r.Calm {
			continue
		}
		p, d := clients[random.IntN(len(clients))], time.Duration(random.Int64N(int64(2*time.Second)))
		later := func(d time.Duration, what func()) { last.Go(func() { time.Sleep(d); what() }) }
		if err := g.disturb(p, random, d, later); err != nil {
			return err
		}
	}
	g.heal()
	for _, p := range clients {
		for _, way := range p.ways {
			way.calm.Store(true)
		}
		if ctx.Err() != nil {
			p.signal(syscall.SIGTERM)
		}
	}
	last.Wait()
	return nil
}

// disturb runs one fault on a client, or on the servers. later calls a function that ends the fault, after a delay.
func (g *group) disturb(p *process, random *rand.Rand, d time.Duration, later func(time.Duration, func())) error {
	switch random.IntN(10) {
	case 0, 1:
		g.seen.add("client stopped")
		p.signal(syscall.SIGSTOP)
		p.away(2 * d)
		later(2*d, func() { p.signal(syscall.SIGCONT) })
	case 2:
		g.seen.add("client killed")
		from := now()
		p.signal(syscall.SIGKILL)
		p.cmd.Wait() //nolint:errcheck // killed
		p.crashes = append(p.crashes, span{from, now()})
		return p.run()
	case 3:
		g.seen.add("client partitioned")
		p.away(d)
		for i, way := range p.ways { // to all servers, or to some
			if i == 0 || random.IntN(2) == 0 {
				way.cut.Store(true)
				later(d, func() { way.cut.Store(false) })
			}
		}
	case 4:
		g.seen.add("connections dropped")
		for _, way := range p.ways {
			way.drop()
		}
	default:
		return g.breakOne(random, d)
	}
	return nil
}

// keys returns the keys of a run.
func (r run) keys() []string {
	var keys []string
	for i := range r.Keys {
		keys = append(keys, fmt.Sprint("chaos", i))
	}
	return keys
}

// left returns the keys without a TTL at the end of a run. A key has a few seconds to get a TTL, or to
// go.
func (r run) left(g *group) (left []string, err error) {
	times := false
	for _, s := range g.servers {
		times = times || strings.Contains(r.lockFor(s.version), "getset")
	}
	realredis.Within(longest+2*time.Second, "no key is left", func() error { //nolint:errcheck // left has the keys
		if left, err = g.left(times); err == nil && len(left) > 0 {
			return errors.New("keys are left")
		}
		return err
	})
	return left, err
}

// lockFor returns the lock for a server of a version. In a group of mixed versions, a server too old for
// the run's lock gets another one.
func (r run) lockFor(version string) string {
	_, name := formOf(r.Lock)
	switch l, _ := locks.Get(name); {
	case !ability.Older(version, l.Since):
		return r.Lock
	case ability.Older(version, "2.2"):
		return "getset:listed"
	}
	return "tx:renamed"
}
