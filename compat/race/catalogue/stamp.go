package catalogue

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat"
)

// stamped is what clients with a timestamp on the key have in common: they read
// the key, and their leases end when the value says so, without any margin.
type stamped struct{}

func (stamped) Extend(now time.Time, l compat.Lease, ttl time.Duration) (compat.Lease, compat.Change, error) {
	return l, compat.Change{}, compat.ErrLost // it has no way to
}

func (stamped) Traits() compat.Traits { return compat.Traits{} }

// Release deletes whatever is there.
func (stamped) Release(l compat.Lease) compat.Change {
	return by(l, func(c *compat.Conn) error {
		_, err := c.Do("DEL", l.Key)
		return err
	})
}

// Inspect lets the Locker try whatever there is: these clients look by trying.
func (stamped) Inspect(c *compat.Conn, now time.Time, key string) (compat.State, error) {
	s := compat.State{Key: key, Status: compat.StatusFree, TTL: compat.NoTTL}
	value, err := redis.String(c.Do("GET", key))
	if errors.Is(err, redis.ErrNil) {
		return s, nil
	}
	s.Value, s.Status = value, compat.StatusDead
	return s, err
}

// get reads a string; none is "".
func get(c *compat.Conn, cmd string, args ...any) (string, error) {
	value, err := redis.String(c.Do(cmd, args...))
	if errors.Is(err, redis.ErrNil) {
		return "", nil
	}
	return value, err
}

// wholeSeconds writes a time as Time.now.to_i does.
func wholeSeconds(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// millis writes a time as Date.now() does.
func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

// float writes a time in seconds with so many decimals.
func float(t time.Time, decimals int) string {
	return strconv.FormatFloat(float64(t.UnixNano())/1e9, 'f', decimals, 64)
}

// leading reads the number that value begins with, as Ruby's to_f, C's atof and
// JavaScript's parseFloat do. ok is false if it begins with none: 0 in Ruby, NaN in
// JavaScript.
func leading(value string) (n float64, ok bool) {
	end, dot := 0, false
	for end < len(value) && (value[end] >= '0' && value[end] <= '9' || value[end] == '.' && !dot) {
		dot = dot || value[end] == '.'
		end++
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(value[:end], "."), 64)
	return n, err == nil
}

// unix is a time as a float of seconds.
func unix(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
