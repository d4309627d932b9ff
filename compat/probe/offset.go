package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/ability"
	"github.com/setnxlock/setnxlock/compat/internal/answer"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// ErrNoClock means that the server's clock can't be read: it refuses TIME, and EXPIREAT with PTTL
// or TTL.
var ErrNoClock = errors.New("setnxlock: the server's clock can't be read")

// errJumped means that samples contradict each other.
var errJumped = errors.New("setnxlock: a clock was set while it was compared")

// Offset returns how far the server's clock is ahead of clk (nil: the computer's), and by how much
// that may be wrong in either direction. It takes the best of three ways that the server allows:
//
//	TIME             Redis 2.6: half a round trip
//	EXPIREAT, PTTL   2.6 with TIME refused: half a round trip and a millisecond
//	EXPIREAT, TTL    Redis 1.2: 20 ms and half a round trip
//
// The third way waits, on clk, for the server's second to change. It takes one to two seconds and a
// dozen to twenty round trips, or four seconds on a slow network. If a round trip takes over 150
// ms, it can't tell whether TTL rounds, and half a second more is uncertain. It writes two scratch
// keys, and removes them. The errors are those of [Ask], [ErrNoClock], and the server's refusal
// of a write.
func Offset(ctx context.Context, source compat.Source, clk clock.Clock, o Options) (offset, uncertainty time.Duration, err error) {
	if clk == nil {
		clk = clock.New()
	}
	p := newProber(ctx, source, o)
	defer p.close()
	defer p.cleanUp()

	m := &comparison{prober: p, clk: clk}
	for range 2 {
		var in interval
		in, err = m.compare()
		if err == nil {
			return in.middle(), in.width() / 2, nil
		}
		if !errors.Is(err, errJumped) {
			break
		}
	}
	return 0, 0, err
}

// An interval is where the offset must be: each sample narrows it.
type interval struct{ low, high time.Duration }

func (i interval) width() time.Duration  { return i.high - i.low }
func (i interval) middle() time.Duration { return i.low + i.width()/2 }

// A comparison is of two clocks: the server's and clk.
type comparison struct {
	*prober
	clk clock.Clock

	in   interval
	n    int           // samples taken
	trip time.Duration // how long the last one took
	end  int64         // the second at which a ends
	set  bool          // a has that end
}

func (m *comparison) compare() (interval, error) {
	m.set = false
	m.get() // are we let in?
	for _, way := range []func() error{m.byTime, m.byPTTL, m.byTTL} {
		m.n = 0
		err := way()
		if m.err != nil {
			err = m.err
		}
		if !errors.Is(err, errNoWay) {
			return m.in, err
		}
	}
	return m.in, ErrNoClock
}

// errNoWay sends us to the next way.
var errNoWay = errors.New("no way")

// sample asks cmds and notes our time before and after.
func (m *comparison) sample(cmds ...protocol.Cmd) (replies []any, before, after time.Time) {
	before = m.clk.Now()
	replies = m.ask(cmds...)
	after = m.clk.Now()
	m.trip = after.Sub(before)
	return replies, before, after
}

// seen narrows the interval: at some moment from before to after the server's
// clock stood between low and high.
func (m *comparison) seen(low, high, before, after time.Time) error {
	next := interval{low.Sub(after), high.Sub(before)}
	if m.n > 0 {
		next = interval{max(next.low, m.in.low), min(next.high, m.in.high)}
	}
	if next.low > next.high {
		return errJumped
	}
	m.in = next
	m.n++
	return nil
}

// quick is how many samples are taken where one suffices: the quickest of
// several round trips counts.
const quick = 5

func (m *comparison) byTime() error {
	for range quick {
		r, before, after := m.sample(protocol.Cmd{"TIME"})
		t, ok := answer.Time(r[0])
		if !ok {
			return errNoWay
		}
		if err := m.seen(t, t.Add(time.Microsecond), before, after); err != nil {
			return err
		}
	}
	return nil
}

// byPTTL trusts PTTL only if it tells parts of a second: some servers multiply.
func (m *comparison) byPTTL() error {
	if err := m.setEnd(); err != nil {
		return err
	}
	fine := false
	var err error
	for n := 0; n < quick && err == nil; n++ {
		r, before, after := m.sample(protocol.Cmd{"PTTL", m.a})
		left, ok := r[0].(int64)
		if !ok || left <= 0 {
			return errNoWay
		}
		fine = fine || left%1000 != 0
		t := time.UnixMilli(m.end*1000 - left)
		err = m.seen(t, t.Add(time.Millisecond), before, after)
	}
	if !fine {
		return errNoWay
	}
	return err
}

// setEnd gives a an absolute end: in a minute by our clock or later, where the server would take that for its past and
// delete the key.
func (m *comparison) setEnd() error {
	if m.set {
		return nil
	}
	m.wrote = true
	for _, ahead := range []time.Duration{life * time.Second, 25 * time.Hour, 400 * 24 * time.Hour, 30 * 365 * 24 * time.Hour} {
		m.end = m.clk.Now().Add(ahead).Unix()
		if _, err := m.make(m.a, "x", protocol.Cmd{"EXPIREAT", m.a, m.end}); err != nil {
			return fmt.Errorf("%w: %w", ErrNoClock, err)
		}
		r := m.ask(protocol.Cmd{"TTL", m.a})
		if left, ok := r[0].(int64); ok && left > life/2 {
			m.set = true
			return nil
		}
	}
	return ErrNoClock
}

// make makes key anew, with value, and gives it an end by a command; it returns the reply to that. Nobody sees the key
// without an end: it is made in one transaction, or where there is none by SETEX. The error is the server's refusal.
func (p *prober) make(key, value string, end protocol.Cmd) (reply any, err error) {
	if p.r.Answers[ability.Multi].Verdict == ability.NotAsked {
		p.finds(ability.Multi)
	}
	err = p.try(p.o.beside(), patient, func(c *protocol.Conn) (err error) {
		var r []any
		if p.r.Can(ability.Multi) {
			r, err = c.Exec(protocol.Cmd{"DEL", key}, protocol.Cmd{"SET", key, value}, end)
		} else if r, err = c.Pipe(protocol.Cmd{"SETEX", key, life, value}, end); err == nil {
			err = answer.First(r)
		}
		if err == nil && len(r) > 0 {
			reply = r[len(r)-1]
		}
		return err
	})
	return reply, err
}
