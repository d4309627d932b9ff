package rwlock

import (
	"fmt"
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
	readers []entry       // the one with the longest lease first, and more if all were asked for
	waiting []entry       // writers, likewise
	turn    time.Duration // what is left of the readers' turn, or NoTTL
}

// An entry is a member of one of the sorted sets.
type entry struct {
	token string
	until time.Time
}

// look reads what a step depends on, under WATCH of the keys in watched: one round trip.
func (o Options) look(c *compat.Conn, now time.Time, key string, all bool, watched ...any) (view, error) {
	last := 0
	if all || o.Client != "" {
		last = -1
	}
	ttl := "TTL"
	if o.Millis {
		ttl = "PTTL"
	}
	v := view{now: now, margin: o.Margin}
	replies, err := o.ask(c, &v, key, watched, compat.Cmd{"GET", key}, compat.Cmd{ttl, key}, compat.Cmd{ttl, turnOf(key)},
		compat.Cmd{"ZREVRANGE", readersOf(key), 0, last, "WITHSCORES"}, compat.Cmd{"ZREVRANGE", waitingOf(key), 0, last, "WITHSCORES"})
	if err != nil {
		return v, err
	}
	if err := v.read(c, replies, o.unit()); err != nil {
		c.Unwatch()
		return v, err
	}
	return v, nil
}

// ask sends cmds in one write, under WATCH of the keys in watched and with TIME, if the server's
// clock is the one that counts. An error that the server gave for any of them is ask's error,
// and then nothing is watched.
func (o Options) ask(c *compat.Conn, v *view, key string, watched []any, cmds ...compat.Cmd) ([]any, error) {
	if len(watched) > 0 {
		cmds = append([]compat.Cmd{append(compat.Cmd{"WATCH"}, watched...)}, cmds...)
	}
	if o.ServerClock {
		cmds = append(cmds, compat.Cmd{"TIME"})
	}
	replies, err := c.Pipe(cmds...)
	if err != nil {
		return nil, err
	}
	if o.ServerClock {
		err = v.clock(replies[len(replies)-1])
	}
	for _, r := range replies {
		if e, refused := r.(redis.Error); refused {
			err = c.Foreign(key, e)
		}
	}
	if err != nil && len(watched) > 0 {
		c.Unwatch()
	}
	if len(watched) > 0 {
		replies = replies[1:]
	}
	return replies, err
}

// clock goes over to the server's clock.
func (v *view) clock(reply any) error {
	t, err := redis.Int64s(reply, nil)
	if err == nil && len(t) != 2 {
		err = fmt.Errorf("setnxlock: TIME answered %v", t)
	}
	if err != nil {
		return err
	}
	server := time.Unix(t[0], t[1]*1000)
	v.now, v.ahead = server, server.Sub(v.now)
	return nil
}

func (v *view) read(c *compat.Conn, replies []any, unit time.Duration) (err error) {
	v.writer, err = redis.String(replies[0], nil)
	v.held = err == nil
	if err != nil && err != redis.ErrNil {
		return err
	}
	if v.ttl, err = c.ReadTTL(replies[1], unit); err != nil {
		return err
	}
	if v.turn, err = c.ReadTTL(replies[2], unit); err != nil {
		return err
	}
	if v.readers, err = entries(replies[3]); err != nil {
		return err
	}
	v.waiting, err = entries(replies[4])
	return err
}

// entries reads members and their scores.
func entries(reply any) ([]entry, error) {
	fields, err := redis.Strings(reply, nil)
	if err != nil {
		return nil, err
	}
	var all []entry
	for i := 0; i+1 < len(fields); i += 2 {
		ms, err := strconv.ParseFloat(fields[i+1], 64)
		if err != nil {
			return nil, err
		}
		all = append(all, entry{fields[i], time.UnixMilli(int64(ms))})
	}
	return all, nil
}

// live reports whether e still counts.
func (v view) live(e entry) bool { return e.until.Add(v.margin).After(v.now) }

// reading is the reader that keeps a writer out longest, if there is one.
func (v view) reading() (entry, bool) { return v.first(v.readers) }

// announced is the writer that keeps new readers out longest, if there is one.
func (v view) announced() (entry, bool) { return v.first(v.waiting) }

func (v view) first(all []entry) (entry, bool) {
	if len(all) == 0 || !v.live(all[0]) {
		return entry{}, false
	}
	return all[0], true
}

// shutOut reports whether a reader has to give way to a writer that waits, and until when.
func (v view) shutOut(p Preference) (until time.Time, yes bool) {
	if p == ReadersFirst || p == Fair && v.turn != compat.NoTTL {
		return time.Time{}, false
	}
	w, yes := v.announced()
	return v.ours(w.until), yes
}

// comeIn are the commands for a client that comes in while writers wait: their announcements
// count again until the last client has gone.
func (v view) comeIn(key string) []compat.Cmd {
	if len(v.waiting) == 0 {
		return nil
	}
	return []compat.Cmd{{"EXPIRE", waitingOf(key), int64(setTTL / time.Second)}}
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

// at is t as a score.
func at(t time.Time) int64 { return t.UnixMilli() }

func (o Options) unit() time.Duration {
	if o.Millis {
		return time.Millisecond
	}
	return time.Second
}
