package rwlock

import (
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// A view is what one look at the key, and at what stands beside it, showed.
type view struct {
	now    time.Time     // by the clock that the scores are counted by
	ahead  time.Duration // how much that clock is ahead of ours
	margin time.Duration

	held    bool // a writer's token is on the key
	writer  string
	ttl     time.Duration
	readers []entry // the one with the longest lease first, and more if all were asked for
	waiting []entry // writers that wait, likewise
	next    []entry // readers whose turn it is, likewise

	waiter     string    // who looks, if it waits
	said, turn time.Time // until when its word counts, and its turn; zero: there is none
}

// An entry is a member of one of the sorted sets.
type entry struct {
	name  string // a reader's token, or who waits
	until time.Time
}

// live reports whether a reader still counts.
func (v view) live(e entry) bool { return e.until.Add(v.margin).After(v.now) }

// reading is the reader that keeps a writer out longest, if there is one.
func (v view) reading() (entry, bool) {
	if len(v.readers) == 0 || !v.live(v.readers[0]) {
		return entry{}, false
	}
	return v.readers[0], true
}

// ours is a time of the clock that scores are counted by, by our own.
func (v view) ours(t time.Time) time.Time { return t.Add(-v.ahead) }

// writes is the refusal by the writer that holds the key.
func (v view) writes(key string) *compat.HeldError {
	held := &compat.HeldError{Key: key, Value: v.writer}
	if v.ttl != compat.NoTTL {
		held.Until = v.ours(v.now).Add(v.ttl)
	}
	return held
}

// entries reads members and their scores.
func entries(reply any) ([]entry, error) {
	fields, err := redis.Strings(reply, nil)
	if err != nil {
		return nil, err
	}
	var all []entry
	for i := 0; i+1 < len(fields); i += 2 {
		until, err := score(fields[i+1])
		if err != nil {
			return nil, err
		}
		all = append(all, entry{fields[i], until})
	}
	return all, nil
}

// score reads a time; zero if there is none.
func score(reply any) (time.Time, error) {
	text, err := redis.String(reply, nil)
	if err == redis.ErrNil {
		return time.Time{}, nil
	}
	ms, parsing := strconv.ParseFloat(text, 64)
	if err == nil {
		err = parsing
	}
	return time.UnixMilli(int64(ms)), err
}
