//go:build linux

package main

import (
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A proxy is the network between one client and the server. What it does to a piece of a request
// or of a reply is decided by chance.
type proxy struct {
	to     string
	l      net.Listener
	counts *counts

	cut    atomic.Bool // nothing passes: a partition
	calm   atomic.Bool
	mu     sync.Mutex
	random *rand.Rand
	conns  map[net.Conn]bool
	under  sync.WaitGroup // requests that arrive late
}

// counts are how often what happened.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what]++
}

func (c *counts) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

func newProxy(to string, seed uint64, c *counts) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{to: to, l: l, counts: c, random: rand.New(rand.NewPCG(seed, 3)), conns: map[net.Conn]bool{}}
	go p.serve()
	return p, nil
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) serve() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		go p.pass(c)
	}
}

func (p *proxy) close() {
	p.l.Close()
	p.drop()
}

// drop ends every connection.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *proxy) forget(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// A hitch is what is done to a piece.
type hitch int

const (
	none hitch = iota
	cut
	torn
	swallowed
	delayed // for less than a lease
	late    // its sender is told that the connection is gone; it arrives nevertheless
)

func (p *proxy) chance() (hitch, time.Duration, float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, d, part := p.random.Float64(), time.Duration(p.random.Int64N(int64(1500*time.Millisecond))), p.random.Float64()
	if p.calm.Load() {
		return none, 0, 0
	}
	for _, h := range []struct {
		what hitch
		how  float64
	}{{cut, .004}, {torn, .002}, {swallowed, .001}, {delayed, .004}, {late, .003}} {
		if x -= h.how; x < 0 {
			return h.what, d, part
		}
	}
	return none, 0, 0
}

// pass carries one connection.
func (p *proxy) pass(client net.Conn) {
	p.keep(client)
	defer p.forget(client)
	server, err := net.DialTimeout("tcp", p.to, time.Second)
	if err != nil {
		return
	}
	p.keep(server)
	var under sync.WaitGroup // what arrives late keeps its connection to the server
	defer func() {
		go func() { under.Wait(); p.forget(server) }()
	}()
	gone := make(chan struct{})
	go func() { // replies
		defer close(gone)
		p.pump(server, client, func(b []byte, h hitch, d time.Duration) bool {
			if h == late {
				h = cut
			}
			return p.apply(client, b, h, d, "reply")
		})
		client.Close()
	}()
	p.pump(client, server, func(b []byte, h hitch, d time.Duration) bool {
		if h == late {
			p.counts.add("request late")
			late := append([]byte(nil), b...)
			under.Add(1)
			p.under.Add(1)
			go func() {
				defer p.under.Done()
				defer under.Done()
				time.Sleep(2 * d)
				server.Write(late) //nolint:errcheck // the server may be gone
				time.Sleep(50 * time.Millisecond)
			}()
			client.Close()
			return false
		}
		return p.apply(server, b, h, d, "request")
	})
	client.Close()
	under.Wait()
	server.Close()
	<-gone
}

// pump reads pieces and has each handled, until that says that it is over.
func (p *proxy) pump(from, to net.Conn, handle func(b []byte, h hitch, d time.Duration) bool) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if p.cut.Load() { // a partition: what was sent is gone, and nobody says so
			p.counts.add("partitioned")
			continue
		}
		h, d, part := p.chance()
		b := buf[:n]
		if h == torn {
			b = b[:int(part*float64(n))]
		}
		if !handle(b, h, d) {
			return
		}
	}
}

func (p *proxy) apply(to net.Conn, b []byte, h hitch, d time.Duration, which string) bool {
	switch h {
	case cut:
		p.counts.add(which + " lost")
		return false
	case torn:
		p.counts.add(which + " torn")
		to.Write(b) //nolint:errcheck // it is over
		return false
	case swallowed:
		p.counts.add(which + " swallowed")
		return true
	case delayed:
		p.counts.add(which + " delayed")
		time.Sleep(d)
	}
	_, err := to.Write(b)
	return err == nil
}
