package rwlock

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A view is what one look at the key, and at what stands beside it, showed.
type view struct {
	now    time.Time     // by the clock that the scores are counted by
	ahead  time.Duration // how much that clock is ahead of ours
	margin time.Duration

	slow    bool // our clock is behind the server's: who is far ahead of it may be right
	held    bool // a writer's token is on the key
	writer  string
	ttl     time.Duration
	readers []entry // the one with the longest lease first, and more if all were asked for
	waiting []entry // writers that wait, likewise
	next    []entry // readers whose turn it is, likewise

	waiter       string    // who looks, if it waits
	ticket, turn time.Time // the ends of its ticket and of its turn; zero: it has none
}

// An entry is a member of one of the sorted sets.
type entry struct {
	name  string // a reader's token, or who waits
	until time.Time
}

// live reports whether a reader still counts.
func (v view) live(e entry) bool {
	return e.until.Add(v.margin).After(v.now) && (v.slow || !e.until.After(v.latest()))
}

// reading returns the reader with the latest end, if there is one: it keeps a writer out longest.
func (v view) reading() (entry, bool) {
	if len(v.readers) == 0 || !v.live(v.readers[0]) {
		return entry{}, false
	}
	return v.readers[0], true
}

// ours translates a time of the scores' clock to our own.
func (v view) ours(t time.Time) time.Time { return t.Add(-v.ahead) }

// writes returns the refusal by the writer that holds the key.
func (v view) writes(key string) *protocol.HeldError {
	held := &protocol.HeldError{Key: key, Value: v.writer, Persistent: v.ttl == protocol.NoTTL}
	if !held.Persistent {
		held.Until = v.ours(v.now).Add(v.ttl)
	}
	return held
}

// entries reads members and their scores: one behind the other, or in pairs, as RESP3 has them.
func entries(reply any) (all []entry, err error) {
	fields, err := redis.Values(reply, nil)
	for len(fields) > 0 && err == nil {
		pair, of := fields, 2
		if both, ok := fields[0].([]any); ok {
			pair, of = both, 1
		}
		if len(pair) < 2 {
			return nil, fmt.Errorf("%w: a member without a score", protocol.ErrForeign)
		}
		var e entry
		if e.name, err = redis.String(pair[0], nil); err == nil {
			e.until, err = score(pair[1])
		}
		all, fields = append(all, e), fields[of:]
	}
	return all, err
}

// score reads a time; zero if there is none.
func score(reply any) (time.Time, error) {
	ms, double := reply.(float64) // over RESP3
	if !double {
		text, err := redis.String(reply, nil)
		if err == redis.ErrNil {
			return time.Time{}, nil
		} else if err != nil {
			return time.Time{}, err
		}
		if ms, err = strconv.ParseFloat(text, 64); err != nil {
			return time.Time{}, fmt.Errorf("%w: a score %q", protocol.ErrForeign, text)
		}
	}
	if ms != math.Trunc(ms) || ms < 0 || ms > 1<<53 {
		return time.Time{}, fmt.Errorf("%w: a score that is no time, %v", protocol.ErrForeign, ms)
	}
	return time.UnixMilli(int64(ms)), nil
}
