package oldredis

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// Listen serves the same data on a TCP address, such as "127.0.0.1:0". It
// returns the address with the port that was chosen; Close ends it.
func (s *Server) Listen(addr string) (net.Addr, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		l.Close()
		return nil, errClosed
	}
	s.ports = append(s.ports, l)
	s.served.Add(1)
	go s.acceptAll(l)
	return l.Addr(), nil
}

func (s *Server) acceptAll(l net.Listener) {
	defer s.served.Done()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		c := s.accept()
		if c.dead == nil {
			s.served.Add(2)
			go s.read(c, conn)
			go s.write(c, conn)
		} else {
			conn.Close()
		}
		s.mu.Unlock()
	}
}

// read receives what the client sends until either side ends the connection.
func (s *Server) read(c *session, conn net.Conn) {
	defer s.served.Done()
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		s.mu.Lock()
		var bad badProtocol
		switch {
		case errors.As(err, &bad):
			s.push(c, redis.Error("ERR Protocol error: "+string(bad)))
			s.hangUp(c, errCut)
		case err != nil:
			s.cut(c, err)
		case len(args) > 0:
			c.hold = r.Buffered() > 0
			s.receive(c, args)
			if !c.hold {
				c.wake()
			}
		}
		dead := c.dead != nil
		s.mu.Unlock()
		if dead {
			return
		}
	}
}

// write sends the replies, and closes the connection once the session has ended.
func (s *Server) write(c *session, conn net.Conn) {
	defer s.served.Done()
	defer conn.Close()
	w := bufio.NewWriter(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for c.dead == nil && (len(c.out) == 0 || c.hold) {
			s.wait(c)
		}
		replies, dead := c.out, c.dead != nil
		c.out = nil
		s.mu.Unlock()
		for _, r := range replies {
			writeReply(w, r)
		}
		err := w.Flush()
		s.mu.Lock()
		if err != nil {
			s.cut(c, err)
		}
		if dead || err != nil {
			return
		}
	}
}

// badProtocol is a request error on which Redis closes the connection.
type badProtocol string

func (e badProtocol) Error() string { return string(e) }

const maxArgs = 1024 * 1024

// readCommand reads one request, in the unified protocol or in one line.
func readCommand(r *bufio.Reader) ([]string, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(line, "*") {
		return strings.Fields(line), nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n > maxArgs {
		return nil, badProtocol("invalid multibulk length")
	}
	var args []string
	for range n {
		line, err := readLine(r)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(line, "$") {
			return nil, badProtocol("expected '$'")
		}
		size, err := strconv.Atoi(line[1:])
		if err != nil || size < 0 || size > 512<<20 {
			return nil, badProtocol("invalid bulk length")
		}
		p := make([]byte, size+2)
		if _, err := io.ReadFull(r, p); err != nil {
			return nil, err
		}
		args = append(args, string(p[:size]))
	}
	return args, nil
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}
