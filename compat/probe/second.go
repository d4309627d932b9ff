package probe

import (
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

const (
	// splits is into how many parts a pass divides where the offset may be.
	// Two passes make 1/36 s of a second.
	splits = 6

	// passes is how often it does so at most: each waits for the server's
	// next second.
	passes = 3

	// enough is the width with which the search is content.
	enough = 60 * time.Millisecond

	// coarse is by how much time(NULL) may lag behind the clock: a tick of
	// the kernel's.
	coarse = 10 * time.Millisecond
)

// byTTL finds the moment at which the server's second changes. TTL a is the end
// that we set less the server's second, so that a sample before the change
// and one after it have the change between them. Each pass looks at splits-1
// moments, evenly spaced over where the change may be, until it has happened.
func (m *comparison) byTTL() error {
	if err := m.setEnd(); err != nil {
		return err
	}
	if _, err := m.second(); err != nil {
		return err
	}
	var halves, known bool
	for pass := 0; pass < passes && m.in.width() > enough; pass++ {
		from, step := m.in, m.in.width()/splits
		next := m.secondAfter(from.high - step)
		for k := time.Duration(1); k < splits; k++ {
			if err := m.sleepUntil(next.Add(k*step - from.high)); err != nil { //nolint:durationcheck // k is a number
				return err
			}
			s, err := m.second()
			if err != nil {
				return err
			}
			if !s.Before(next) {
				break
			}
		}
		if !known { // there is time for it while the next second has not come
			var err error
			if halves, known, err = m.rounds(); err != nil {
				return err
			}
		}
	}
	if halves || !known {
		m.in.low -= time.Second / 2
	}
	if halves {
		m.in.high -= time.Second/2 + coarse - time.Millisecond // TTL is then read off milliseconds
	}
	return nil
}

// second takes a sample: the server's second, if TTL does not round.
func (m *comparison) second() (time.Time, error) {
	r, before, after := m.sample(protocol.Cmd{"TTL", m.a})
	left, err := redis.Int64(r[0], nil)
	if m.err != nil {
		return time.Time{}, m.err
	}
	if err != nil || left < 0 {
		return time.Time{}, fmt.Errorf("%w: TTL answers %s", ErrNoClock, text(r[0]))
	}
	s := time.Unix(m.end-left, 0)
	return s, m.seen(s, s.Add(time.Second+coarse), before, after)
}

// secondAfter returns the first whole second not before now, by the server's clock, if that is ahead by ahead.
func (m *comparison) secondAfter(ahead time.Duration) time.Time {
	t := m.clk.Now().Add(ahead)
	if s := t.Truncate(time.Second); !s.Before(t) {
		return s
	}
	return t.Truncate(time.Second).Add(time.Second)
}

// rounds reports whether TTL rounds to the nearest second, as it does since
// 2.6: what looks like the server's second is then half a second ahead. A key
// that is made early in a second and asked for late in the same one tells: of
// whole seconds none has gone by, while what is left of it rounds to one less.
// known is false if the network is too slow to do both in one second.
func (m *comparison) rounds() (halves, known bool, err error) {
	const slack = 5 * time.Millisecond
	const more = time.Second/2 + 3*slack
	trip := m.trip
	latest := time.Second - m.in.width()/2 - trip - slack
	early := max(m.in.width()/2+coarse+slack, min(200*time.Millisecond, latest-trip-more))
	late := min(latest, early+trip+more+50*time.Millisecond)
	if late-early-trip < more {
		return false, false, nil
	}

	second := m.secondAfter(m.in.middle() - early)
	if err := m.sleepUntil(second.Add(early - m.in.middle())); err != nil {
		return false, false, err
	}
	begun := m.clk.Now()
	set, err := m.make(m.b, "x", protocol.Cmd{"EXPIRE", m.b, life})
	made := m.clk.Now()
	if err == nil && set != int64(1) {
		err = fmt.Errorf("%w: EXPIRE answers %s", ErrNoClock, text(set))
	}
	if err != nil {
		return false, false, err
	}
	if err := m.sleepUntil(second.Add(late - m.in.middle())); err != nil {
		return false, false, err
	}
	r, asked, ended := m.sample(protocol.Cmd{"TTL", m.b})
	left, ok := r[0].(int64)
	switch {
	case m.err != nil:
		return false, false, m.err
	case !ok || left < life-2 || left > life:
		return false, false, fmt.Errorf("%w: TTL answers %s", ErrNoClock, text(r[0]))
	}
	known = !begun.Add(m.in.low).Before(second.Add(coarse)) && // not in the second before
		ended.Add(m.in.high).Before(second.Add(time.Second)) && // not in the one after
		asked.Sub(made) > time.Second/2+coarse
	return left < life, known, nil
}

// sleepUntil waits until t by our clock.
func (m *comparison) sleepUntil(t time.Time) error {
	d := m.clk.Until(t)
	if d <= 0 {
		return nil
	}
	timer := m.clk.Timer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-m.ctx.Done():
		m.fail(m.ctx.Err())
		return m.err
	}
}
