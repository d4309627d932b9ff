package promises_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"github.com/setnxlock/setnxlock/compat/setlock"
	"github.com/setnxlock/setnxlock/txlock"
)

// homemade is a user's own lock, which says its commands in its own letters, and asks by behind whether its writes
// have arrived: in Acquire, and after each extension.
type homemade struct {
	setlock.Lua
	letters func(string) string
	behind  string
}

func (h homemade) do(c *protocol.Conn, name string, args ...any) (any, error) {
	return c.Do(h.letters(name), args...)
}

func (h homemade) arrived(c *protocol.Conn) error {
	if h.behind == "" {
		return nil
	}
	_, err := h.do(c, h.behind, 1, 100)
	return err
}

func (h homemade) Acquire(c *protocol.Conn, now time.Time, key string, ttl time.Duration) (compat.Lease, error) {
	l := compat.Lease{Key: key, Value: protocol.NewToken(), Until: protocol.Until(now, ttl), How: protocol.Free}
	reply, err := h.do(c, "SET", key, l.Value, "NX", "PX", ttl.Milliseconds())
	if err == nil && reply == nil {
		return l, &compat.HeldError{Key: key}
	}
	if err == nil {
		err = h.arrived(c)
	}
	return l, err
}

func (h homemade) guarded(key, value, name string, args ...any) func(c *protocol.Conn) ([]any, error) {
	return func(c *protocol.Conn) ([]any, error) {
		if _, err := h.do(c, "WATCH", key); err != nil {
			return nil, err
		}
		if got, err := redis.String(h.do(c, "GET", key)); err != nil && !errors.Is(err, redis.ErrNil) {
			return nil, err
		} else if got != value {
			h.do(c, "UNWATCH") //nolint:errcheck
			return nil, compat.ErrLost
		}
		c.Send(h.letters("MULTI"))                              //nolint:errcheck // EXEC's tells
		c.Send(h.letters(name), append([]any{key}, args...)...) //nolint:errcheck
		replies, err := redis.Values(h.do(c, "EXEC"))
		if errors.Is(err, redis.ErrNil) {
			err = compat.ErrAborted
		}
		return replies, err
	}
}

func (h homemade) Extend(now time.Time, l compat.Lease, ttl time.Duration, rotate bool) (compat.Lease, protocol.Change, error) {
	ch := protocol.Change{Key: l.Key, Value: l.Value, Custom: h.guarded(l.Key, l.Value, "PEXPIRE", ttl.Milliseconds()), After: h.arrived}
	l.Until = protocol.Until(now, ttl)
	return l, ch, nil
}

func (h homemade) Release(l compat.Lease) protocol.Change {
	return protocol.Change{Key: l.Key, Value: l.Value, Custom: h.guarded(l.Key, l.Value, "DEL")}
}

func (homemade) Traits() protocol.Traits {
	return protocol.Traits{Check: func(c *protocol.Conn, key string) error {
		_, err := c.Exec(protocol.Cmd{"GET", key})
		return err
	}}
}

// A tapped connection notes what is wrong with what goes over it.
type tapped struct {
	watches []string // the keys that it watches
	writes  int      // that no question has been about
	wrong   *[]string
}

func (c *tapped) see(m faulty.Message) faulty.Fate {
	name := strings.ToUpper(m.Name)
	var keys []string
	for _, a := range m.Args {
		if s := fmt.Sprint(a); strings.HasPrefix(s, "key") {
			keys = append(keys, s[:len("key0")])
		}
	}
	if len(c.watches) > 0 && len(keys) > 0 && !slices.Contains(c.watches, keys[0]) {
		*c.wrong = append(*c.wrong, sprint("%v while another step watches %s", m, c.watches))
	}
	switch name {
	case "WATCH":
		c.watches = append(c.watches, keys...)
	case "EXEC", "UNWATCH", "DISCARD":
		c.watches = nil
	case "SET", "SETEX", "RENAMENX", "PEXPIRE", "EXPIRE", "DEL", "EVAL", "EVALSHA", "PSETEX":
		c.writes++
	case "WAIT", "WAITAOF", "MODULE.WAIT":
		if len(m.Args) > 1 && fmt.Sprint(m.Args[0]) == "0" {
			return faulty.Answer(int64(0)) // the check asks whether there is such a command
		}
		if c.writes--; c.writes < 0 {
			*c.wrong = append(*c.wrong, sprint("%v over a connection that has written nothing", m))
		}
		return faulty.Fate{Before: time.Millisecond, Serve: func(func(...any) any) any { return int64(1) }}
	}
	return faulty.Fate{Before: time.Millisecond}
}

// What may be shared goes over a shared connection; all else over one that the step has for itself, in whatever letters
// it is said; and what asks about the writes before it over the one that they went over.
func TestAStepHasTheConnectionThatItNeeds(t *testing.T) {
	kinds := []kind{
		one("sentinel.Replicated(set:lua)", "7.0", sentinel.Replicated{Algorithm: setlock.Lua{}}),
		one("sentinel.Replicated(tx:renamed)", "7.0", sentinel.Replicated{Algorithm: txlock.Renamed{}}),
	}
	for _, behind := range []string{"", "WAIT", "WAITAOF", "MODULE.WAIT"} {
		for name, letters := range map[string]func(string) string{"upper": strings.ToUpper, "lower": strings.ToLower,
			"title": func(s string) string { return s[:1] + strings.ToLower(s[1:]) }} {
			kinds = append(kinds, one("homemade/"+behind+"/"+name, "7.0", homemade{letters: letters, behind: behind}))
		}
	}
	eachKind(t, kinds, func(t *testing.T, k kind) {
		for _, shared := range []int{1, 3} {
			inWorld(t, k, func(w *world) {
				var wrong []string
				var mu sync.Mutex
				pool := &redis.Pool{MaxIdle: 9, Dial: func() (redis.Conn, error) {
					c := &tapped{wrong: &wrong}
					return faulty.Over(w.servers[0].Dial(), func(m faulty.Message) faulty.Fate {
						mu.Lock()
						defer mu.Unlock()
						return c.see(m)
					}), nil
				}}
				locker := k.make(kept(2*shared, []compat.Source{compat.Pooled(pool)}), compat.Options{NoRenew: true})
				var all sync.WaitGroup
				for n := range 6 {
					all.Go(func() {
						for range 3 {
							l, err := locker.TryLock(background, fmt.Sprint("key", n), long)
							if err == nil {
								err = errors.Join(l.Extend(background, long), l.Release(background))
							}
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				all.Wait()
				locker.Close(background) //nolint:errcheck
				pool.Close()
				for i, what := range wrong {
					if i < 3 {
						t.Error(what)
					}
				}
			})
		}
	})
}
