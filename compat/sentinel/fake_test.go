package sentinel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/internal/must"
)

// A fakeSentinel answers what it is told to, on its own port.
type fakeSentinel struct {
	addr string
	s    *server.Server

	mu    sync.Mutex
	id    string
	names string   // the master's address, or one of the words below
	knows []string // the other Sentinels
	asked []string // the commands that came
}

// What a Sentinel can say instead of an address.
const (
	nobody    = "nobody"    // it watches no master of this name
	dontKnow  = "IDONTKNOW" // it has not seen the master yet
	noAuth    = "NOAUTH"    // it wants a password
	aNumber   = "a number"  // it is none
	threeWord = "three"     // it is none
	nothing   = "nothing"   // it takes the question, and says nothing
)

func runSentinel(t *testing.T, names string) *fakeSentinel {
	t.Helper()
	s := must.Get(server.NewServer("127.0.0.1:0"))(t)
	f := &fakeSentinel{addr: s.Addr().String(), s: s, id: s.Addr().String(), names: names}
	silence := make(chan struct{})
	t.Cleanup(func() { close(silence); s.Close() })
	s.Register("INFO", func(c *server.Peer, cmd string, args []string) { //nolint:errcheck
		f.note("INFO")
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.id == "" {
			c.WriteError("NOPERM this user has no permissions to run the 'info' command")
			return
		}
		c.WriteBulk("# Server\r\nredis_version:7.0.15\r\nrun_id:" + f.id + "\r\n")
	})
	s.Register("SENTINEL", func(c *server.Peer, cmd string, args []string) { //nolint:errcheck
		f.note("SENTINEL " + strings.Join(args, " "))
		f.mu.Lock()
		names, knows := f.names, f.knows
		f.mu.Unlock()
		if names == nothing {
			<-silence
		}
		if names == noAuth {
			c.WriteError("NOAUTH Authentication required.")
			return
		}
		if args[0] == "sentinels" {
			if names == nobody {
				c.WriteError("ERR No such master with that name")
				return
			}
			c.WriteLen(len(knows))
			for _, addr := range knows {
				host, port, _ := net.SplitHostPort(addr)
				c.WriteStrings([]string{"name", addr, "ip", host, "port", port, "runid", "0", "flags", "sentinel"})
			}
			return
		}
		host, port, _ := net.SplitHostPort(names)
		switch names {
		case nobody:
			c.WriteLen(-1)
		case dontKnow:
			c.WriteError("IDONTKNOW I have not enough information to reply. Please ask another Sentinel.")
		case aNumber:
			c.WriteInt(26379)
		case threeWord:
			c.WriteStrings([]string{"127.0.0.1", "6379", "master"})
		default:
			c.WriteStrings([]string{host, port})
		}
	})
	return f
}

func (f *fakeSentinel) note(cmd string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, cmd)
}

// commands are those that came since the last call.
func (f *fakeSentinel) commands() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func (f *fakeSentinel) name(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = addr
}

// A network has servers at addresses.
type network struct {
	mu      sync.Mutex
	servers map[string]*fakeServer
}

// A fakeServer is an embedded Redis behind a network that replaces some of its replies.
type fakeServer struct {
	*oldredis.Server
	net faulty.Network

	mu   sync.Mutex
	says map[string]any // by command: its reply, instead of the server's. Not run.
	ran  func(string)   // when a command has run and its reply is under way
}

func (s *fakeServer) fate(m faulty.Message) faulty.Fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply, replaced := s.says[m.Name]
	ran := s.ran
	return faulty.Fate{Serve: func(run func(...any) any) any {
		if ran != nil {
			defer ran(m.Name)
		}
		if replaced {
			return reply
		}
		return run()
	}}
}

func newNetwork(t *testing.T, versions ...string) (*network, []*fakeServer) {
	n := &network{servers: map[string]*fakeServer{}}
	var all []*fakeServer
	for i, v := range versions {
		s := &fakeServer{Server: oldredis.Run(t, v), says: map[string]any{}}
		if v == "5.0" { // which has it, and oldredis has no replicas to tell of
			s.says["ROLE"] = []any{[]byte("master"), int64(0), []any{}}
		}
		s.net.Expect(s.fate)
		all = append(all, s)
		n.servers[addr(i)] = s
	}
	return n, all
}

// addr is the address of a network's i-th server.
func addr(i int) string { return fmt.Sprintf("10.0.0.%d:6379", i) }

func (n *network) dial(_ context.Context, addr string) (redis.Conn, error) {
	n.mu.Lock()
	s := n.servers[addr]
	n.mu.Unlock()
	if s == nil {
		return nil, errRefused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err, ok := s.says["AUTH"].(redis.Error); ok {
		return nil, err
	}
	return s.net.Conn(s.Dial()), nil
}

// answer has s reply so to a command; nil: as it would itself.
func (s *fakeServer) answer(name string, reply any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reply == nil {
		delete(s.says, name)
	} else {
		s.says[name] = reply
	}
}

// errRefused is how a Dial ends where nobody listens.
var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
