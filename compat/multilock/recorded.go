package multilock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// recorded is a connection on which everything has been answered already. Through it the lock
// of a single key says what it makes of replies that came for many keys in one write: sets
// follow its rules to the letter, because they are its rules.
type recorded []any

func (r recorded) Do(name string, _ ...any) (any, error) {
	if name == "" { // the end of a pipeline
		return []any(r), nil
	}
	return r[0], nil
}

func (recorded) Send(string, ...any) error { return nil }
func (recorded) Flush() error              { return nil }
func (r recorded) Receive() (any, error)   { return r[0], nil }
func (recorded) Err() error                { return nil }
func (recorded) Close() error              { return nil }

// An inspector is the part of an Algorithm that reads a key by GET and a TTL.
type inspector interface {
	Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error)
}

// inspectOne has one read a key's value and TTL from these replies.
func inspectOne(one inspector, now time.Time, key string, value, ttl any) (protocol.State, error) {
	return one.Inspect(protocol.NewConn(recorded{value, ttl}), now, key)
}

// inspect reads all keys of a set in one round trip, and has one read each.
func inspect(c *protocol.Conn, now time.Time, key, ttl string, one inspector) (protocol.State, error) {
	st := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL}
	keys, err := Split(key)
	if err != nil {
		return st, err
	}
	cmds := gets(keys)
	for _, k := range keys {
		cmds = append(cmds, protocol.Cmd{ttl, k})
	}
	replies, err := c.Pipe(cmds...)
	if err != nil {
		return st, err
	}
	states := make([]protocol.State, len(keys))
	for i, k := range keys {
		if states[i], err = inspectOne(one, now, k, replies[i], replies[len(keys)+i]); err != nil {
			return st, err
		}
	}
	return stateOfSet(key, states), nil
}
