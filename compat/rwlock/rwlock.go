// Package rwlock is a lock for readers and a writer: any number of readers hold
// a key together, or one writer holds it alone.
//
//	docs := compat.New(pool, rwlock.Read{}, compat.Options{})   // and
//	edit := compat.New(pool, rwlock.Write{}, compat.Options{})  // with the same keys
//
// The writer's token is on the key itself, and the key's TTL is its lease. The readers are in a
// sorted set beside it, "readers" below (KEY:readers:{KEY}, see [protocol.Aux]); each reader's score
// is the end of its lease, in milliseconds. Each step watches what it depends on:
//
//	read       WATCH key; GET key             a token: a writer has it
//	           MULTI; ZADD readers; EXEC      nil: a writer was faster
//	extend     WATCH key; GET key; ZSCORE     not there: lost
//	           MULTI; ZADD readers; EXEC      nil: look again
//	release    ZREM readers                   0: lost
//
//	write      WATCH key readers; GET key; ZREVRANGE readers 0 0
//	           MULTI; SETEX key; DEL readers; EXEC
//	                                          nil: another was faster
//	downgrade  WATCH key; GET key             another's token, or none: lost
//	           MULTI; ZADD readers; DEL key; EXEC
//	extend, release                           as txlock's, under WATCH
//
// Readers never watch what other readers write, so they don't abort each other. After a reader has
// died and its lease has ended, the next writer removes it from the set; a writer's key expires.
//
// [Preference] says who is let in when readers and writers wait for each other; turns.go has the
// protocol. Exclusion does not depend on it.
//
// It needs Redis 2.2: before that there is no WATCH, and a ZADD deletes a sorted set that has a
// TTL, with all readers in it. It refuses such a server.
//
// The readers' scores are times, so clocks must agree: a writer whose clock is fast takes a live
// reader for dead (rw/skewed-sweep). With Options.Margin it waits that much longer; with
// Options.ServerClock it goes by the server's time (Redis 2.6). The server ends the writer's lease,
// on every version. A reader's lease lasts a day at most, and a waiter's ticket a second. A client
// whose clock agrees with the server's ignores and removes an entry that ends later: it comes from
// a wrong clock.
//
// Never use a plain lock (txlock, setlock) on the same key: it excludes readers and writers while
// it is held, but does not see the readers.
//
// Sources: the read-write lock of many articles, a mutex around GET, ZADD and SET NX (the races
// rw/bare-mutex, rw/mutex-outrun and others break it); sync.RWMutex for who goes first.
package rwlock

import (
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// setTTL is the TTL of the readers' set. It is the same for all, and longer than any lease,
// because each client sets it anew without seeing what others set: a shorter one would end the
// leases of those who asked for more.
const setTTL = 24 * time.Hour

// The keys beside the key, all in its slot.
func readersOf(key string) string { return protocol.Aux(key, "readers") } // tokens, scored by the ends of their leases
func waitingOf(key string) string { return protocol.Aux(key, "waiting") } // writers that wait, by the ends of their tickets
func queueOf(key string) string   { return protocol.Aux(key, "queue") }   // readers that wait, likewise
func nextOf(key string) string    { return protocol.Aux(key, "next") }    // readers whose turn it is, likewise
func mutexOf(key string) string   { return protocol.Aux(key, "mutex") }   // Inner's

const (
	reader = "r:" // what readers' tokens begin with
	writer = "w:"
)

// at returns t as a score.
func at(t time.Time) int64 { return t.UnixMilli() }
