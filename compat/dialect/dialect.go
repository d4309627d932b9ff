// Package dialect describes how the clients of other languages write their locks: the value's
// grammar, the margin they add, when they take a lock over, how they release it, and how they name
// the key. It is data: it sends nothing.
//
//	f, err := dialect.Lookup("redis-py-2.9")
//	f.Key("report")                          "report": the key that this client locks
//	until, owner, ok := f.Stamp.Parse(value) the complete value, or not ok
//	dialect.Recognise(key, value, ttl, now)  what a value can be, and what is wrong with it
//
// Package getsetlock has the locks whose value is a timestamp (the T kinds). Package txlock has
// those whose value is an owner and whose lease is the key's TTL (the K kinds).
//
// A fleet is many copies of one client. Two fleets exclude or disturb each other only on the same
// key. Most clients add their own prefix to the key, so only those without one meet others.
//
// Sources: the clients' source code, at the versions that each Format names. Not supported:
// redis_getlock, which puts float seconds into a JSON text.
package dialect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Kind is the kind of value on the key: formats of one kind can read each other's values.
type Kind string

const (
	Seconds      Kind = "T-s"       // integer seconds
	FloatSeconds Kind = "T-f"       // seconds with a fraction
	Millis       Kind = "T-ms"      // integer milliseconds
	Nanos        Kind = "T-ns"      // integer nanoseconds
	OwnedSeconds Kind = "T-s-sfx"   // seconds, then an owner
	OwnedMillis  Kind = "T-uuid-ms" // an owner, then milliseconds
	BinSeconds   Kind = "T-bin"     // eight raw bytes of seconds
	InAction     Kind = "K-ria"     // a dashed UUID; a client that finds no TTL sets one
	Python       Kind = "K-py"      // 32 hexadecimal digits
	Owned        Kind = "K-owner"   // a text that names the owner
	Scripted     Kind = "K-lua"     // set together with its TTL by a script or by SET NX PX
	Flag         Kind = "K-flag"    // the same for every holder
	Watched      Kind = "K-watch"   // set together with its TTL under WATCH
	TwoKeys      Kind = "2-key"     // an owner on one key, seconds on another
	Hash         Kind = "K-hash"    // no string: a hash with one field for each holder
	SortedSet    Kind = "K-zset"    // no string: a sorted set of the holders and the ends of their leases
)

// Timed reports whether the value is a timestamp: a client that reads an expired one takes the lock over, and the key
// has no TTL. It is false for TwoKeys, whose lock is not a single value.
func (k Kind) Timed() bool { return strings.HasPrefix(string(k), "T-") }

// A Win is how a client learns that its takeover was the first.
type Win string

const (
	WinExpired Win = "expired" // the value that it replaced had expired, too
	WinEqual   Win = "equal"   // the value that it replaced is the one that it had read
	WinWatched Win = "watched" // no GETSET: WATCH, MULTI, SET, EXEC
	WinAlways  Win = "always"  // no GETSET: it sets, and two clients that do so both hold the lock
)

// A Release is how a client releases the lock.
type Release string

const (
	ReleaseBare     Release = "DEL"          // without comparing
	ReleaseLive     Release = "DEL if live"  // if its own deadline has not passed
	ReleaseNotEarly Release = "DEL if later" // if the timestamp on the key is its own or a later one, which is another client's
	ReleaseCompare  Release = "GET, DEL"     // if the value was its own when it read it
	ReleaseWatched  Release = "WATCH, DEL"   // if the value is its own
	ReleaseScript   Release = "script"       // if the value is its own
	ReleaseNever    Release = "never"        // it waits for the deadline
)

// A TTL is how the key gets its TTL.
type TTL string

const (
	TTLNone    TTL = ""        // it has none
	TTLSeconds TTL = "EXPIRE"  // by a second command
	TTLMillis  TTL = "PEXPIRE" // by a second command
	TTLAtomic  TTL = "atomic"  // by the command that creates the key, or by the script
)

// A Format is how one client writes its lock.
type Format struct {
	Name     string   // "redis-py-2.9"
	About    string   // one line: which client, which versions, what is special about it
	Kind     Kind     //
	Examples []string // values, as found on a key

	// Name of the key: NAME stands for the program's name for its lock.
	KeyName string

	// Of the T kinds: what is written, and when it has expired.
	Stamp     Stamp
	Plus      time.Duration // added to the deadline
	Inclusive bool          // expired when <= now, not only when < now
	Grace     time.Duration // expired only this much later
	Win       Win

	// Of the K kinds: the owner that is written, and what makes the key expire. A few of the T
	// kinds also have a TTL.
	Token   Token
	TTL     TTL
	Endless bool // its user can ask for a lock without a TTL
	Repair  bool // a client that finds no TTL on the key sets one
	Unread  bool // no client reads the value: any other will do

	// Signal is the list on which its waiters wait for a release, NAME as in KeyName; "" if they ask
	// again by themselves. A release that pushes nothing to it leaves them waiting.
	Signal string

	Release Release

	_ struct{} // no positional literals
}

// The two keys of the 2-key format: the owner's and the deadline's.
const ownerKey, expireKey = "lock:owner:", "lock:expire:"

// Pair returns the two keys of the 2-key format.
func Pair(name string) (owner, deadline string) { return ownerKey + name, expireKey + name }

// PairOf returns both keys of the 2-key format if key has the name of one of them.
func PairOf(key string) (owner, deadline string, ok bool) {
	for _, prefix := range []string{ownerKey, expireKey} {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			owner, deadline = Pair(name)
			return owner, deadline, true
		}
	}
	return "", "", false
}

// Key returns the client's key for the lock called name.
func (f Format) Key(name string) string { return strings.Replace(f.KeyName, "NAME", name, 1) }

// Beside returns the wake-up list of the clients waiting for key; "" if there is none.
func (f Format) Beside(key string) string {
	before, after, _ := strings.Cut(f.KeyName, "NAME")
	name, begins := strings.CutPrefix(key, before)
	name, ends := strings.CutSuffix(name, after)
	if f.Signal == "" || !begins || !ends {
		return ""
	}
	return strings.Replace(f.Signal, "NAME", name, 1)
}

// Bounded reports whether every lock of its clients has a TTL, whatever their users ask for. If one has none, a client
// died between two commands, or another client removed the TTL.
func (f Format) Bounded() bool { return f.TTL != TTLNone && !f.Endless }

// Names reports whether the client can have made a key of this name. It is true for every key if
// the client adds nothing to the program's names.
func (f Format) Names(key string) bool { return f.raw() || f.named(key) }

// raw reports whether the client adds nothing to the program's name for its lock: any key can be
// its.
func (f Format) raw() bool { return f.KeyName == "NAME" }

// telling reports whether the names of its keys say more than "lock": a key of such a name is
// hardly another client's.
func (f Format) telling() bool {
	text := strings.Replace(f.KeyName, "NAME", "", 1)
	switch strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return -1
	}, text) {
	case "", "lock", "mutex":
		return false
	}
	return true
}

// named reports whether key has this format's prefix or suffix. It is false for a format without
// one.
func (f Format) named(key string) bool {
	if f.Kind == TwoKeys && strings.HasPrefix(key, expireKey) {
		return true
	}
	prefix, suffix, _ := strings.Cut(f.KeyName, "NAME")
	return !f.raw() && len(key) >= len(prefix)+len(suffix) && strings.HasPrefix(key, prefix) && strings.HasSuffix(key, suffix)
}

// ErrUnknown means that no format has this name. The error that wraps it lists similar names.
var ErrUnknown = errors.New("setnxlock: no such dialect")

// ErrUnsupported means that the clients of this name are known, and that no lock of this module can
// share a key with them. The error that wraps it says why.
var ErrUnsupported = errors.New("setnxlock: this dialect can't be shared")

// refused are the clients whose locks are no strings, with the reason why ours do not join them.
var refused = [...]struct{ client, why string }{
	{SidekiqUnique, "its locks are hashes and lists beside a digest, which its own scripts keep. Give it keys of its own"},
	{RubySemaphore, "its locks are lists and hashes, which its waiters wait on. Give it keys of its own"},
	{BookSemaphore, "its semaphores are sorted sets, which each client sweeps by its own clock. Give it keys of its own"},
	{NodeSemaphore, "its semaphores are sorted sets with a member for each holder. Give it keys of its own"},
	{Symfony, "its locks are sorted sets, with a member for each holder: its scripts refuse the string that a lock of ours is, and ours the set. Both exclude each other, but none can wait for the other, or release it"},
	{Redisson, "its locks are hashes, with a field for each holder: it throws at the string that a lock of ours is, and renews and releases by its own scripts. Give it keys of its own, or let it and ours both guard the resource with a third lock"},
}

// Lookup returns the format of a name, ignoring case. The error is ErrUnknown, or ErrUnsupported for
// Redisson and others whose locks are no strings.
func Lookup(name string) (Format, error) {
	for _, r := range refused {
		if strings.EqualFold(r.client, name) {
			return Format{}, fmt.Errorf("%w: %s: %s", ErrUnsupported, r.client, r.why)
		}
	}
	for _, f := range formats() {
		if strings.EqualFold(f.Name, name) {
			return f, nil
		}
	}
	return Format{}, unknown(name)
}

// unknown is ErrUnknown of a name. It looks for similar names only when its text is read: a bridge
// asks about each dialect, and most names are nobody's.
type unknown string

func (u unknown) Error() string {
	return fmt.Sprintf("%v: %q; near it are %s", ErrUnknown, string(u), strings.Join(near(string(u)), ", "))
}

func (u unknown) Unwrap() error { return ErrUnknown }

// All returns every format, grouped by kind, in the order of the kinds.
func All() []Format { return slices.Clone(formats()) }

// near returns the most similar names, best first.
func near(name string) []string {
	names := make([]string, len(formats()))
	for i, f := range formats() {
		names[i] = f.Name
	}
	slices.SortStableFunc(names, func(a, b string) int { return distance(name, a) - distance(name, b) })
	return names[:5]
}

// distance returns how many letters must be inserted, deleted or replaced, ignoring case. Letters
// missing at the end cost little: "redis-py" is near "redis-py-2.9".
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
