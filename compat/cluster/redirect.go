package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/wire"
)

// redirections is how often one command is followed. Two servers that each
// believe that the other has a slot send one to and fro until they agree.
const redirections = 8

const unsupported = "redis: connection does not support ConnWith"

var (
	errUnsupported = errors.New(unsupported)
	errReturned    = errors.New("setnxlock: the connection was returned")
	errNothingSent = errors.New("setnxlock: Receive, but nothing was sent")
)

// refuses reports whether a reply denies that its server is the master: a unit with such a reply grants nothing.
func refuses(reply any) bool {
	e, _ := reply.(redis.Error)
	word, _, _ := strings.Cut(string(e), " ")
	return slices.Contains([]string{"MOVED", "ASK", "EXECABORT", "CLUSTERDOWN"}, word)
}

// A redirection says that another server is to be asked.
type redirection struct {
	ask  bool
	slot int
	addr string
}

// read reads "MOVED 3999 127.0.0.1:6381" and "ASK …", as the server at from says it.
func read(reply any, from string) (redirection, bool) {
	e, _ := reply.(redis.Error)
	fields := strings.Fields(string(e))
	if len(fields) != 3 || fields[0] != "MOVED" && fields[0] != "ASK" {
		return redirection{}, false
	}
	slot, err := strconv.Atoi(fields[1])
	addr, ok := splitAddr(fields[2], from)
	if err != nil || slot < 0 || slot >= slotCount || !ok || addr == "" {
		return redirection{}, false
	}
	return redirection{fields[0] == "ASK", slot, addr}, true
}

// redirected returns the redirection of a unit by its replies. A transaction's
// replaces the reply of a command that was not queued, or of EXEC; in both cases
// none of its commands ran.
func redirected(replies []any, from string) (redirection, bool) {
	if len(replies) > 1 {
		if _, refused := replies[len(replies)-1].(redis.Error); !refused {
			return redirection{}, false // it ran: what stands inside is the commands' own
		}
	}
	for _, r := range replies {
		if to, ok := read(r, from); ok {
			return to, true
		}
	}
	return redirection{}, false
}

// write writes units to one server and follows the redirected ones. If one was redirected but another behind it ran,
// following it would turn their order around: its answer stands.
func (c *conn) write(v via, units []unit) ([][]any, error) {
	l := c.to(units[0])
	if refusal := c.refusal(v, l, units[0]); refusal != nil {
		return [][]any{refusal}, nil
	}
	asked := time.Now()
	replies, err := c.exchange(v, l, units)
	if err != nil {
		return nil, err
	}
	last := -1 // the last that was not redirected
	for i := range units {
		if _, ok := redirected(replies[i], l.addr); !ok {
			last = i
		}
	}
	for i, u := range units {
		if replies[i], err = c.follow(v, l, asked, u, replies[i], i > last); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// follow goes where the answers of the server at l lead, asked at the given moment, and returns the final ones.
func (c *conn) follow(v via, l *leg, asked time.Time, u unit, replies []any, inOrder bool) ([]any, error) {
	for range redirections {
		to, ok := redirected(replies, l.addr)
		watching, keys := c.watching(), c.watched()
		c.note(v, l, u, replies)
		if !ok {
			return replies, nil
		}
		ctx, done := v.context()
		if to.ask {
			c.s.ask(to.slot)
		} else {
			c.s.moved(ctx, c, to.slot, l.addr, to.addr)
		}
		c.s.names(l.addr, asked, to.addr)
		if c.open != nil || is(u.cmds[len(u.cmds)-1], "EXEC") && !u.multi || !inOrder {
			done()
			return replies, nil
		}
		next, err := c.leg(ctx, to.addr)
		done()
		if err != nil {
			return replies, nil // it did not run, and the one that it is sent to can't be reached: as during an election
		}
		if c.slot == noSlot {
			c.slot = to.slot
		}
		if !to.ask && to.slot == c.slot {
			c.home = next
		}
		if u.multi && to.ask && !ofOneKey(u, keys) {
			return tryAgain(u), nil
		}
		if u.multi && slices.ContainsFunc(watching, func(w *leg) bool { return w != next }) {
			return c.aborted(v, u), nil
		}
		next.asking = to.ask
		l, asked = next, time.Now()
		all, err := c.exchange(v, l, []unit{u})
		if err != nil {
			return nil, err
		}
		replies = all[0]
	}
	return replies, nil
}

// refusal returns the answer to a transaction that can't run where its WATCH stands, and so nowhere. It returns nil if
// it can.
func (c *conn) refusal(v via, l *leg, u unit) []any {
	severalKeys := len(c.watching()) > 1
	switch {
	case u.multi && severalKeys:
		return c.aborted(v, u)
	case u.multi && l.asking && !ofOneKey(u, c.watched()),
		!u.multi && is(u.cmds[0], "MULTI") && (severalKeys || l.asking): // its keys are not known yet
		return tryAgain(u)
	}
	return nil
}

// exchange writes units to l and returns the replies to each.
func (c *conn) exchange(v via, l *leg, units []unit) ([][]any, error) {
	asked := time.Now()
	asking := l.asking && c.open == nil // once said before MULTI, it is good for all up to EXEC
	for _, u := range units {
		if asking {
			if err := l.Send("ASKING"); err != nil {
				return nil, err
			}
		}
		for _, m := range u.cmds {
			if err := l.Send(m[0].(string), m[1:]...); err != nil {
				return nil, err
			}
		}
	}
	all, err := redis.Values(v.do(l.Conn, ""))
	if err != nil {
		return nil, err
	}
	replies, grants := make([][]any, len(units)), false
	for i, u := range units {
		if asking {
			all = all[min(1, len(all)):]
		}
		if len(all) < len(u.cmds) {
			return nil, fmt.Errorf("setnxlock: %s gave %d replies too few", l.addr, len(u.cmds)-len(all))
		}
		replies[i], all = all[:len(u.cmds)], all[len(u.cmds):]
		grants = grants || !slices.ContainsFunc(replies[i], refuses)
		for _, r := range replies[i] {
			if e, _ := r.(redis.Error); strings.HasPrefix(string(e), "CLUSTERDOWN") {
				c.s.suspect(l.addr, c.number)
			}
		}
	}
	if grants { // if only one of them does: a master that was replaced may hear of it in between
		ctx, done := v.context()
		defer done()
		if err := c.s.believe(ctx, l.addr, asked); err != nil {
			wire.Drop(l.Conn)
			return nil, err
		}
	}
	return replies, nil
}

// note records the state of l after u: a WATCH, an open MULTI.
func (c *conn) note(v via, l *leg, u unit, replies []any) {
	e, refused := replies[len(replies)-1].(redis.Error)
	switch first := u.cmds[0]; {
	case u.multi, is(first, "EXEC"), is(first, "DISCARD"):
		l.watched, c.open = nil, nil
		if refused && !is(first, "DISCARD") && !strings.HasPrefix(string(e), "EXECABORT") {
			v.do(l.Conn, "DISCARD") //nolint:errcheck // a server that refused EXEC may be in MULTI still; the caller's DISCARD may go elsewhere
		}
	case is(first, "MULTI") && !refused:
		c.open = l
	case is(first, "WATCH") && !refused:
		l.watched = append(l.watched, first[1:]...)
	case is(first, "UNWATCH"):
		l.watched = nil
		c.unwatch(v)
	}
}

func (c *conn) unwatch(v via) {
	for _, l := range c.watching() {
		v.do(l.Conn, "UNWATCH") //nolint:errcheck // a dead connection watches nothing
		l.watched = nil
	}
}

// aborted returns EXEC's answer to a touched key: nil. The WATCH stands on another server than the one that u would
// have to run on now: its keys have moved away from under it, and nobody guards them where they are.
func (c *conn) aborted(v via, u unit) []any {
	c.unwatch(v)
	replies := make([]any, len(u.cmds))
	for i := range replies {
		replies[i] = "QUEUED"
	}
	replies[0], replies[len(replies)-1] = "OK", nil
	return replies
}

// tryAgain returns the answer to a transaction whose keys may be on two servers.
func tryAgain(u unit) []any {
	replies := make([]any, len(u.cmds))
	for i := range replies {
		replies[i] = redis.Error("TRYAGAIN the transaction has several keys, and their slot is being moved")
	}
	return replies
}

// ofOneKey reports whether a transaction can have one key only, the ones under WATCH included. Each of its commands by
// itself is checked by the server, so it is enough to compare the first arguments: all commands of a lock but EVAL and
// its like have their key there.
func ofOneKey(u unit, watched []any) bool {
	keys := slices.Clone(watched)
	cmds := u.cmds[1 : len(u.cmds)-1]
	for _, m := range cmds {
		name := strings.ToUpper(m[0].(string))
		script := strings.HasPrefix(name, "EVAL") || strings.HasPrefix(name, "FCALL")
		if script && len(cmds)+len(watched) > 1 {
			return false
		}
		if len(m) > 1 {
			keys = append(keys, m[1])
		}
	}
	for _, k := range keys {
		if text(k) != text(keys[0]) {
			return false
		}
	}
	return true
}

func text(arg any) string {
	if b, ok := arg.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(arg)
}
