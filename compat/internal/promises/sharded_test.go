package promises_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/internal/slot"
)

// sharded is one address of several shards, as Redis Enterprise has it: what names keys of different slots at once, or
// in one transaction, is refused.
func sharded(s compat.Pool) compat.Pool {
	return &redis.Pool{MaxIdle: 16, DialContext: func(ctx context.Context) (redis.Conn, error) {
		to, err := s.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		var multi, dirty bool
		var slots []int // of the transaction
		return faulty.Carried(func(_ context.Context, write [][]any) (replies []any, err error) {
			for _, cmd := range write {
				name := cmd[0].(string)
				if name == "EXEC" && dirty {
					to.Do("DISCARD") //nolint:errcheck // the answer is the client's
					multi, dirty = false, false
					replies = append(replies, redis.Error("EXECABORT Transaction discarded because of previous errors."))
					continue
				}
				if !multi {
					slots = nil
				}
				slots = slices.Compact(slices.Sorted(slices.Values(append(slots, slotsOf(cmd)...))))
				if len(slots) > 1 {
					dirty, slots = multi, slots[:1]
					replies = append(replies, redis.Error("CROSSSLOT Keys in request don't hash to the same slot"))
					continue
				}
				reply, err := to.Do(name, cmd[1:]...)
				var refused redis.Error
				if errors.As(err, &refused) {
					reply = refused
				} else if err != nil {
					return nil, err
				}
				multi = name == "MULTI" || multi && name != "EXEC" && name != "DISCARD"
				replies = append(replies, reply)
			}
			return replies, nil
		}, func(bool) { to.Close() }), nil
	}}
}

func slotsOf(cmd []any) (slots []int) {
	keys := cmd[1:min(len(cmd), 2)]
	switch cmd[0] {
	case "WATCH", "MGET", "DEL", "RENAMENX":
		keys = cmd[1:]
	case "EVAL", "EVALSHA":
		n, _ := strconv.Atoi(fmt.Sprint(cmd[2]))
		keys = cmd[3 : 3+n]
	case "MSETNX":
		keys = nil
		for i := 1; i < len(cmd); i += 2 {
			keys = append(keys, cmd[i])
		}
	case "SCRIPT", "INFO", "PING", "CONFIG":
		keys = nil
	}
	for _, k := range keys {
		slots = append(slots, slot.Of(fmt.Sprint(k)))
	}
	return slots
}

// Behind one address of several shards many locks of a process live as long as one does.
func TestManyLocksBehindOneAddress(t *testing.T) {
	const ttl = 9 * time.Second
	eachKind(t, withShared(append(all(false), keepers()...)), func(t *testing.T, k kind) {
		renewed := func(size int) (lost []string) {
			inWorld(t, k, func(w *world) {
				var sources []compat.Source
				for _, s := range w.servers {
					sources = append(sources, through(new(faulty.Network), sharded(s)))
				}
				o := compat.Options{Clock: clock.New(), Rand: func() float64 { return 0 }}
				locker := k.make(sources, o)
				defer locker.Close(background) //nolint:errcheck
				var locks []*compat.Lock
				for i := range size {
					l, err := locker.TryLock(background, k.another(i), ttl)
					if err != nil {
						lost = append(lost, err.Error())
						return
					}
					locks = append(locks, l)
				}
				pass(5 * ttl)
				for _, l := range locks {
					if !believes(l) {
						lost = append(lost, l.Key())
					}
				}
			})
			return lost
		}
		if one := renewed(1); one != nil {
			if !strings.Contains(one[0], "slot") && !strings.Contains(one[0], "SLOT") {
				t.Errorf("one lock: %q", one)
			}
			return // of several keys at once
		}
		if lost := renewed(6); lost != nil {
			t.Errorf("of six locks are lost: %q", lost)
		}
	})
}
