// Package semaphore lets at most N clients hold a key at once: 3 importers, 20 calls to somebody's API.
//
//	jobs := compat.New(pool, semaphore.Lock{Options: semaphore.Options{N: 3}}, compat.Options{})
//	err := jobs.Do(ctx, "import", 30*time.Second, func(ctx context.Context) error { … })
//
// N stands in "limit" below (KEY:limit:{KEY}, see [protocol.Aux]), and beside it are N slots, "1" to "N". Each slot is a token
// lock as any other: txlock's or setlock's, with a TTL of its own. Nothing stands on KEY itself.
//
//	acquire    GET KEY; GET limit; MGET 1 … N  which slots are free
//	           MULTI; …; SETNX limit N; EXPIRE limit 86400; GET limit; EXEC
//	                                           one of them is taken as its own lock does it. GET says N: ours. Else it is released
//	extend     as the slot's lock does it, with EXPIRE limit 86400
//	release    as the slot's lock does it
//	another N  WATCH limit 1 … M; GET limit; MGET 1 … M
//	           MULTI; SETEX limit 86400 N; EXEC  if none of the old M slots is held; nil: another was faster
//
// The free slot is chosen at random. If another client was faster, the next one that was free is tried, each once.
//
// What it promises: at most N leases live at once, whatever clocks, crashes, lost, late and repeated requests do, as long as
// the server keeps its data. That is the slot's lock's own promise, slot by slot, and no clock but the server's counts. The
// slot of a client that died is free after its TTL. A lease lasts a day at most and each sets limit's TTL to a day, so limit
// outlives every holder; all clients of a key hold it by one N, or not at all.
//
// What it does not promise:
//   - It can't stop a holder that pauses past the end of its lease and then writes (any/paused-holder). The fence is for that;
//     it is the slot's, so a storage remembers one number for each slot: see [Slot].
//   - A TryLock may be refused although a slot came free while it looked.
//   - There is no order among those who wait in several processes.
//
// It needs Redis 2.2. Never use a plain lock (txlock, setlock) on the same key: it does not see the holders, and
// while it is held no slot can be taken ([protocol.ErrForeign]). A lock with the name of a slot is refused: see
// Locker.TryLock. The exception is a KEY with a hash tag, {app}:q: a program may give a lock of its own the name
// {app}:q:3, and takes that slot while it holds the lock.
//
// Sources: consul lock -n, for what it is good for; Redis in Action, 6.3 (a sorted set, swept and ranked by the clients' clocks:
// semaphore/slow-clock) and redis-semaphore (a list of tokens: semaphore/lost-token), for what goes wrong.
package semaphore

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/txlock"
)

// Most is the largest N.
const Most = 1000

// limitTTL is the TTL of limit, and the longest lease.
const limitTTL = 24 * time.Hour

// Lock is the semaphore. An acquisition costs one round trip more than that of a slot's lock, which is the look at what is
// free, and a refusal two; extension and release cost what they cost there.
type Lock struct{ Options }

// Options are a semaphore's. All clients of a key should use the same N.
type Options struct {
	// N is how many clients may hold a key at once, from 1 to [Most]. A client with another N than those that hold the key is
	// refused, with a [LimitError], until none of them does.
	N int

	// Slot makes the lock of one slot. It must be crash-safe, draw no fence, and take its values from token:
	// txlock.Guarded, txlock.Renamed, or one of setlock. nil: txlock.Guarded, by Millis.
	//
	//	func(token func() string) protocol.Algorithm { return setlock.Lua{Options: setlock.Options{Token: token}} }
	Slot func(token func() string) protocol.Algorithm

	// Millis counts TTLs in milliseconds (Redis 2.6 and later) instead of whole seconds: those that are read, and the slots' if
	// Slot is nil.
	Millis bool

	// Fence draws a fence by INCR in the transaction that takes the slot. It is the slot's: it grows with every acquisition of
	// that slot. A refused attempt may use up a number.
	Fence bool

	// Pick returns which of so many free slots is tried first, from 0. nil: one at random.
	Pick func(free int) int

	// Token returns the unique part of the next acquisition's value. nil: [protocol.NewToken].
	Token func() string
}

// Slot returns the slot's number in a lease's value, or a lock's token: the storage that checks fences remembers one
// number for each. 0: value is no semaphore's.
func Slot(value string) int {
	digits, _, ok := strings.Cut(value, ":")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 || n > Most || strconv.Itoa(n) != digits {
		return 0
	}
	return n
}

func limitOf(key string) string       { return protocol.Aux(key, "limit") }
func slotOf(key string, n int) string { return protocol.Aux(key, strconv.Itoa(n)) }

// of returns the lock of the n-th slot; its values name the slot.
func (o Options) of(n int, token func() string) protocol.Algorithm {
	named := func() string { return strconv.Itoa(n) + ":" + token() }
	if o.Slot == nil {
		return txlock.Guarded{Options: txlock.Options{Millis: o.Millis, Token: named}}
	}
	return o.Slot(named)
}

func (o Options) token() string {
	if o.Token != nil {
		return o.Token()
	}
	return protocol.NewToken()
}

// first chooses the slot to try first among the free ones.
func (o Options) first(free int) int {
	if o.Pick != nil {
		return o.Pick(free)
	}
	return rand.IntN(free)
}

// unit returns the unit of the TTLs.
func (o Options) unit() time.Duration {
	if o.Millis {
		return time.Millisecond
	}
	return time.Second
}

// valid returns ErrInvalid for an N, or a ttl, of no semaphore.
func (o Options) valid(ttl time.Duration) error {
	switch {
	case o.N < 1 || o.N > Most:
		return fmt.Errorf("%w: at most %d holders: it must be 1 to %d", protocol.ErrInvalid, o.N, Most)
	case ttl > limitTTL:
		return fmt.Errorf("%w: a ttl of %v is longer than a semaphore's may be, %v", protocol.ErrInvalid, ttl, limitTTL)
	}
	return nil
}

// keeps returns the command by which limit outlives a lease.
func keeps(key string) protocol.Cmd {
	return protocol.Cmd{"EXPIRE", limitOf(key), int64(limitTTL / time.Second)}
}

// A LimitError is the refusal of a client by others that hold the key by another limit. It is [protocol.ErrHeld], and a
// [*protocol.HeldError] whose Until is the end of the last of their leases.
type LimitError struct {
	Held  *protocol.HeldError
	Limit int // theirs; 0: there was none any more
	Asked int // ours
}

func (e *LimitError) Error() string {
	if e.Limit == 0 {
		return fmt.Sprintf("setnxlock: the limit beside %q is gone, and was to be %d", e.Held.Key, e.Asked)
	}
	return fmt.Sprintf("%v: its limit is %d, not %d, as long as a slot is held", e.Held, e.Limit, e.Asked)
}

func (e *LimitError) Unwrap() error { return e.Held }
