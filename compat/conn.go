package compat

import (
	"context"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A guard is a borrowed connection for the length of one step. It brings the
// step's context and time limit to an algorithm that knows of neither, and it
// keeps a connection that was left in MULTI or under WATCH away from the pool's
// next user: redigo's own pool only remembers what was sent, not what the
// server made of it.
type guard struct {
	redis.Conn
	ctx   context.Context // nil: the step can't be cancelled
	limit time.Duration   // for each command, when ctx is nil; 0: the connection's own

	within  time.Duration // how long the step may take, by whichever; 0: not known
	kept    bool          // a lease keeps the connection when the step has ended
	refused bool          // nobody waits for it to be given back
	asked   bool          // something was sent in this step
	clean   bool          // its connection was given back alive

	rider *rider // goes with the release

	sent     []string // commands whose replies are still to come, for Receive and Do("")
	room     [8]string
	args     [16]any // room for the arguments of one write
	multi    bool    // the server may be in MULTI
	watching bool    // the server may hold a WATCH

	notNow redis.Error // a cluster's refusal to run one of the commands
	ran    bool        // one that can change something ran, or may have
}

// begin begins a step.
func (g *guard) begin(ctx context.Context) {
	g.ctx, g.limit, g.within = nil, 0, 0
	if l, ok := ctx.Value(ofLimited{}).(*limited); ok {
		g.within = l.limit
	}
	if ctx.Done() != nil {
		g.ctx = ctx
	} else {
		g.limit = g.within
	}
	g.kept, g.refused, g.asked, g.ran, g.notNow, g.rider = false, false, false, false, "", nil
}

func (g *guard) Send(name string, args ...any) error {
	g.asked = true
	if g.sent == nil {
		g.sent = g.room[:0]
	}
	g.sent = append(g.sent, name)
	return g.Conn.Send(name, args...)
}

func (g *guard) Do(name string, args ...any) (any, error) {
	g.asked = true
	if g.rider != nil {
		if at := carries(g.sent, name); at >= 0 {
			return g.ride(at, name, args)
		}
	}
	reply, err := g.exchange(name, args...)
	g.note(name, reply, err)
	return reply, err
}

// exchange sends one command, and what was sent before, within the step's limits.
func (g *guard) exchange(name string, args ...any) (reply any, err error) {
	switch {
	case g.ctx != nil:
		reply, err = redis.DoContext(g.Conn, g.ctx, name, args...)
		if unsupported(err) {
			reply, err = g.Conn.Do(name, args...)
		} else if err != nil && g.ctx.Err() != nil {
			err = context.Cause(g.ctx)
		}
	case g.limit > 0:
		reply, err = redis.DoWithTimeout(g.Conn, g.limit, name, args...)
		if unsupported(err) {
			reply, err = g.Conn.Do(name, args...)
		}
	default:
		reply, err = g.Conn.Do(name, args...)
	}
	return reply, err
}

func (g *guard) Receive() (any, error) {
	var reply any
	var err error
	if g.ctx != nil {
		reply, err = redis.ReceiveContext(g.Conn, g.ctx)
	}
	if g.ctx == nil || unsupported(err) {
		reply, err = g.Conn.Receive()
	}
	if len(g.sent) > 0 {
		g.track(g.sent[0], reply, err)
		g.sent = g.sent[1:]
	}
	return reply, err
}

// note follows the replies that one Do brought in: its own, and before it
// those of the commands that were sent.
func (g *guard) note(name string, reply any, err error) {
	sent := g.sent
	g.sent = g.sent[:0]
	if name == "" {
		replies, _ := reply.([]any)
		for i, s := range sent {
			var r any = err
			if i < len(replies) {
				r = replies[i]
			}
			g.track(s, r, err)
		}
		return
	}
	for _, s := range sent {
		g.track(s, nil, redis.Error("not seen")) // Do returns the last reply only
	}
	g.track(name, reply, err)
}

func (g *guard) track(name string, reply any, err error) {
	e, refused := reply.(redis.Error)
	ok := err == nil && !refused
	if err == nil && refused {
		err = e
	}
	g.judge(name, reply, err)
	switch strings.ToUpper(name) {
	case "WATCH":
		g.watching = true
	case "UNWATCH":
		g.watching = g.watching && !ok
	case "MULTI":
		g.multi = true
	case "EXEC":
		// Refused, it may have left the server in MULTI (2.0–2.4 over maxmemory).
		g.multi = g.multi && !ok
		g.watching = g.watching && !ok
	case "DISCARD":
		// "DISCARD without MULTI" is as good an answer as OK.
		if ok || strings.Contains(err.Error(), "without MULTI") {
			g.multi = false
			g.watching = g.watching && !ok
		}
	}
}

// judge notes whether the command can have changed anything: a step of which
// a cluster refused every command that writes did not run.
func (g *guard) judge(name string, reply any, err error) {
	if e, refused := notNow(err); refused {
		g.notNow = e
		return
	}
	switch strings.ToUpper(name) {
	case "WATCH", "UNWATCH", "MULTI", "DISCARD", "GET", "TTL", "PTTL", "EXISTS":
		return
	case "EXEC":
		e, _ := err.(redis.Error)
		if err == nil && reply == nil || strings.HasPrefix(string(e), "EXECABORT") {
			return
		}
	}
	if !g.multi || reply != "QUEUED" {
		g.ran = true
	}
}

// giveBack returns the connection to where it was borrowed, clean or dead.
func (g *guard) giveBack() {
	if g.Err() == nil && g.multi {
		g.Do("DISCARD") //nolint:errcheck // looked at below, through track
	}
	if g.Err() == nil && g.watching {
		g.Do("UNWATCH") //nolint:errcheck
	}
	if g.Err() == nil && (g.multi || g.watching) {
		kill(g.Conn)
	}
	g.clean = g.Err() == nil
	g.Close()
}

// kill makes a connection unusable, so that a pool drops it. A context that is
// done before the call does that to a healthy redigo connection, which is the
// reason why do asks the context before it borrows one.
func kill(c redis.Conn) {
	done, cancel := context.WithCancel(context.Background())
	cancel()
	redis.DoContext(c, done, "PING") //nolint:errcheck
}

// unsupported reports that a connection has no way to do what was asked: it is
// not redigo's own. Nothing was sent then.
func unsupported(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "redis: connection does not support ConnWith")
}
