// Package dialect knows how the clients of other languages write their locks:
// the value's grammar, what they add to it, when they take a lock over, how
// they give it back, and how they name the key. It is data, and sends nothing.
//
//	f, err := dialect.Lookup("redis-py-2.9")
//	f.Key("report")                          "report": the key that this client locks
//	until, owner, ok := f.Stamp.Parse(value) in full, or not at all
//	dialect.Recognise(key, value, ttl, now)  what a key's value can be, and what is wrong with it
//
// The locks that speak these formats are getsetlock's, where the value is a
// time (the T kinds), and txlock's, where it is an owner and the key's TTL is
// the lease (the K kinds).
//
// A fleet is many copies of one client. Two fleets meet only on keys of the
// same name: most clients put a prefix of their own before it, and those that
// do not are the ones that get mixed.
//
// Sources: the clients' own, at the versions that each Format names. Not
// spoken: redis_getlock, which puts float seconds into a JSON text.
package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind is what is on the key: formats of one kind read each other.
type Kind string

const (
	Seconds      Kind = "T-s"       // integer seconds
	FloatSeconds Kind = "T-f"       // seconds with a fraction
	Millis       Kind = "T-ms"      // integer milliseconds
	Nanos        Kind = "T-ns"      // integer nanoseconds
	OwnedSeconds Kind = "T-s-sfx"   // seconds, and an owner behind them
	OwnedMillis  Kind = "T-uuid-ms" // an owner, and milliseconds behind it
	BinSeconds   Kind = "T-bin"     // eight raw bytes of seconds
	InAction     Kind = "K-ria"     // a dashed UUID, TTL repaired by whoever finds none
	Python       Kind = "K-py"      // 32 hexadecimal digits
	Owned        Kind = "K-owner"   // a text that names its owner
	Scripted     Kind = "K-lua"     // set together with its TTL by a script or by SET NX PX
	Flag         Kind = "K-flag"    // the same for every holder
	Watched      Kind = "K-watch"   // set together with its TTL under WATCH
	TwoKeys      Kind = "2-key"     // an owner on one key, seconds on another
)

// Timed reports whether the value is a time: whoever reads one gone by takes
// the lock over, and the key has no TTL. The two keys are no single value.
func (k Kind) Timed() bool { return strings.HasPrefix(string(k), "T-") }

// A Win is how a client learns that its GETSET was the first.
type Win string

const (
	WinExpired Win = "expired" // the value it replaced had gone by, too
	WinEqual   Win = "equal"   // the value it replaced is the one it had read
	WinWatched Win = "watched" // no GETSET: WATCH, MULTI, SET, EXEC
	WinAlways  Win = "always"  // no GETSET: it sets, and two that do it both hold
)

// A Release is how a client gives the lock back.
type Release string

const (
	ReleaseBare     Release = "DEL"          // whoever's it is
	ReleaseLive     Release = "DEL if live"  // if its own deadline has not come
	ReleaseNotEarly Release = "DEL if later" // if the time on the key is its own or a later one: another's, then
	ReleaseCompare  Release = "GET, DEL"     // if the value is its own, or was when it looked
	ReleaseWatched  Release = "WATCH, DEL"   // if the value is its own
	ReleaseScript   Release = "script"       // if the value is its own
	ReleaseNever    Release = "never"        // it waits for the deadline
)

// A TTL is how the key comes to its own.
type TTL string

const (
	TTLNone    TTL = ""        // it has none
	TTLSeconds TTL = "EXPIRE"  // by a second command
	TTLMillis  TTL = "PEXPIRE" // by a second command
	TTLAtomic  TTL = "atomic"  // by the command that makes the key
)

// A Format is how one client writes its lock.
type Format struct {
	Name     string   // "redis-py-2.9"
	About    string   // one line: which client, which versions, what is its own about it
	Kind     Kind     //
	Examples []string // values, as found on a key

	// Name of the key: NAME stands for what the program calls its lock.
	KeyName string

	// Of the T kinds: what is written, and when it has gone by.
	Stamp     Stamp
	Plus      time.Duration // added to the deadline
	Inclusive bool          // gone by when <= now, not only when < now
	Grace     time.Duration // gone by only so much later
	Win       Win

	// Of the K kinds: the owner that is written, and what ends the key. A few of the
	// T kinds have a TTL beside their time.
	Token  Token
	TTL    TTL
	Repair bool // whoever finds no TTL on the key sets one
	Unread bool // nobody reads the value: any other does as well

	Release Release

	_ struct{} // no positional literals
}

// The two keys of the 2-key format: the owner's and the deadline's.
const ownerKey, expireKey = "lock:owner:", "lock:expire:"

// Pair are the two keys of the 2-key format.
func Pair(name string) (owner, deadline string) { return ownerKey + name, expireKey + name }

// PairOf are both keys of the 2-key format, if key is one of them by its name.
func PairOf(key string) (owner, deadline string, ok bool) {
	for _, prefix := range []string{ownerKey, expireKey} {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			owner, deadline = Pair(name)
			return owner, deadline, true
		}
	}
	return "", "", false
}

// Key is the key that the client locks for what the program calls name.
func (f Format) Key(name string) string { return strings.Replace(f.KeyName, "NAME", name, 1) }

// named reports whether key can be this format's, by a prefix or a suffix of its
// own; and false if it has none.
func (f Format) named(key string) bool {
	if f.Kind == TwoKeys && strings.HasPrefix(key, expireKey) {
		return true
	}
	prefix, suffix, _ := strings.Cut(f.KeyName, "NAME")
	return prefix+suffix != "" && len(key) >= len(prefix)+len(suffix) && strings.HasPrefix(key, prefix) && strings.HasSuffix(key, suffix)
}

// ErrUnknown means that there is no format of a name. The error that wraps it
// lists the near ones.
var ErrUnknown = errors.New("setnxlock: there is no such dialect")

// Lookup returns the format of a name; upper case and lower case are the same.
func Lookup(name string) (Format, error) {
	for _, f := range formats {
		if strings.EqualFold(f.Name, name) {
			return f, nil
		}
	}
	return Format{}, fmt.Errorf("%w: %q; near it are %s", ErrUnknown, name, strings.Join(near(name), ", "))
}

// All returns every format, those of a kind together, in the order of the kinds.
func All() []Format { return slices.Clone(formats) }

// near are the names most like name, best first.
func near(name string) []string {
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = f.Name
	}
	slices.SortStableFunc(names, func(a, b string) int { return distance(name, a) - distance(name, b) })
	return names[:5]
}

// distance is how many letters must be put in, left out or replaced, in either
// case, where one left out at the end of b costs little: "redis-py" is near
// "redis-py-2.9".
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	const step, tail = 4, 1
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j * step
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] += step
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost += step
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+step, row[j+1]+step)
		}
	}
	best := row[len(b)]
	for j, d := range row {
		best = min(best, d+(len(b)-j)*tail)
	}
	return best
}
