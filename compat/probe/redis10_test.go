package probe_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/internal/must"
)

// redis10 answers as Redis 1.0.0 does: it takes every line for a command,
// and knows nothing of lines that count.
func redis10(t *testing.T) string {
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	arity := map[string]int{"get": 2, "ping": 1, "info": 1, "ttl": 2, "set": 3, "setnx": 3, "expire": 3, "del": -2, "auth": 2, "select": 2}
	serve := func(c net.Conn) {
		defer c.Close()
		for lines := bufio.NewScanner(c); lines.Scan(); {
			words := strings.Fields(lines.Text())
			if len(words) == 0 {
				continue
			}
			n, known := arity[strings.ToLower(words[0])]
			switch {
			case !known:
				fmt.Fprint(c, "-ERR unknown command\r\n")
			case n > 0 && len(words) != n, len(words) < -n:
				fmt.Fprint(c, "-ERR wrong number of arguments\r\n")
			case words[0] == "PING":
				fmt.Fprint(c, "+PONG\r\n")
			default:
				t.Errorf("this ran: %q", words)
				return
			}
		}
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

func TestRedis10(t *testing.T) {
	addr := redis10(t)
	for name, source := range map[string]compat.Pool{
		"fresh":  poolOf(t, addr),
		"pinged": pinged(t, addr, "PING"),
		"asked":  pinged(t, addr, "GET", "k"),
	} {
		_, err := probe.Ask(t.Context(), compat.Pooled(source), probe.Options{})
		var unsafe *compat.UnsafeServerError
		if !errors.As(err, &unsafe) || !errors.Is(err, compat.ErrUnsafeServer) || unsafe.Version != "1.0" {
			t.Errorf("%s: Probe: %v", name, err)
		}
		if _, _, err := probe.Offset(t.Context(), compat.Pooled(source), nil, probe.Options{}); !errors.Is(err, compat.ErrUnsafeServer) {
			t.Errorf("%s: Offset: %v", name, err)
		}
	}
}

// pinged returns a pool with an idle connection that is owed replies.
func pinged(t *testing.T, addr, name string, args ...any) *redis.Pool {
	pool := poolOf(t, addr)
	c := pool.Get()
	c.Do(name, args...) //nolint:errcheck // an error, of course
	c.Close()
	return pool
}
