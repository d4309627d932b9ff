package compat

import (
	"time"

	"github.com/gomodule/redigo/redis"
)

// A Keeper is an Algorithm that can go on watching the key after it has taken
// it: as long as the connection lives and EXEC does not abort, nobody has
// touched the key since, and there is nothing left to compare. Release and Extend
// then take one round trip instead of two. The Locker uses it for as many locks as
// Options.MaxPinned says.
//
// kept says that c is under a WATCH that was begun before a GET found the value
// of the lease that is returned on the key, both in one write and behind everything in it
// that touches the key. A WATCH that nothing proves guards nobody knows what (tx/unverified-watch).
// Where kept is false, whatever else is returned, c may be under a WATCH all the
// same, and whoever called ends it.
//
// An EXEC that was aborted, by somebody who touched the key and perhaps no more,
// is no refusal: ExtendKept and ReleaseKept then compare, over the same
// connection, as Extend and Release do. What an error says of the outcome it
// says as Algorithm's errors do.
type Keeper interface {
	Algorithm

	// AcquireKept is Acquire, and begins to watch in the last write.
	AcquireKept(c redis.Conn, now time.Time, key string, ttl time.Duration) (l Lease, kept bool, err error)

	// ExtendKept is Extend over the connection that has watched since l was
	// obtained. It touches the key that it watches, and so begins anew, in the same write.
	ExtendKept(c redis.Conn, now time.Time, l Lease, ttl time.Duration) (next Lease, kept bool, err error)

	// ReleaseKept is Release over that connection. It leaves no WATCH.
	ReleaseKept(c redis.Conn, now time.Time, l Lease) error
}

// A Sight is what a write that ended with WATCH key; GET key saw of the key; or
// one that ended with GET key alone, which keeps nothing.
type Sight struct{ watch, get any }

// Seen is the Sight of a write's replies.
func Seen(replies []any) Sight { return Sight{replies[len(replies)-2], replies[len(replies)-1]} }

// Keeps reports whether the connection watches the key since it held l's value.
func (s Sight) Keeps(l Lease) bool { return s.watch == "OK" && s.Holds(l.Value) }

// Holds reports whether the key held value.
func (s Sight) Holds(value string) bool {
	switch v := s.get.(type) {
	case []byte:
		return string(v) == value
	case string:
		return v == value
	}
	return false
}

// Denies reports whether the key was seen, and did not hold value.
func (s Sight) Denies(value string) bool {
	_, refused := s.get.(redis.Error)
	return !refused && !s.Holds(value)
}

// Value is what the key held; exists is false if there was no such key.
// The error is ErrForeign if it is no string, or the server's refusal.
func (s Sight) Value(key string) (value string, exists bool, err error) {
	if e, refused := s.watch.(redis.Error); refused {
		return "", false, e
	}
	value, err = redis.String(s.get, nil)
	if err == redis.ErrNil {
		return "", false, nil
	}
	return value, err == nil, Foreign(key, err)
}

// Refused is the error of an attempt on key that was refused: a *HeldError with
// the value that was seen, or ErrForeign if the key is no string.
func (s Sight) Refused(key string) error {
	value, _, err := s.Value(key)
	if err != nil {
		return err
	}
	return &HeldError{Key: key, Value: value}
}

// ExecAndWatch is Exec, and in the same write WATCH key; GET key.
func ExecAndWatch(c redis.Conn, key string, cmds ...Cmd) (replies []any, s Sight, err error) {
	w, k := begin(c, arguments(cmds)+2), any(key)
	w.transaction(cmds)
	w.send(Cmd{"WATCH", k})
	w.send(Cmd{"GET", k})
	all, err := w.replies()
	if err != nil {
		return nil, s, err
	}
	replies, err = Executed(c, all[:len(all)-2])
	return replies, Seen(all), err
}

// TakeAndWatch runs take, a command that takes its first argument, l.Key, and in the same write WATCH and
// GET. With draw a number is drawn for l, in one MULTI with take. It returns
// take's reply.
func TakeAndWatch(c redis.Conn, l *Lease, draw bool, take Cmd) (reply any, s Sight, err error) {
	if draw {
		replies, s, err := ExecAndWatch(c, l.Key, take, Cmd{"INCR", FenceKey(l.Key)})
		if err == nil && replies == nil { // nothing was watched; but if EXEC says so, it did not run
			err = ErrAborted
		}
		if err != nil {
			return nil, s, err
		}
		l.Fence = replies[1].(int64)
		return replies[0], s, nil
	}
	k := take[1] // l.Key
	replies, err := Pipe(c, take, Cmd{"WATCH", k}, Cmd{"GET", k})
	if err != nil {
		return nil, s, err
	}
	return replies[0], Seen(replies), first(replies[:1], nil)
}

// IfKept is IfHolds over a connection that has watched l.Key since it held
// l.Value, and next is what the key holds after cmds. One round trip:
//
//	MULTI; cmds…; EXEC; WATCH key; GET key
//
// nil, and l's value seen behind it: touched, and ours for all that; tried
// again, which compares, for the WATCH is new and the value is known.
func IfKept(c redis.Conn, l, next Lease, cmds ...Cmd) (replies []any, kept bool, err error) {
	for range Aborts {
		replies, s, err := ExecAndWatch(c, l.Key, cmds...)
		switch {
		case err != nil:
			return nil, false, err
		case replies != nil && s.Denies(next.Value):
			return nil, false, ErrLost // to somebody who came between EXEC and WATCH
		case replies != nil:
			return replies, s.Keeps(next), nil
		case s.Keeps(l):
			continue
		case s.watch != "OK":
			replies, err = IfHolds(c, l, cmds...)
			return replies, false, err
		}
		if _, _, err := s.Value(l.Key); err != nil {
			return nil, false, err
		}
		return nil, false, ErrLost
	}
	return nil, false, ErrAborted
}

// ExtendIfKept is ExtendIfHolds over a connection that has watched l.Key since
// it held l.Value.
func ExtendIfKept(c redis.Conn, now time.Time, l Lease, ttl time.Duration, expire Cmd, draw bool) (Lease, bool, error) {
	if !now.Before(l.Until) {
		return l, false, ErrLost
	}
	cmds := []Cmd{expire}
	if draw {
		cmds = append(cmds, Cmd{"INCR", FenceKey(l.Key)})
	}
	replies, kept, err := IfKept(c, l, l, cmds...)
	if err != nil {
		return l, false, err
	}
	l, err = extended(l, now, ttl, replies)
	return l, kept && err == nil, err
}

// ReleaseIfKept is ReleaseIfHolds over such a connection.
//
//	MULTI; EXISTS key; DEL key; EXEC   nil: somebody touched the key
//
// EXISTS reaps a key that has expired unnoticed: a DEL alone would count it before Redis 2.8.
func ReleaseIfKept(c redis.Conn, l Lease) error {
	k := any(l.Key)
	replies, err := Exec(c, Cmd{"EXISTS", k}, Cmd{"DEL", k})
	switch {
	case err != nil:
		return err
	case replies == nil:
		return ReleaseIfHolds(c, l)
	case replies[0] == int64(0):
		return ErrLost
	}
	return nil
}
