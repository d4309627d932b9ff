package compat_test

import (
	"math"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A TTL that no time.Duration holds is the longest there is: foreign clients mean "for ever" by it.
func TestReadTTL(t *testing.T) {
	for _, test := range []struct {
		reply any
		unit  time.Duration
		want  time.Duration
	}{
		{int64(-1), time.Second, protocol.NoTTL},
		{int64(-2), time.Second, protocol.NoTTL},
		{int64(0), time.Second, 0},
		{int64(30), time.Second, 30 * time.Second},
		{int64(1500), time.Millisecond, 1500 * time.Millisecond},
		{int64(9223372036), time.Second, 9223372036 * time.Second},
		{int64(9223372037), time.Second, math.MaxInt64},
		{int64(18446744074), time.Second, math.MaxInt64},
		{int64(27670116110), time.Second, math.MaxInt64},
		{int64(9223372036855), time.Millisecond, math.MaxInt64},
		{int64(math.MaxInt64), time.Second, math.MaxInt64},
	} {
		if got, err := protocol.ReadTTL(test.reply, test.unit); got != test.want || err != nil {
			t.Errorf("ReadTTL(%v, %v): %v, %v; want %v", test.reply, test.unit, got, err, test.want)
		}
	}
}

// Whole units are rounded up, and never overflow into a command that deletes the key.
func TestExpireRoundsUp(t *testing.T) {
	for _, test := range []struct {
		ttl          time.Duration
		secs, millis int64 // 0: ErrInvalid
	}{
		{time.Second, 1, 1000},
		{time.Second + 1, 2, 1001},
		{time.Second - 1, 0, 1000},
		{time.Millisecond, 0, 1},
		{1, 0, 0},
		{0, 0, 0},
		{-time.Hour, 0, 0},
		{math.MaxInt64, 9223372037, 9223372036855},
		{math.MaxInt64 - time.Second, 9223372036, 9223372035855},
	} {
		for _, c := range []struct {
			millis bool
			want   int64
		}{{false, test.secs}, {true, test.millis}} {
			cmd, err := protocol.Expire(c.millis, "k", test.ttl)
			if (err == nil) != (c.want > 0) || err == nil && cmd[2] != c.want {
				t.Errorf("Expire(millis %v, %v): %v, %v; want %d", c.millis, test.ttl, cmd, err, c.want)
			}
		}
	}
}
