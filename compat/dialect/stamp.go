package dialect

import (
	"encoding/binary"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Stamp is a way to write a timestamp on a key: the grammar of the T kinds. It reads a value
// completely or not at all: a number of another length, or one followed by other text, is not a
// timestamp. (Clients that read a prefix mistake live tokens for expired locks:
// compat/token-read-as-expired.)
type Stamp struct {
	Unit     time.Duration // what one counts: time.Second, time.Millisecond, time.Nanosecond
	Float    bool          // a decimal fraction of Unit may follow; up to 18 digits are read
	Decimals int           // how many of them are written at most; trailing zeros are left out, except the first
	Owner    Owner         // the text next to the timestamp
	Binary   bool          // eight raw bytes, little-endian
}

// Owner says where the owner stands in a value with a timestamp.
type Owner string

const (
	OwnerNone      Owner = ""
	OwnerPID       Owner = "-PID"
	OwnerPIDThread Owner = "-PID-THREAD"
	OwnerColonPID  Owner = ":PID"
	OwnerUUID      Owner = "UUID:"
)

// beyond is the first second that has more digits than a Stamp reads.
const beyond = 1e10

// Digits returns the number of digits of a time from 2001 to 2286 in this unit; 0 for a unit that no client uses. Only
// numbers of that length count as times, so no number can be read in two units.
func Digits(unit time.Duration) int {
	switch unit {
	case time.Second:
		return 10
	case time.Millisecond:
		return 13
	case time.Nanosecond:
		return 19
	}
	return 0
}

// Parse reads a complete value. owner is the text next to the timestamp, without the separator.
func (s Stamp) Parse(value string) (until time.Time, owner string, ok bool) {
	if s.Binary {
		until, ok = parseBinary(value)
		return until, "", ok
	}
	number, owner, ok := s.Owner.cut(value)
	if !ok {
		return time.Time{}, "", false
	}
	until, ok = s.parse(number)
	return until, owner, ok
}

func (s Stamp) parse(number string) (time.Time, bool) {
	whole, fraction, dot := strings.Cut(number, ".")
	if len(whole) != Digits(s.Unit) || !digits(whole) {
		return time.Time{}, false
	}
	if dot && (!s.Float || !digits(fraction) || len(fraction) > 18) {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil {
		return time.Time{}, false // 19 digits can overflow
	}
	switch s.Unit {
	case time.Nanosecond:
		return time.Unix(0, n), true
	case time.Millisecond:
		return time.UnixMilli(n), true
	}
	nanos, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	return time.Unix(n, nanos), true
}

func parseBinary(value string) (time.Time, bool) {
	if len(value) != 8 {
		return time.Time{}, false
	}
	n := binary.LittleEndian.Uint64([]byte(value))
	if n >= beyond {
		return time.Time{}, false // eight letters are text, not a timestamp
	}
	return time.Unix(int64(n), 0), true
}

// Grain returns the unit of rounding: the Stamp's shortest duration.
func (s Stamp) Grain() time.Duration {
	grain := s.Unit
	if s.Float {
		for range min(s.Decimals, 9) {
			grain /= 10
		}
	}
	return max(grain, 1)
}

// Write returns until as a value, rounded up to the grain, so that the lease on the key is never
// shorter than its holder believes. It includes owner if the Stamp has one: see Owner.Make.
func (s Stamp) Write(until time.Time, owner string) string {
	n, grain := until.UnixNano(), int64(s.Grain())
	if up := n / grain * grain; up < n {
		n = up + grain
	} else {
		n = up
	}
	if s.Binary {
		return string(binary.LittleEndian.AppendUint64(nil, uint64(n/int64(s.Unit))))
	}
	number := pad(n/int64(s.Unit), Digits(s.Unit))
	if s.Float {
		fraction := strings.TrimRight(pad(n%int64(s.Unit), 9), "0")
		number += "." + fraction + strings.Repeat("0", max(0, 1-len(fraction)))
	}
	return s.Owner.join(number, owner)
}

func pad(n int64, width int) string {
	d := strconv.FormatInt(n, 10)
	return strings.Repeat("0", max(0, width-len(d))) + d
}

// Make makes a unique owner in the fleet's form from a dozen or more random decimal digits.
func (o Owner) Make(random string) string {
	switch o {
	case OwnerPID, OwnerColonPID:
		return "1" + random
	case OwnerPIDThread:
		return "1" + random[:4] + "-1" + random[4:]
	case OwnerUUID:
		return uuid(random)
	}
	return ""
}

func (o Owner) join(number, owner string) string {
	switch o {
	case OwnerPID, OwnerPIDThread:
		return number + "-" + owner
	case OwnerColonPID:
		return number + ":" + owner
	case OwnerUUID:
		return owner + ":" + number
	}
	return number
}

// cut separates a number from its owner. Two versions of one client wrote the two forms with
// dashes; each reads the other's.
func (o Owner) cut(value string) (number, owner string, ok bool) {
	switch o {
	case OwnerNone:
		return value, "", true
	case OwnerPID, OwnerPIDThread:
		number, owner, ok = strings.Cut(value, "-")
		pid, thread, two := strings.Cut(owner, "-")
		return number, owner, ok && id(pid) && (!two || id(thread))
	case OwnerColonPID:
		number, owner, ok = strings.Cut(value, ":")
		return number, owner, ok && id(owner)
	case OwnerUUID:
		owner, number, ok = strings.Cut(value, ":")
		return number, owner, ok && isUUID(owner)
	}
	return "", "", false
}

// id reports whether s can be the ID of a process or a thread.
func id(s string) bool { return digits(s) && len(s) <= 20 }

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// IsTime reports whether value may be a timestamp of any client's lock: such a key must not be
// given a TTL, which could end a held lock.
func IsTime(value string) bool {
	_, _, binary := Stamp{Unit: time.Second, Binary: true}.Parse(value)
	return binary || timestamp().MatchString(value)
}

// timestamp matches seconds, milliseconds or nanoseconds, alone or with an owner
// before or behind, in more forms than are known to be written.
var timestamp = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[0-9a-fA-F-]{32,36}:)?(?:[0-9]{10}(?:\.[0-9]+)?|[0-9]{13}|[0-9]{19})(?:[-:][0-9]+){0,2}$`)
})
