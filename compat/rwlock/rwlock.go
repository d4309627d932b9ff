// Package rwlock is a lock for readers and a writer: any number of readers hold
// a key together, or one writer holds it alone.
//
//	docs := compat.New(pool, rwlock.Read{}, compat.Options{})   // and
//	edit := compat.New(pool, rwlock.Write{}, compat.Options{})  // with the same keys
//
// The writer's token is on the key itself, with its lease for a TTL. The readers are in a sorted
// set beside it, "readers" below (KEY:readers:{KEY}, see compat.Aux), each with the end of its
// lease, in milliseconds, for a score. Each step watches what it depends on:
//
//	read       WATCH key; GET key             a token: a writer has it
//	           MULTI; ZADD readers; EXEC      nil: a writer was faster
//	extend     WATCH key; GET key; ZSCORE     not there: lost
//	           MULTI; ZADD readers; EXEC      nil: look again
//	release    ZREM readers                   0: lost
//
//	write      WATCH key readers; GET key; ZREVRANGE readers 0 0
//	           MULTI; SETEX key; DEL readers; EXEC
//	                                          nil: somebody was faster
//	downgrade  WATCH key; GET key             another's token, or none: lost
//	           MULTI; ZADD readers; DEL key; EXEC
//	extend, release                           as txlock's, under WATCH
//
// Readers never watch what other readers write, so that they don't abort each other. A reader
// that dies is out of the way at the end of its lease, when the next writer sweeps the set; a
// writer, when its key expires.
//
// Who is let in when readers and writers wait for each other, Preference says, and turns.go how. The
// exclusion does not depend on it.
//
// It needs Redis 2.2: before that a ZADD deletes a sorted set that has a TTL, and all readers in
// it, and there is no WATCH. It refuses such a server.
//
// The readers' scores are times, so it needs clocks that agree: a writer whose clock is fast
// takes a reader for dead (rw/skewed-sweep). Options.Margin makes it wait that much longer;
// Options.ServerClock has the server tell the time, from 2.6 on. The writer's lease is the
// server's to end, on every version.
//
// A plain lock on the same key (txlock, setlock) excludes readers and writers while it is held,
// but does not see the readers: it must not be used beside this one.
//
// Sources: the read-write lock of many articles, a mutex around GET, ZADD and SET NX, which is
// PublishedRead and PublishedWrite here; sync.RWMutex for who goes first.
package rwlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// setTTL is the TTL of the readers' set. It is the same for all, and longer than any lease,
// because each client sets it anew without seeing what others set: a shorter one would end the
// leases of those who asked for more.
const setTTL = 24 * time.Hour

// The keys beside the key, all in its slot.
func readersOf(key string) string { return compat.Aux(key, "readers") } // tokens, scored by the ends of their leases
func waitingOf(key string) string { return compat.Aux(key, "waiting") } // writers that wait, by the ends of their words
func queueOf(key string) string   { return compat.Aux(key, "queue") }   // readers that wait, likewise
func nextOf(key string) string    { return compat.Aux(key, "next") }    // readers whose turn it is, likewise
func mutexOf(key string) string   { return compat.Aux(key, "mutex") }   // Inner's

const (
	reader = "r:" // what readers' tokens begin with
	writer = "w:"
)

// at is t as a score.
func at(t time.Time) int64 { return t.UnixMilli() }
