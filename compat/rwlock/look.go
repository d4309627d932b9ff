package rwlock

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// look reads the facts for a step, under WATCH of the keys in watched: one round trip. all reads every reader and every
// waiter, not only the first of each, and then nothing is removed. tickets is the set in which a waiter of the step's kind
// has its ticket. An entry from a wrong clock comes first in its set and hides the others: look removes it, and looks again.
func (o Options) look(c *protocol.Conn, now time.Time, key, tickets string, all bool, watched ...any) (view, error) {
	const tries = 8
	for range tries {
		v, err := o.lookOnce(c, now, key, tickets, all, watched...)
		wrong := v.wrong(key)
		if err != nil || all || len(wrong) == 0 {
			return v, err
		}
		if v.slow, err = o.slow(c, v, key); v.slow && err == nil {
			return v, nil
		}
		c.Unwatch()
		if err == nil {
			_, err = o.ask(c, &v, key, nil, wrong...)
		}
		if err != nil {
			return v, err
		}
	}
	return view{}, &protocol.HeldError{Key: key}
}

func (o Options) lookOnce(c *protocol.Conn, now time.Time, key, tickets string, all bool, watched ...any) (view, error) {
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
	cmds := []protocol.Cmd{{"GET", key}, {ttl, key}, {"ZREVRANGE", readersOf(key), 0, last, "WITHSCORES"},
		{"ZREVRANGE", waitingOf(key), 0, first, "WITHSCORES"}, {"ZREVRANGE", nextOf(key), 0, first, "WITHSCORES"}}
	if v.waiter != "" {
		cmds = append(cmds, protocol.Cmd{"ZSCORE", tickets, v.waiter}, protocol.Cmd{"ZSCORE", nextOf(key), v.waiter})
	}
	replies, err := o.ask(c, &v, key, watched, cmds...)
	if err != nil {
		return v, err
	}
	if err := v.read(c, key, replies, o.unit()); err != nil {
		c.Unwatch()
		return v, err
	}
	return v, nil
}

// ask sends cmds in one write, under WATCH of the keys in watched and with TIME, if the server's clock counts. An error
// that the server gave for any of them is ask's error, and then nothing is watched.
func (o Options) ask(c *protocol.Conn, v *view, key string, watched []any, cmds ...protocol.Cmd) ([]any, error) {
	if len(watched) > 0 {
		cmds = append([]protocol.Cmd{append(protocol.Cmd{"WATCH"}, watched...)}, cmds...)
	}
	replies, err := c.Pipe(o.asks(cmds)...)
	if err != nil {
		return nil, err
	}
	replies, err = o.answers(v, key, replies)
	if err != nil && len(watched) > 0 {
		c.Unwatch()
	}
	if len(watched) > 0 {
		replies = replies[1:]
	}
	return replies, err
}

func (v *view) read(c *protocol.Conn, key string, replies []any, unit time.Duration) (err error) {
	v.writer, err = redis.String(replies[0], nil)
	v.held = err == nil
	if err != nil && err != redis.ErrNil {
		return err
	}
	if protocol.Expired(replies[1]) {
		v.writer, v.held = "", false
	}
	if v.ttl, err = protocol.ReadTTL(replies[1], unit); err != nil {
		return err
	}
	for i, set := range []*[]entry{&v.readers, &v.waiting, &v.next} {
		if *set, err = entries(replies[2+i]); err != nil {
			return fmt.Errorf("%w, at %q", err, []string{readersOf(key), waitingOf(key), nextOf(key)}[i])
		}
	}
	if v.waiter == "" {
		return nil
	}
	if v.ticket, err = score(replies[5]); err == nil {
		v.turn, err = score(replies[6])
	}
	return err
}
