package multilock

import (
	"errors"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// ifAllHold runs cmds in one EXEC, if every key holds value then. If some do not, it deletes those that do, and returns
// ErrLost: a set of which a part is lost is given up. Two round trips:
//
//	WATCH a b; GET a; GET b    all ours?
//	MULTI; cmds…; EXEC         nil: somebody touched a key in between: again
func ifAllHold(c *protocol.Conn, keys []string, value string, cmds ...protocol.Cmd) ([]any, error) {
	lost := false
	replies, err := c.CompareAndSet(keys, nil, func(replies []any) ([]protocol.Cmd, error) {
		all, err := values(keys, replies)
		if err != nil {
			return nil, err
		}
		rest := holding(all, value)
		switch lost = len(rest) < len(keys); {
		case len(rest) == 0:
			return nil, protocol.ErrLost
		case lost:
			return []protocol.Cmd{del(rest)}, nil
		}
		return cmds, nil
	})
	if err == nil && lost {
		return nil, protocol.ErrLost
	}
	return replies, crossSlot(c, err)
}

// release returns the change that deletes all keys of l if they hold its value. If only some do, it deletes these.
func release(l protocol.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) {
		keys, err := Split(l.Key)
		if err != nil {
			return nil, err
		}
		replies, err := ifAllHold(c, keys, l.Value, del(keys))
		if err == nil && replies[0] != int64(len(keys)) {
			err = protocol.ErrLost // one had expired
		}
		return replies, err
	}}
}

// A found is what a read found on a key.
type found struct {
	key, value string
	exists     bool
	foreign    error // it is not a string
}

// holding returns the keys with this value.
func holding(all []found, value string) []string {
	var keys []string
	for _, f := range all {
		if f.exists && f.value == value {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// gets reads each of keys. MGET would not do: it answers nil for a list, as for a key that is
// not there, and what is then written would be written over the list.
func gets(keys []string) []protocol.Cmd {
	cmds := make([]protocol.Cmd, len(keys))
	for i, k := range keys {
		cmds[i] = protocol.Cmd{"GET", k}
	}
	return cmds
}

// values reads the replies to gets.
func values(keys []string, replies []any) ([]found, error) {
	all := make([]found, len(keys))
	for i, k := range keys {
		value, err := redis.String(replies[i], nil)
		all[i] = found{key: k, value: value, exists: err == nil}
		if err == nil || errors.Is(err, redis.ErrNil) {
			continue
		}
		if err = protocol.Foreign(k, err); !errors.Is(err, protocol.ErrForeign) {
			return nil, err
		}
		all[i].exists, all[i].foreign = true, err
	}
	return all, nil
}

// taken returns the error of an attempt on a set. An EXEC that was aborted at every try came second.
func taken(c *protocol.Conn, key string, err error) error {
	if err == protocol.ErrAborted {
		return &protocol.HeldError{Key: key}
	}
	return crossSlot(c, err)
}

// crossSlot turns a cluster's refusal of one command for keys of several slots into ErrUnsafeServer. It returns any
// other error as it is.
func crossSlot(c *protocol.Conn, err error) error {
	if answer.Crosses(err) {
		return c.Unsafe("it is a cluster, and the keys are in different slots", "multilock.New, or keys with one {hash tag}")
	}
	return err
}

// first returns the key of a set to check the server by. A key that is not a set is Acquire's to refuse, not the
// server's fault.
func first(key string) string {
	if keys, err := Split(key); err == nil {
		return keys[0]
	}
	return key
}

// del returns one DEL of keys.
func del(keys []string) protocol.Cmd {
	cmd := protocol.Cmd{"DEL"}
	for _, k := range keys {
		cmd = append(cmd, k)
	}
	return cmd
}
