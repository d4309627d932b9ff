package getsetlock

import (
	"crypto/rand"
	"strconv"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
)

// A Dialect is how a fleet writes the time until which a lock is held, and when the time counts as
// expired. [Named] has the dialects of the clients in the field.
type Dialect struct {
	Name  string        // as errors and Inspect show it
	Unit  time.Duration // what one counts: time.Second, time.Millisecond, time.Nanosecond
	Float bool          // a decimal fraction of Unit follows

	// Decimals is how many digits of the fraction a Float value has at most. 0:
	// three, always.
	Decimals int

	// Owner is what stands beside the time: the writer's process, or a UUID.
	Owner dialect.Owner

	// Binary writes eight raw bytes, little-endian, instead of digits.
	Binary bool

	// Nonce makes each value that we write unique, so that reading the key proves whose it is: the
	// last digits of a Float value are random, and so is the Owner. Without either it has no
	// effect.
	Nonce bool

	// Plus is added to what we write: many clients write "+1", as the SETNX
	// page does (now + timeout + 1).
	Plus time.Duration

	// Inclusive treats a time that equals now as expired (<= instead of <).
	Inclusive bool

	// Whole cuts our clock's time to the Unit before comparing, as clients that count whole seconds
	// do: what they wrote at 10.9 s for five seconds is 15, and they believe that they hold it
	// until 15.9.
	Whole bool

	// Margin is how long after its timestamp we wait before we take over another client's lock:
	// their clocks may be that much behind ours.
	Margin time.Duration

	// Equal makes [Classic]'s GETSET win only if it replaced the same value that was read. Without
	// it any expired value will do. It has no effect on [Guarded].
	Equal bool
}

// The most common dialects; [Named] has more. A time is rounded up to the dialect's unit, so that a
// lease on the key is never shorter than its holder believes.
var (
	// Seconds is the dialect of the SETNX page: now + timeout + 1, expired when < now. Two clients
	// can write the same value, so a lost reply can't be resolved by reading (getset/same-stamp).
	Seconds = Dialect{Name: "integer seconds", Unit: time.Second, Plus: time.Second}

	// Float is the dialect of redis-py 2.2.4–2.9.1: seconds with a fraction. The fraction has
	// three digits of time and twelve random ones.
	Float = Dialect{Name: "float seconds", Unit: time.Second, Float: true, Nonce: true}

	// Millis is the dialect of jedis-lock and of npm's redis-lock.
	Millis = Dialect{Name: "integer milliseconds", Unit: time.Millisecond}

	// Nanos is the dialect of Go clients: machinery, bsm/redis-lock of 2014.
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
	f.Plus, f.Inclusive, f.Whole, f.Margin, f.Equal = d.Plus, d.Inclusive, d.Whole, d.Margin, d.Equal
	return f
}

// unit returns the shortest ttl that can be written.
func (d Dialect) unit() time.Duration {
	if d.Float {
		return time.Millisecond
	}
	return d.Unit
}

// stamp returns the grammar. A nonce stands behind three digits of the time.
func (d Dialect) stamp() dialect.Stamp {
	return dialect.Stamp{Unit: d.Unit, Float: d.Float, Decimals: d.Decimals, Owner: d.Owner, Binary: d.Binary}
}

// Ambiguous reports whether another client can write the value that we write.
func (d Dialect) Ambiguous() bool {
	d = d.orFloat()
	return !d.Nonce || !d.Float && d.Owner == ""
}

// Format writes until, with Plus added and rounded up, as Parse reads it: with as many digits as a
// time from 2001 to 2286 has. nonce returns twelve random digits; nil: their place
// is left out, or holds zeros.
func (d Dialect) Format(until time.Time, nonce func() string) string {
	d = d.orFloat()
	until = until.Add(d.Plus)
	if d.Float && d.Owner == "" && (d.Nonce || d.Decimals == 0) {
		ms := until.UnixMilli()
		if until.After(time.UnixMilli(ms)) {
			ms++ // a lease is never shorter on the key than in its holder's belief
		}
		b := fixed(make([]byte, 0, 32), ms)
		if d.Nonce && nonce != nil {
			b = append(b, nonce()...)
		}
		return string(b)
	}
	owner := ""
	switch {
	case d.Owner != "" && d.Nonce && nonce != nil:
		owner = d.Owner.Make(nonce())
	case d.Owner != "":
		owner = d.Owner.Make("000000000000")
	}
	return d.stamp().Write(until, owner)
}

// fixed writes seconds with three decimals, and ten digits at least before them.
func fixed(b []byte, ms int64) []byte {
	for least := int64(1e12); ms < least && least >= 10; least /= 10 {
		b = append(b, '0')
	}
	b = strconv.AppendInt(b, ms, 10)
	b = append(b, 0)
	point := len(b) - 4
	copy(b[point+1:], b[point:])
	b[point] = '.'
	return b
}

// Parse reads a complete value of this dialect. ok is false for anything else: a number of another
// length, a number with text behind it, a token. (Clients that read only a leading number take held
// token locks for expired ones: compat/token-read-as-expired.)
func (d Dialect) Parse(value string) (until time.Time, ok bool) {
	until, _, ok = d.orFloat().stamp().Parse(value)
	return until, ok
}

// past reports whether a lease with this end has ended at now, Margin included.
func (d Dialect) past(until, now time.Time) bool {
	until = until.Add(d.Margin)
	if d.Whole {
		now = time.Unix(0, now.UnixNano()/int64(d.Unit)*int64(d.Unit))
	}
	if d.Inclusive {
		return !until.After(now)
	}
	return until.Before(now)
}

// Dead reports whether value is a time of this dialect and has expired at now. It compares as the dialect's clients do,
// Margin included.
func (d Dialect) Dead(value string, now time.Time) bool {
	until, ok := d.Parse(value)
	return ok && d.orFloat().past(until, now)
}

// randomDigits returns twelve of them.
func randomDigits() string {
	b := make([]byte, 12)
	rand.Read(b) //nolint:errcheck // never fails since Go 1.24
	for i := range b {
		b[i] = '0' + b[i]%10
	}
	return string(b)
}
