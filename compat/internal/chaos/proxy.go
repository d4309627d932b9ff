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

// A proxy is the network between one client and one server. Chance decides the hitch of each piece of a
// request or a reply.
type proxy struct {
	to     string
	l      net.Listener
	counts *counts

	cut    atomic.Bool // a partition: no piece passes
	calm   atomic.Bool
	mu     sync.Mutex
	random *rand.Rand
	conns  map[net.Conn]bool
	under  sync.WaitGroup // connections
}

// counts counts faults and hitches by their names.
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
		p.under.Go(func() { p.pass(c) })
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

// A hitch is a fault of the network for one piece.
type hitch int

const (
	none hitch = iota
	cut
	torn
	swallowed
	delayed // for less than a lease
	late    // the client's connection breaks, and the piece arrives nevertheless
)

func (h hitch) String() string {
	return [...]string{"passed", "lost", "torn", "swallowed", "delayed", "late"}[h]
}

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
	defer p.forget(server)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		p.pump(server, client, "reply")
		client.Close()
	}()
	p.pump(client, server, "request")
	client.Close()
	server.Close()
	<-gone
}

// pump forwards pieces until one end is gone, or a hitch ends the connection. After a lost piece no other piece
// arrives: TCP brings bytes in their order or not at all. A client would take the next reply for the lost one.
func (p *proxy) pump(from, to net.Conn, which string) {
	buf := make([]byte, 64<<10)
	silent := false
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if silent {
			continue
		}
		if p.cut.Load() { // a partition loses the piece without an error
			p.counts.add("partitioned")
			silent = true
			continue
		}
		h, d, part := p.chance()
		if h == late && which == "reply" {
			h = cut
		}
		if h != none {
			p.counts.add(which + " " + h.String())
		}
		b := buf[:n]
		switch h {
		case cut:
			return
		case swallowed:
			silent = true
			continue
		case torn:
			to.Write(b[:int(part*float64(n))]) //nolint:errcheck // the connection ends anyway
			return
		case late: // the connection to the server stays open for the piece
			from.Close()
			time.Sleep(2 * d)
			to.Write(b) //nolint:errcheck // the server may be gone
			time.Sleep(50 * time.Millisecond)
			return
		case delayed:
			time.Sleep(d)
		}
		if _, err := to.Write(b); err != nil {
			return
		}
	}
}
