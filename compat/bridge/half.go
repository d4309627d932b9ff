package bridge

import (
	"cmp"
	"fmt"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/getsetlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// A half is one of the names under which TwoNames holds a lock: a token with a
// TTL, a time with a TTL, or an owner and a time on two keys. keys[0] has what
// is compared.
type half struct {
	dialect.Format
	keys   []string
	time   getsetlock.Dialect // of a time
	millis bool
}

func newHalf(f dialect.Format, key string, millis bool) (half, error) {
	h := half{Format: f, keys: []string{f.Key(key)}, millis: millis}
	switch {
	case f.Kind == dialect.TwoKeys:
		owner, deadline := dialect.Pair(key)
		h.keys = []string{owner, deadline}
		h.time = getsetlock.Dialect{Name: f.Name, Unit: time.Second, Whole: true}
	case f.Kind.Timed():
		var err error
		if h.time, err = timeOf(f); err != nil {
			return h, err
		}
	}
	for _, k := range h.keys { // which the Locker knows by another name
		if err := slot.Taken(k); err != nil {
			return h, fmt.Errorf("%w: %w", protocol.ErrInvalid, err)
		}
	}
	return h, nil
}

// ends reports whether the name has a time, by which clients know the end of a lease.
func (h half) ends() bool { return h.Kind.Timed() || h.Kind == dialect.TwoKeys }

// own reports whether our values are ours alone.
func (h half) own() bool { return !h.Kind.Timed() || h.time.Nonce }

// value returns the value of keys[0] for an acquisition.
func (h half) value(key string, now time.Time, ttl time.Duration, token string) string {
	switch {
	case h.Kind == dialect.TwoKeys:
		return dialect.TokenHostPID.Write(key, now, token)
	case h.Kind.Timed():
		return h.time.Format(now.Add(ttl), digits(token))
	}
	return h.Token.Write(key, now, token)
}

// digits makes the twelve digits of a time's nonce of a token, or of none: the engine asks what ttl a lease may have, too.
func digits(token string) func() string {
	token = cmp.Or(token, "0")
	return func() string {
		const digits = 12
		b := make([]byte, digits)
		for i := range b {
			b[i] = '0' + token[i%len(token)]%10
		}
		return string(b)
	}
}

// write takes the name with value.
func (h half) write(now time.Time, ttl time.Duration, value string) protocol.Cmd {
	switch {
	case h.Kind == dialect.TwoKeys:
		return protocol.Cmd{"MSET", h.keys[0], value, h.keys[1], h.time.Format(now.Add(ttl), nil)}
	case h.Kind.Timed():
		until, _ := h.time.Parse(value)
		return setex(h.millis, h.keys[0], value, until.Sub(now)) // as OneKey's
	}
	return setex(h.millis, h.keys[0], value, ttl)
}

// extend returns the commands to move the end to now+ttl, and the value they write. What makes a time new is made of
// the old one's last digits: its nonce.
func (h half) extend(now time.Time, ttl time.Duration, value string) (string, protocol.Cmd) {
	switch {
	case h.Kind == dialect.TwoKeys:
		return value, protocol.Cmd{"SET", h.keys[1], h.time.Format(now.Add(ttl), nil)}
	case h.Kind.Timed():
		value = h.value("", now, ttl, value[max(0, len(value)-12):])
		return value, h.write(now, ttl, value)
	}
	expire, _ := protocol.Expire(h.millis, h.keys[0], ttl) // TwoNames takes no ttl that is too short
	return value, expire
}

// frees returns the commands to remove the name and to wake one waiter, as the fleet's own release does.
func (h half) frees() []protocol.Cmd {
	del := protocol.Cmd{"DEL"}
	for _, k := range h.keys {
		del = append(del, k)
	}
	if h.Signal == "" {
		return []protocol.Cmd{del}
	}
	fleet := txlock.Fleet{Wake: h.Beside}
	return append([]protocol.Cmd{del}, fleet.Release(protocol.Lease{Key: h.keys[0]}).Do[1:]...)
}

func (h half) gets() []protocol.Cmd {
	var cmds []protocol.Cmd
	for _, k := range h.keys {
		cmds = append(cmds, protocol.Cmd{"GET", k})
	}
	return cmds
}

// judge reports whether the name can be taken: nothing is there, or an expired time (dead), with its owner if there is
// one.
func (h half) judge(found []any, now time.Time) (free, dead bool) {
	there := 0
	for _, v := range found {
		if v != nil {
			there++
		}
	}
	if there == 0 {
		return true, false
	}
	return false, h.ends() && there == len(found) && h.time.Dead(text(found[len(found)-1]), now)
}

// until returns the time found on the name; zero if there is none.
func (h half) until(found []any) time.Time {
	if !h.ends() {
		return time.Time{}
	}
	until, _ := h.time.Parse(text(found[len(found)-1]))
	return until
}

func (h half) ttlCommand() string {
	if h.millis {
		return "PTTL"
	}
	return "TTL"
}

// state returns the state of this name alone.
func (h half) state(c *protocol.Conn, found []any, ttl any, now time.Time) (protocol.State, error) {
	s := protocol.State{Key: h.keys[0], Value: text(found[0]), Status: protocol.StatusFree, TTL: protocol.NoTTL}
	free, dead := h.judge(found, now)
	if free || protocol.Expired(ttl) {
		s.Value = ""
		return s, nil
	}
	var err error
	s.TTL, err = protocol.ReadTTL(ttl, unit(h.millis))
	s.Status, s.Format, s.Until = protocol.StatusHeld, h.Name, h.until(found)
	switch {
	case dead:
		s.Status, s.Clock = protocol.StatusDead, "clients"
	case !s.Until.IsZero():
		s.Clock = "clients"
	case s.TTL != protocol.NoTTL:
		s.Until, s.Clock = now.Add(s.TTL), "server"
	case h.ends():
		s.Status = protocol.StatusForeign
	default:
		s.Status = protocol.StatusPersistent
	}
	return s, err
}
