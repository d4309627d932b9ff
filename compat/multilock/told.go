package multilock

import (
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// told is a connection on which everything has been answered already. Through it
// the lock of a single key says what it makes of replies that came for many
// keys in one write, and what it would write itself: sets follow its rules to
// the letter, because they are its rules.
type told []any

func (r told) Do(name string, _ ...any) (any, error) {
	if name == "" { // the end of a pipeline
		return []any(r), nil
	}
	return r[0], nil
}

func (told) Send(string, ...any) error { return nil }
func (told) Flush() error              { return nil }
func (r told) Receive() (any, error)   { return r[0], nil }
func (told) Err() error                { return nil }
func (told) Close() error              { return nil }

// A reader is the part of an Algorithm that reads a key by GET and a TTL.
type reader interface {
	Inspect(c redis.Conn, now time.Time, key string) (compat.State, error)
}

// inspect reads all keys of a set in one round trip, and has one say what each means.
func inspect(c redis.Conn, now time.Time, key, ttl string, one reader) (compat.State, error) {
	st := compat.State{Key: key, Status: compat.StatusFree, TTL: compat.NoTTL}
	keys, err := Split(key)
	if err != nil {
		return st, err
	}
	cmds := gets(keys)
	for _, k := range keys {
		cmds = append(cmds, compat.Cmd{ttl, k})
	}
	replies, err := compat.Pipe(c, cmds...)
	if err != nil {
		return st, err
	}
	states := make([]compat.State, len(keys))
	for i, k := range keys {
		if states[i], err = one.Inspect(told{replies[i], replies[len(keys)+i]}, now, k); err != nil {
			return st, err
		}
	}
	return together(key, states), nil
}
