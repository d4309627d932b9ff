package racetest_test

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/racetest"
	"github.com/setnxlock/setnxlock/internal/must"
)

type Hash struct{ Token func() string }

const extend, free = `return redis.call("HEXISTS",KEYS[1],ARGV[1])==1 and redis.call("PEXPIRE",KEYS[1],ARGV[2])`, `return redis.call("HEXISTS",KEYS[1],ARGV[1])==1 and redis.call("DEL",KEYS[1])`

func (h Hash) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (protocol.Lease, error) {
	l := protocol.Lease{Key: key, Value: h.Token(), Until: protocol.Until(now, ttl)}
	_, err := script(l, ttl, &protocol.HeldError{Key: key}, `return redis.call("EXISTS",KEYS[1])==0 and redis.call("HSET",KEYS[1],ARGV[1],1) and redis.call("PEXPIRE",KEYS[1],ARGV[2])`).Custom(c)
	return l, err
}

func (Hash) Extend(now time.Time, l protocol.Lease, ttl time.Duration, _ bool) (protocol.Lease, protocol.Change, error) {
	l.Until = protocol.Until(now, ttl)
	return l, script(l, ttl, protocol.ErrLost, extend), nil
}

func (Hash) Release(l protocol.Lease) protocol.Change { return script(l, 0, protocol.ErrLost, free) }

func script(l protocol.Lease, ttl time.Duration, no error, lua string) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: func(c *protocol.Conn) ([]any, error) {
		reply, err := c.Do("EVAL", lua, 1, l.Key, l.Value, ttl.Milliseconds())
		if err == nil && reply == nil {
			err = no
		}
		return []any{reply}, err
	}}
}

func (Hash) Inspect(c *protocol.Conn, now time.Time, key string) (protocol.State, error) {
	s := protocol.State{Key: key, Status: protocol.StatusFree, TTL: protocol.NoTTL}
	holders, err := redis.Strings(c.Do("HKEYS", key))
	ms, bad := redis.Int64(c.Do("PTTL", key))
	if err == nil && len(holders) > 0 {
		s.Value, s.Status, s.TTL, s.Until = holders[0], protocol.StatusHeld, time.Duration(ms)*time.Millisecond, now.Add(time.Duration(ms)*time.Millisecond)
	}
	return s, cmp.Or(err, bad)
}

func (Hash) Traits() protocol.Traits { return protocol.Traits{} }

func newHash(token func() string) protocol.Algorithm { return Hash{Token: token} }

// A lock in a hash holds. docs/explorer.md shows it, to the letter.
func TestHash(t *testing.T) {
	racetest.Check(t, race.Config{
		New: newHash, Server: "7.0", Ticks: 3, Faults: race.Faults{LostReplies: 1, Crash: true}, Extend: true,
	})
	_, source, _ := strings.Cut(string(must.Get(os.ReadFile("hash_test.go"))(t)), "\n\ntype Hash")
	source, _, _ = strings.Cut(source, "\n\nfunc newHash")
	source = "type Hash" + source
	lines := 0
	for line := range strings.Lines(source) {
		if strings.TrimSpace(line) != "" {
			lines++
		}
	}
	page := string(must.Get(os.ReadFile("../../../docs/explorer.md"))(t))
	if !strings.Contains(page, "```go\n"+source+"\n```") || !strings.Contains(page, fmt.Sprintf("%d lines", lines)) {
		t.Errorf("docs/explorer.md does not show it, of %d lines:\n%s", lines, source)
	}
}
