package oldredis

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Now returns the server's time.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readClock()
	return time.Unix(0, s.nano)
}

// Advance moves the server's time forward and runs active expiry: expired keys are reaped. A server
// with a Clock stays ahead of it by d.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(d)
	s.reapAll()
	s.fireTimers()
}

// AdvanceLazy moves the server's time forward without active expiry: an expired key stays in memory, unreaped, until a
// command or Reap reaps it. A server without a Clock never reaps it by itself; one with a Clock does so at the next 100
// ms.
func (s *Server) AdvanceLazy(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pass(d)
	s.fireTimers()
}

// Reap runs active expiry now.
func (s *Server) Reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readClock()
	s.reapAll()
}

func (s *Server) pass(d time.Duration) {
	if s.clock != nil {
		s.offset += d
	} else {
		s.stepped = s.stepped.Add(d)
	}
	s.readClock()
	s.ticked = s.nano / int64(s.quirks.cron)
}

func (s *Server) readClock() {
	now := s.stepped
	if s.clock != nil {
		now = s.clock.Now().Add(s.offset)
	}
	s.nano = now.UnixNano()
	s.ms = s.nano / int64(time.Millisecond)
}

// begin reads the clock for the next command. If the server's cron was due since the last command, it runs active
// expiry as of then.
func (s *Server) begin() {
	if s.clock == nil {
		return // only Advance and AdvanceLazy move the time
	}
	s.readClock()
	cron := int64(s.quirks.cron)
	if due := s.nano / cron; due > s.ticked {
		s.ticked = due
		now := s.ms
		s.ms = due * cron / int64(time.Millisecond)
		s.reapAll()
		s.ms = now
	}
}

func (s *Server) reapAll() {
	for _, db := range s.spaces {
		if len(db.deadlines) == 0 {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(db.deadlines)) {
			if s.dead(db, key) || s.has(cronReapsEarly) && s.ms >= db.deadlines[key] {
				s.expired(db, key)
			}
		}
	}
}

// dead reports whether the key's deadline has passed. It is alive at its deadline; on versions with
// whole seconds, for all of that second.
func (s *Server) dead(db *space, key string) bool {
	if len(db.deadlines) == 0 {
		return false
	}
	when, ok := db.deadlines[key]
	if !ok {
		return false
	}
	return s.quirks.dead(when, s.ms)
}

// dead reports whether a key with this deadline has expired at ms.
func (m *quirks) dead(when, ms int64) bool {
	if m.has(wholeSeconds) {
		return ms/1000 > when/1000
	}
	return ms > when
}

// reap deletes the key if it has expired.
func (s *Server) reap(db *space, key string) {
	if s.dead(db, key) {
		s.expired(db, key)
	}
}

// expired deletes a key for its age.
func (s *Server) expired(db *space, key string) {
	s.drop(db, key)
	if !s.has(expiryUnseen) {
		s.touch(db, key)
	}
}

// lookupRead reaps the key if it has expired and reports whether it exists.
func (s *Server) lookupRead(db *space, key string) bool {
	s.reap(db, key)
	return s.exists(db, key)
}

// lookupWrite does as lookupRead, for commands that write. Before 2.2 it deletes the key if it has a TTL.
func (s *Server) lookupWrite(db *space, key string) bool {
	if s.has(writeDeletesVolatile) {
		if _, volatile := db.deadlines[key]; volatile {
			s.drop(db, key)
		}
	} else {
		s.reap(db, key)
	}
	return s.exists(db, key)
}

// timeUnit is the unit in which EXPIRE and its relatives count.
type timeUnit struct {
	ms       int64 // milliseconds in a unit
	absolute bool
}

var (
	inSeconds = timeUnit{ms: 1000}
	inMillis  = timeUnit{ms: 1}
	atSecond  = timeUnit{ms: 1000, absolute: true}
	atMilli   = timeUnit{ms: 1, absolute: true}
)

// in returns a handler for counts of a unit.
func in(unit timeUnit, run func(*Server, *session, []string, timeUnit) any) handler {
	return func(s *Server, c *session, args []string) any { return run(s, c, args, unit) }
}

func (s *Server) expire(c *session, args []string, unit timeUnit) any {
	db, key := s.spaces[c.db], args[1]
	options, err := expireOptions(args)
	if err != nil {
		return err
	}
	n, ok := s.number(args[2])
	if !ok {
		return redis.Error(s.quirks.texts.notInt)
	}
	when, ok := s.deadline(n, unit)
	if !ok {
		return redis.Error(fmt.Sprintf(s.quirks.texts.badTTL, strings.ToLower(args[0])))
	}
	if !s.has(expireSeesUnreaped) {
		s.reap(db, key)
	}
	if !s.exists(db, key) {
		return int64(0)
	}
	old, volatile := db.deadlines[key]
	if options.refuse(when, old, volatile) {
		return int64(0)
	}
	switch {
	case s.past(when):
		s.drop(db, key)
	case volatile && s.has(expireOnce):
		return int64(0)
	default:
		db.deadlines[key] = when
	}
	s.touch(db, key)
	return int64(1)
}

// deadline returns the deadline in ms for a TTL or a time of n units. Since 7.0 ok is false if it
// overflows.
func (s *Server) deadline(n int64, unit timeUnit) (when int64, ok bool) {
	now := s.ms
	if s.has(wholeSeconds) {
		now -= now % 1000
	}
	if unit.absolute {
		now = 0
	}
	if !s.has(plainSet) {
		if n > math.MaxInt64/unit.ms || n < math.MinInt64/unit.ms || n*unit.ms > math.MaxInt64-now {
			return 0, false
		}
	}
	return now + n*unit.ms, true
}

// past reports whether a key with this deadline is deleted at once.
func (s *Server) past(when int64) bool {
	if !s.has(wholeSeconds) {
		return when <= s.ms
	}
	if s.has(expireZeroLives) {
		return when/1000 < s.ms/1000
	}
	return when/1000 <= s.ms/1000
}

// expireFlags are the options of EXPIRE since 7.0.
type expireFlags map[string]bool

func expireOptions(args []string) (expireFlags, any) {
	if len(args) == 3 {
		return nil, nil
	}
	f := expireFlags{}
	for _, a := range args[3:] {
		name := strings.ToUpper(a)
		if !slices.Contains([]string{"NX", "XX", "GT", "LT"}, name) {
			return f, redis.Error("ERR Unsupported option " + a)
		}
		f[name] = true
	}
	if f["NX"] && len(f) > 1 {
		return f, redis.Error("ERR NX and XX, GT or LT options at the same time are not compatible")
	}
	if f["GT"] && f["LT"] {
		return f, redis.Error("ERR GT and LT options at the same time are not compatible")
	}
	return f, nil
}

// refuse reports whether the options forbid when as the next deadline. A missing deadline counts
// as infinite.
func (f expireFlags) refuse(when, old int64, volatile bool) bool {
	return f["NX"] && volatile || f["XX"] && !volatile ||
		f["GT"] && (!volatile || when <= old) || f["LT"] && volatile && when >= old
}

// ttl runs TTL or PTTL.
func (s *Server) ttl(c *session, args []string, unit timeUnit) any {
	left, answer := s.timeLeft(c, args[1])
	switch {
	case answer != nil:
		return answer
	case s.has(wholeSeconds):
		return left / unit.ms
	}
	return (left + unit.ms/2) / unit.ms
}

// timeLeft returns the ms until the key's deadline, or the answer of TTL if there is none.
func (s *Server) timeLeft(c *session, key string) (left int64, answer any) {
	db := s.spaces[c.db]
	if !s.has(ttlBlind) && !s.lookupRead(db, key) {
		return 0, int64(-2)
	}
	when, volatile := db.deadlines[key]
	if !volatile {
		return 0, int64(-1)
	}
	now := s.ms
	if s.has(wholeSeconds) {
		now -= now % 1000
		when -= when % 1000
	}
	if when < now {
		return 0, int64(-1)
	}
	return when - now, nil
}

// expiretime runs EXPIRETIME or PEXPIRETIME.
func (s *Server) expiretime(c *session, args []string, unit timeUnit) any {
	db := s.spaces[c.db]
	if !s.lookupRead(db, args[1]) {
		return int64(-2)
	}
	if when, volatile := db.deadlines[args[1]]; volatile {
		return (when + unit.ms/2) / unit.ms
	}
	return int64(-1)
}

func persist(s *Server, c *session, args []string) any {
	db, key := s.spaces[c.db], args[1]
	if !s.has(persistSeesUnreaped) {
		s.reap(db, key)
	}
	if _, volatile := db.deadlines[key]; !volatile {
		return int64(0)
	}
	delete(db.deadlines, key)
	if !s.has(persistSilently) {
		s.touch(db, key)
	}
	return int64(1)
}
