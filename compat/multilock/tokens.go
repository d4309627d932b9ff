package multilock

import (
	"errors"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/txlock"
)

// refused names the key in the way, and reads its end in the write that ends the WATCH.
func (t Tx) refused(c *protocol.Conn, now time.Time, f found) error {
	replies, err := c.Pipe(protocol.Cmd{"UNWATCH"}, protocol.Cmd{t.ttl(), f.key})
	if f.foreign != nil {
		return f.foreign
	}
	held := &protocol.HeldError{Key: f.key, Value: f.value}
	if err == nil {
		if left, err := protocol.ReadTTL(replies[1], t.unit()); err == nil && left != protocol.NoTTL {
			held.Until = now.Add(left)
		}
	}
	return held
}

// lost releases the rest of a set after a key has expired.
func (t Tx) lost(c *protocol.Conn, l protocol.Lease) error {
	if _, err := c.Run(t.Release(l)); err != nil {
		return err
	}
	return protocol.ErrLost
}

// Repair returns the change for keys of the set that hold s.Value without a TTL: it gives them one.
func (t Tx) Repair(now time.Time, s protocol.State, ttl time.Duration) (protocol.Change, error) {
	keys, err := Split(s.Key)
	if err != nil {
		return protocol.Change{}, err
	}
	var changes []protocol.Change
	for _, k := range keys {
		one := s
		one.Key = k
		ch, err := txlock.Classic{Options: t.Options}.Repair(now, one, ttl)
		if err != nil {
			return protocol.Change{}, err
		}
		changes = append(changes, ch)
	}
	return protocol.Change{Key: s.Key, Value: s.Value, Custom: func(c *protocol.Conn) (replies []any, err error) {
		for _, ch := range changes {
			one, err := c.Run(ch)
			switch {
			case err == nil:
				replies = append(replies, one...)
			case !errors.Is(err, protocol.ErrLost):
				return replies, err
			}
		}
		return replies, nil // none: ErrLost
	}}, nil
}

// value returns a new value, for every key. A Form with the key in it gets the first.
func (t Tx) value(key string, now time.Time) string {
	token := t.Token
	if token == nil {
		token = protocol.NewToken
	}
	if t.Form == nil {
		return token()
	}
	return t.Form(key, now, token())
}

// setex makes all keys with value and a TTL.
func (t Tx) setex(keys []string, value string, ttl time.Duration) ([]protocol.Cmd, error) {
	return each(keys, func(k string) (protocol.Cmd, error) { return protocol.SetEx(t.Millis, k, value, ttl) })
}

// each returns one command for each of keys.
func each(keys []string, command func(key string) (protocol.Cmd, error)) ([]protocol.Cmd, error) {
	cmds := make([]protocol.Cmd, len(keys))
	for i, k := range keys {
		var err error
		if cmds[i], err = command(k); err != nil {
			return nil, err
		}
	}
	return cmds, nil
}

// ttl names the command for a TTL as Options counts it.
func (t Tx) ttl() string {
	if t.Millis {
		return "PTTL"
	}
	return "TTL"
}

func (t Tx) unit() time.Duration {
	if t.Millis {
		return time.Millisecond
	}
	return time.Second
}
