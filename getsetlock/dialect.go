package getsetlock

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A Dialect is how a fleet writes the time until which a lock is held, and when
// it takes that time for gone by.
type Dialect struct {
	Name  string        // as errors and Inspect say it
	Unit  time.Duration // what one counts: time.Second, time.Millisecond, time.Nanosecond
	Float bool          // a decimal fraction of Unit follows

	// Nonce makes the last digits of a Float value random, so that no two
	// clients write alike and reading the key proves whose it is.
	Nonce bool

	// Plus is added to what we write: many clients write "+1", as the SETNX
	// page does (now + timeout + 1).
	Plus time.Duration

	// Inclusive takes a time that is just now for gone by (<=) instead of to
	// come (<).
	Inclusive bool

	// Margin is how much longer than the value says we leave others' leases
	// alone: by as much may their clocks be behind ours.
	Margin time.Duration
}

// The dialects in the field. What is written is rounded up to the dialect's
// unit: a lease is never shorter on the key than in its holder's belief.
var (
	// Seconds is the SETNX page's: now + timeout + 1, gone by when < now. Two
	// clients can write the same value, so a lost reply can't be resolved by
	// reading (getset/same-stamp).
	Seconds = Dialect{Name: "integer seconds", Unit: time.Second, Plus: time.Second}

	// Float is redis-py's (2.2.4–2.9.1): seconds with a fraction: three digits
	// of time, then twelve of our own.
	Float = Dialect{Name: "float seconds", Unit: time.Second, Float: true, Nonce: true}

	// Millis is jedis-lock's and npm redis-lock's.
	Millis = Dialect{Name: "integer milliseconds", Unit: time.Millisecond}

	// Nanos is Go's: machinery, bsm/redis-lock of 2014.
	Nanos = Dialect{Name: "integer nanoseconds", Unit: time.Nanosecond}
)

// Dialects returns the dialects by the names the command uses.
func Dialects() map[string]Dialect {
	return map[string]Dialect{"seconds": Seconds, "float": Float, "millis": Millis, "nanos": Nanos}
}

func (d Dialect) orFloat() Dialect {
	if d.Unit != 0 {
		return d
	}
	f := Float // a zero Dialect may still ask for its own comparison
	f.Plus, f.Inclusive, f.Margin = d.Plus, d.Inclusive, d.Margin
	return f
}

// unit is the shortest ttl that can be told apart from none.
func (d Dialect) unit() time.Duration {
	if d.Float {
		return time.Millisecond
	}
	return d.Unit
}

// Format writes until, Plus added and rounded up, with as many digits as a
// time of our days has: what Parse reads, and nothing shorter.
func (d Dialect) Format(until time.Time, nonce func() string) string {
	until = until.Add(d.Plus)
	unit := d.unit()
	n := until.UnixNano()
	if unit > 1 {
		n = n / int64(unit) * int64(unit)
		if n < until.UnixNano() {
			n += int64(unit)
		}
	}
	if !d.Float {
		return fmt.Sprintf("%0*d", digits[d.Unit], n/int64(unit))
	}
	ms := n / int64(time.Millisecond)
	s := fmt.Sprintf("%010d.%03d", ms/1000, ms%1000)
	if d.Nonce && nonce != nil {
		s += nonce()
	}
	return s
}

// digits are those of a time between 2001 and 2286.
var digits = map[time.Duration]int{time.Second: 10, time.Millisecond: 13, time.Nanosecond: 19}

var integer = regexp.MustCompile(`^[0-9]+$`)

// Parse reads a value of this dialect in full. A number of another length, a
// prefix that happens to be a number, a token: none of them is a time, and ok is
// false. (Clients that read a prefix take live token locks for expired ones:
// compat/token-read-as-expired.)
func (d Dialect) Parse(value string) (until time.Time, ok bool) {
	d = d.orFloat()
	whole, fraction, dot := strings.Cut(value, ".")
	if len(whole) != digits[d.Unit] || !integer.MatchString(whole) {
		return time.Time{}, false
	}
	if dot && (!d.Float || !integer.MatchString(fraction) || len(fraction) > 18) {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, false // 19 digits can be more than there are nanoseconds
	}
	switch d.Unit {
	case time.Nanosecond:
		return time.Unix(0, n), true
	case time.Millisecond:
		return time.UnixMilli(n), true
	}
	nanos, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	return time.Unix(n, nanos), true
}

// past reports whether a lease that ends at until has ended at now, for us.
func (d Dialect) past(until, now time.Time) bool {
	until = until.Add(d.Margin)
	if d.Inclusive {
		return !until.After(now)
	}
	return until.Before(now)
}

// dead reports whether value is a time of this dialect that has gone by.
func (d Dialect) dead(value string, now time.Time) bool {
	until, ok := d.Parse(value)
	return ok && d.orFloat().past(until, now)
}

// randomDigits returns twelve of them.
func randomDigits() string {
	var b [12]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	for i := range b {
		b[i] = '0' + b[i]%10
	}
	return string(b[:])
}
