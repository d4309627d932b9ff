// Package guard looks at the bytes of replies before a client library reads them. redigo and others allocate what the
// head of a string or a list asks for, and go as deep as lists are nested: a server that lies, or whoever answers in
// its place, ends the process with one reply, and no program can recover from that.
//
//	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
//		return redis.Dial("tcp", "127.0.0.1:6379", redis.DialContextFunc(guard.Dial(nil)))
//	}}
//
// It reads RESP 2.
package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
)

// The errors of a connection that broke over a reply. Nothing of it was read.
var (
	ErrTooLarge = errors.New("setnxlock: a reply is too large")
	ErrNotRESP  = errors.New("setnxlock: not a reply in RESP 2")
)

// What one reply may be. A lock's are small; the largest that the command asks for are INFO and a list of keys.
const (
	roomAtMost   = 12 << 20 // bytes that redigo takes for it
	stringAtMost = 4 << 20  // of one string: its reader copies it
	lineAtMost   = 64 << 10 // of a status or an error
	headAtMost   = 32       // of a line that holds a number
	depthAtMost  = 16       // of lists in lists
)

// A Dialer connects, as the DialContext of a net.Dialer does.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial returns dial (nil: a net.Dialer's) with guarded connections. They break at a reply too large for a lock: with
// more than 12 MB in all, a string of more than 4 MB, or lists more than 16 deep. What came before it can be read.
// Over TLS pass the DialContext of a tls.Dialer, in place of redis.DialUseTLS: the guard must see decrypted bytes.
// The result fits redis.DialContextFunc, and go-redis' Options.Dialer.
func Dial(dial Dialer) Dialer {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &guard{Conn: c}, nil
	}
}

// A guard follows the replies that are read over it.
type guard struct {
	net.Conn
	err  error
	head [headAtMost]byte // of the line under way
	line int              // bytes of it
	skip int              // bytes of a string that are still to come
	left []int            // replies that are still to come, in each of the lists under way
	room int              // that the reply under way takes
}

func (g *guard) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.Conn.Read(p)
	for i := 0; i < n; {
		if g.skip > 0 {
			passed := min(g.skip, n-i)
			i += passed
			if g.skip -= passed; g.skip == 0 {
				g.ended()
			}
			continue
		}
		if g.err = g.see(p[i]); g.err != nil {
			return i, g.err
		}
		i++
	}
	return n, err
}

// see follows one byte of a line, and says why it is not to be read.
func (g *guard) see(b byte) error {
	if g.line < len(g.head) {
		g.head[g.line] = b
	}
	g.line++
	most := headAtMost
	switch g.head[0] {
	case '+', '-':
		most = lineAtMost
	case ':', '$', '*':
	default:
		return fmt.Errorf("%w: it begins with %q", ErrNotRESP, g.head[0])
	}
	if g.line > most {
		return fmt.Errorf("%w: a line of more than %d bytes", ErrTooLarge, most)
	}
	if b != '\n' {
		return nil
	}
	size := g.line
	g.line = 0
	switch g.head[0] {
	case '+', '-':
		g.room += size
	case '$', '*':
		n, ok := length(g.head[1:size])
		if !ok {
			return fmt.Errorf("%w: %q is not a length", ErrNotRESP, g.head[1:size])
		}
		if n >= 0 {
			return g.sized(g.head[0], n)
		}
	}
	return g.took(16)
}

// sized follows the head of a string or a list.
func (g *guard) sized(kind byte, n int) error {
	switch {
	case kind == '$' && n > stringAtMost:
		return fmt.Errorf("%w: a string of %d bytes, more than %d", ErrTooLarge, n, stringAtMost)
	case kind == '$':
		g.skip, g.room = n+2, g.room+n+32
	case n > roomAtMost/16:
		return fmt.Errorf("%w: a list of %d replies", ErrTooLarge, n)
	case len(g.left) == depthAtMost:
		return fmt.Errorf("%w: lists in lists, more than %d deep", ErrTooLarge, depthAtMost)
	case n > 0:
		g.left, g.room = append(g.left, n), g.room+16*n+32
	default:
		return g.took(32)
	}
	return g.full()
}

// took ends a reply of this size.
func (g *guard) took(room int) error {
	g.room += room
	err := g.full()
	if err == nil {
		g.ended()
	}
	return err
}

func (g *guard) full() error {
	if g.room > roomAtMost {
		return fmt.Errorf("%w: it takes more than %d bytes", ErrTooLarge, roomAtMost)
	}
	return nil
}

// ended ends a reply, and every list with it as its last.
func (g *guard) ended() {
	for last := len(g.left) - 1; last >= 0; last-- {
		if g.left[last]--; g.left[last] > 0 {
			return
		}
		g.left = g.left[:last]
	}
	g.room = 0
}

// length reads the rest of the line of a string or a list: -1 or a number, as servers write it.
func length(line []byte) (n int, ok bool) {
	if len(line) < 3 || line[len(line)-2] != '\r' {
		return 0, false
	}
	text := string(line[:len(line)-2])
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= -1 && (n < 0 || text[0] >= '0')
}
