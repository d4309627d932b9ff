package multilock

import (
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// What sets are read, written and removed by where there is no WATCH: nothing keeps another client
// from coming in between two of these.

// read reads keys in one write.
func read(c *protocol.Conn, keys []string) ([]found, error) {
	replies, err := c.Pipe(gets(keys)...)
	if err != nil {
		return nil, err
	}
	return values(keys, replies)
}

// getset writes value on all keys at once. It returns their old values and the numbers drawn.
func getset(c *protocol.Conn, keys []string, value string, fenced bool) (old []found, drawn []any, err error) {
	var cmds []protocol.Cmd
	for _, k := range keys {
		cmds = append(cmds, protocol.Cmd{"GETSET", k, value})
	}
	if fenced {
		cmds = append(cmds, draw(keys)...)
	}
	replies, err := c.Exec(cmds...)
	if err != nil {
		return nil, nil, err
	}
	old, err = values(keys, replies[:len(keys)])
	return old, replies[len(keys):], err
}

// remove deletes keys and returns how many there were.
func remove(c *protocol.Conn, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	cmd := del(keys)
	return redis.Int(c.Do(cmd[0].(string), cmd[1:]...))
}

// giveUp returns nil if all keys hold value. Otherwise it releases those that do: a set of which a key is lost is lost.
func giveUp(c *protocol.Conn, all []found, value string) error {
	ours := holding(all, value)
	if len(ours) == len(all) {
		return nil
	}
	if _, err := remove(c, ours); err != nil {
		return err
	}
	return protocol.ErrLost
}

// check asks for MSETNX and MULTI.
func (g GetSetClassic) check(c *protocol.Conn, key string) error {
	if _, err := c.Exec(protocol.Cmd{"TTL", first(key)}); err != nil {
		return c.Lacks(err, "it has no MULTI, so several keys can't be taken over at once", "multilock.New over getsetlock.Classic")
	}
	return checkMSETNX(c, first(key))
}
