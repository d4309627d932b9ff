package interop

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/internal/must"
)

// A gate is a proxy between one client and its server. It sees each command that the client sends
// about a key, and can hold one back, which makes an unchanged client late at a chosen point.
type gate struct {
	t    testing.TB
	addr string
	key  string

	mu     sync.Mutex
	seen   map[string]int // commands that arrived, by name
	held   map[string]chan bool
	change chan struct{} // closed at each arrival
	conns  []net.Conn
}

func newGate(t testing.TB, server, key string) *gate {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	g := &gate{t: t, addr: l.Addr().String(), key: key, seen: map[string]int{}, held: map[string]chan bool{}, change: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				from.Close()
				continue
			}
			g.mu.Lock()
			g.conns = append(g.conns, from, to)
			g.mu.Unlock()
			all.Go(func() { g.commands(from, to) })
			all.Go(func() { io.Copy(from, to); from.Close() }) //nolint:errcheck // until either side closes
		}
	})
	t.Cleanup(func() {
		l.Close()
		g.mu.Lock()
		for _, c := range g.conns {
			c.Close()
		}
		for _, held := range g.held {
			close(held)
		}
		g.mu.Unlock()
		all.Wait()
	})
	return g
}

// commands forwards one command after the other.
func (g *gate) commands(from, to net.Conn) {
	defer to.Close()
	for r := bufio.NewReader(from); ; {
		args, raw, err := readCommand(r)
		if name, about := command(args); err != nil || about == g.key && !g.arrived(name) {
			return
		}
		if _, err := io.WriteString(to, raw); err != nil {
			return
		}
	}
}

// command is a request's command and its first key. A script is EVAL, whether it is named or sent.
func command(args []string) (name, key string) {
	if len(args) < 2 {
		return "", ""
	}
	name, key = strings.ToUpper(args[0]), args[1]
	if strings.HasPrefix(name, "EVAL") {
		name, key = "EVAL", ""
		if len(args) > 3 {
			key = args[3]
		}
	}
	return name, key
}

// arrived counts a command, and waits while it is held back. It returns false if the command must
// not reach the server.
func (g *gate) arrived(name string) bool {
	g.mu.Lock()
	g.seen[name]++
	close(g.change)
	g.change = make(chan struct{})
	held := g.held[name]
	g.mu.Unlock()
	return held == nil || <-held
}

// hold holds back every command of this name from now on, until pass or drop.
func (g *gate) hold(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[name] = make(chan bool)
}

// pass forwards the command that was held back, and holds back no other.
func (g *gate) pass(name string) { g.end(name, true) }

// drop drops the command that was held back, and its connection.
func (g *gate) drop(name string) { g.end(name, false) }

func (g *gate) end(name string, forward bool) {
	g.mu.Lock()
	held := g.held[name]
	delete(g.held, name)
	g.mu.Unlock()
	select {
	case held <- forward:
	case <-time.After(stepLimit):
		g.t.Errorf("no %s was held back", name)
	}
}

// count returns how many commands of this name have arrived.
func (g *gate) count(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.seen[name]
}

// await waits until n commands of this name have arrived since the gate was created, or until the
// client has answered; it returns that answer.
func (g *gate) await(p *process, name string, n int) string {
	g.t.Helper()
	deadline := time.After(stepLimit)
	for {
		g.mu.Lock()
		seen, change := g.seen[name], g.change
		g.mu.Unlock()
		if seen >= n {
			return ""
		}
		select {
		case <-change:
		case answer := <-p.answers:
			return answer
		case <-deadline:
			g.t.Fatalf("%s has not sent %s %d times", p.what, name, n)
		}
	}
}

// readCommand reads one request: an array of bulk strings.
func readCommand(r *bufio.Reader) (args []string, raw string, err error) {
	var all strings.Builder
	n, err := length(r, '*', &all)
	if err != nil {
		return nil, "", err
	}
	for range n {
		size, err := length(r, '$', &all)
		if err != nil {
			return nil, "", err
		}
		b := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, "", err
		}
		all.Write(b)
		args = append(args, string(b[:size]))
	}
	return args, all.String(), nil
}

func length(r *bufio.Reader, kind byte, all *strings.Builder) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if line[0] != kind {
		return 0, fmt.Errorf("%q in a request, want %q and a length", line, kind)
	}
	all.WriteString(line)
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
