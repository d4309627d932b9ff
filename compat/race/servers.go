package race

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/oldredis"
)

// The one embedded server stands for several where a lock is spread over them:
// each has the keys that begin with its name, "S2:lock.report". What the lock
// sends must be complete in itself, one command or one script: the engines keep
// one connection for each client.

// serverCount is of how many servers a quorum is made.
const serverCount = 3

// downKey follows a server's name on the key that stands for its being gone.
const downKey = ":down"

func nth(n int) string { return "S" + strconv.Itoa(n) }

// serverOf is the server that a key is on; 0 if there is only one.
func serverOf(key string) int {
	if len(key) > 2 && key[0] == 'S' && key[2] == ':' && key[1] >= '1' && key[1] <= '0'+serverCount {
		return int(key[1] - '0')
	}
	return 0
}

// addressed is the server that commands are for.
func addressed(cmds [][]string) int {
	for _, cmd := range cmds {
		for _, a := range cmd[1:] {
			if n := serverOf(a); n > 0 {
				return n
			}
		}
	}
	return 0
}

// down is a set of the servers that are gone, by their numbers.
func down(entries []oldredis.Entry) (set uint8) {
	for _, e := range entries {
		if strings.HasSuffix(e.Key, downKey) {
			set |= 1 << serverOf(e.Key)
		}
	}
	return set
}

// takeDown makes a server one that answers no more.
func takeDown(s *oldredis.Server, n int) {
	c := s.Dial()
	defer c.Close()
	c.Do("SET", nth(n)+downKey, "gone") //nolint:errcheck // a server in memory
}

// forget removes what one of several servers holds. Its connections are none of
// those that a client keeps, and go on.
func forget(s *oldredis.Server, n int) {
	for _, e := range s.Snapshot().Entries(s) {
		if strings.HasPrefix(e.Key, nth(n)+":") {
			s.Evict(e.Key)
		}
	}
}

// servers is on how many servers the lock is; 0: on one, and no choice names it.
func (c *Config) servers() int {
	if c.form() == quorum {
		return serverCount
	}
	return 0
}

// keyOn is the key as it is called on a server; 0: the only one.
func keyOn(key string, n int) string {
	if n == 0 {
		return key
	}
	return nth(n) + ":" + key
}

// A view is a connection to one of several servers.
type view struct {
	redis.Conn
	server int
	key    string
	lent   bool // it is another's, who closes it
	err    error
}

// A views makes a Source of views: over connections of the client that is explored,
// or over one that was handed in.
type views struct {
	a      *agent
	lent   redis.Conn
	server int
}

func (v views) source() compat.Source { return compat.Source{Get: v.dial, Prompt: true} }

// dial finds out whether the server is gone where no engine does.
func (v views) dial(context.Context, string) (redis.Conn, error) {
	if v.lent != nil {
		if gone, _ := redis.Bool(v.lent.Do("EXISTS", nth(v.server)+downKey)); gone {
			return nil, errNoAnswer
		}
		return &view{Conn: v.lent, server: v.server, key: v.a.c.Key, lent: true}, nil
	}
	return &view{Conn: v.a.wire(), server: v.server, key: v.a.c.Key}, nil
}

// errNoAnswer is what a client knows of a server that is gone, and of a message
// to one of several that was lost: its patience with it was over.
var errNoAnswer = fmt.Errorf("race: no answer: %w", os.ErrDeadlineExceeded)

func (v *view) Err() error { return errors.Join(v.err, v.Conn.Err()) }

func (v *view) Close() error {
	if v.lent {
		return nil
	}
	return v.Conn.Close()
}

// on has the names of keys as this server has them.
func (v *view) on(args []any) []any {
	list := make([]any, len(args))
	for i, a := range args {
		if s, ok := a.(string); ok && strings.Contains(s, v.key) {
			a = keyOn(s, v.server)
		}
		list[i] = a
	}
	return list
}

func (v *view) Send(cmd string, args ...any) error {
	if err := v.Err(); err != nil {
		return err
	}
	return v.Conn.Send(cmd, v.on(args)...)
}

func (v *view) Do(cmd string, args ...any) (any, error) {
	if err := v.Err(); err != nil {
		return nil, err
	}
	return v.Conn.Do(cmd, v.on(args)...)
}

func (v *view) DoContext(ctx context.Context, cmd string, args ...any) (any, error) {
	if err := ctx.Err(); err != nil {
		v.err = err // as redigo does it to a healthy connection
		return nil, err
	}
	return v.Do(cmd, args...)
}

func (v *view) DoWithTimeout(_ time.Duration, cmd string, args ...any) (any, error) {
	return v.Do(cmd, args...)
}

func (v *view) ReceiveContext(context.Context) (any, error)   { return nil, errNoReceive }
func (v *view) ReceiveWithTimeout(time.Duration) (any, error) { return nil, errNoReceive }
