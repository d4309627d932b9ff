package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/probe"
)

// An introduction names the connections to a node in CLIENT LIST. A proxy may close a connection on the
// command, so it waits for an INFO from a server that knows the command.
type introduction struct {
	may     atomic.Bool
	refused func()
}

// clientName returns setnxlock/HOST/PID.
func clientName() string {
	host := strings.Map(func(r rune) rune { // a name is of printable ASCII, without blanks
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, hostname())
	return "setnxlock/" + host + "/" + strconv.Itoa(os.Getpid())
}

// dial dials, and tells the name. A refusal is no error.
func (i *introduction) dial(dial func() (redis.Conn, error)) (redis.Conn, error) {
	c, err := dial()
	if err != nil || !i.may.Load() || i.tell(c) {
		return c, err
	}
	c.Close()
	return dial()
}

// dialAt wraps dial for a deployment of several addresses.
func (i *introduction) dialAt(dial func(context.Context, string) (redis.Conn, error)) func(context.Context, string) (redis.Conn, error) {
	return func(ctx context.Context, at string) (redis.Conn, error) {
		return i.dial(func() (redis.Conn, error) { return dial(ctx, at) })
	}
}

// tell sends the name on a connection, and reports whether the connection still lives.
func (i *introduction) tell(c redis.Conn) bool {
	_, err := c.Do("CLIENT", "SETNAME", clientName())
	if err == nil {
		return true
	}
	i.may.Store(false)
	if errors.As(err, new(redis.Error)) {
		i.refused()
	}
	return c.Err() == nil
}

// introduction makes a node's introduction. A server that has refused the name is asked again after a day:
// each time would be a line of its ACL LOG.
func (a *app) introduction(node string) *introduction {
	return &introduction{refused: func() {
		a.remembered().due(nameless+node, time.Now())
		a.keep()
	}}
}

const nameless = "no client name: "

// introduce names the idle connection and all later ones to a node, once the node has answered r.
func (a *app) introduce(ctx context.Context, n node, r probe.Report) {
	if r.Kind == "proxy" || r.Version == "" || ability.Older(r.Version, "2.6.9") || a.remembered().knows(nameless+n.name, time.Now()) {
		return
	}
	n.named.may.Store(true)
	c, err := n.source.Get(ctx, "")
	if err != nil {
		return // whoever needs one is told
	}
	n.named.tell(c)
	c.Close()
}

// introduceUnasked asks for INFO by itself, then does as introduce.
func (a *app) introduceUnasked(ctx context.Context, n node) {
	c, err := n.source.Get(ctx, "")
	if err != nil {
		return
	}
	info, err := redis.String(c.Do("INFO", "server"))
	c.Close()
	_, after, ok := strings.Cut(info, "redis_version:")
	if err == nil && ok && strings.Contains(info, "run_id:") { // a proxy has none
		version, _, _ := strings.Cut(after, "\r\n")
		a.introduce(ctx, n, probe.Report{Version: version})
	}
}
