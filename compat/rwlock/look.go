package rwlock

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
)

// look reads what a step depends on, under WATCH of the keys in watched: one round trip. all
// reads every reader and every waiter, and not only the first of each. words is where a waiter of
// the step's kind gives its word.
func (o Options) look(c *compat.Conn, now time.Time, key, words string, all bool, watched ...any) (view, error) {
	last, first := 0, 0
	if all {
		first = -1
	}
	if all || o.Client != "" {
		last = -1
	}
	ttl := "TTL"
	if o.Millis {
		ttl = "PTTL"
	}
	v := view{now: now, margin: o.Margin, waiter: c.Waiter()}
	cmds := []compat.Cmd{{"GET", key}, {ttl, key}, {"ZREVRANGE", readersOf(key), 0, last, "WITHSCORES"},
		{"ZREVRANGE", waitingOf(key), 0, first, "WITHSCORES"}, {"ZREVRANGE", nextOf(key), 0, first, "WITHSCORES"}}
	if v.waiter != "" {
		cmds = append(cmds, compat.Cmd{"ZSCORE", words, v.waiter}, compat.Cmd{"ZSCORE", nextOf(key), v.waiter})
	}
	replies, err := o.ask(c, &v, key, watched, cmds...)
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
		replies = replies[:len(replies)-1]
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
	server, told := answer.Time(reply)
	if refused, ok := reply.(redis.Error); ok {
		return refused
	}
	if !told {
		return fmt.Errorf("setnxlock: TIME answers %.80q, which is no time", fmt.Sprintf("%s", reply))
	}
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
	for i, set := range []*[]entry{&v.readers, &v.waiting, &v.next} {
		if *set, err = entries(replies[2+i]); err != nil {
			return err
		}
	}
	if v.waiter == "" {
		return nil
	}
	if v.said, err = score(replies[5]); err == nil {
		v.turn, err = score(replies[6])
	}
	return err
}
