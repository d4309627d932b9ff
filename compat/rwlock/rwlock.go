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
//	read      WATCH key; GET key             a token: a writer has it
//	          MULTI; ZADD readers; EXEC      nil: a writer was faster
//	extend    WATCH key; GET key; ZSCORE     not there: lost
//	          MULTI; ZADD readers; EXEC      nil: look again
//	release   ZREM readers                   0: lost
//
//	write     WATCH key readers; GET key; ZREVRANGE readers 0 0
//	          MULTI; SETEX key; DEL readers; EXEC
//	                                         nil: somebody was faster
//	extend, release                          as txlock's, under WATCH
//
// Readers never watch what other readers write, so that they don't abort each other. A reader
// that dies is out of the way at the end of its lease, when the next writer sweeps the set; a
// writer, when its key expires. Preference says who is let in when readers and writers wait for
// each other.
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
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// Options are the same for Read and Write. The zero value works on every server
// since 2.2. All clients of a key should have the same: of those that differ in
// Prefer, Inner, Millis or Margin only fairness suffers; where some have
// ServerClock and some don't, the clocks of the latter must agree with the server's.
type Options struct {
	// Prefer says who goes first. Default: Fair.
	Prefer Preference

	// ServerClock counts the readers' leases by the server's TIME (Redis 2.6
	// and later) instead of the clients' clocks. It costs no round trip.
	ServerClock bool

	// Margin is how much longer than its score says a writer leaves a reader
	// alone, for clocks that disagree. Default: none.
	Margin time.Duration

	// Millis counts the writer's lease in milliseconds (PSETEX, PEXPIRE: Redis
	// 2.6 and later) instead of whole seconds. The readers' are in
	// milliseconds everywhere.
	Millis bool

	// Fence draws a number from INCR in the transaction that lets a reader or
	// a writer in; both draw from one counter.
	Fence bool

	// Inner is a lock that is held around each acquisition, as in the articles.
	// It spares clients that come at the same moment aborted transactions, at
	// the price of three more round trips or so; nothing rests on it, because
	// the transaction sees itself whether it came too late. Default: none, which is faster.
	Inner compat.Algorithm

	// Client names who takes the lock: one flow of work, not a process whose
	// goroutines lock for themselves. A Write then finds that it would wait for
	// a reader that it is itself, and returns ErrUpgrade; a Read ErrDowngrade.
	// Default: no name, and such a wait lasts until the lease ends.
	Client string

	// Token returns the value of the next acquisition, different each time and
	// for each client. nil: compat.NewToken.
	Token func() string
}

// A Preference says who is let in when readers and writers wait for each other.
type Preference string

const (
	// Fair lets nobody starve, as sync.RWMutex does: readers that come after a
	// waiting writer wait for it, and after it has released, the readers that
	// were refused have a second in which to get in before the next writer.
	Fair Preference = ""

	// WritersFirst has readers give way to every writer that waits. Writers
	// that follow each other without a pause starve the readers.
	WritersFirst Preference = "writers first"

	// ReadersFirst lets readers in whenever no writer holds the lock, and
	// those that were refused before the next writer. Readers that overlap
	// without a gap starve the writers.
	ReadersFirst Preference = "readers first"
)

var (
	// ErrUpgrade means that a client that reads asked to write: it would wait
	// for itself, and two that did so for each other. Nothing was done. Release
	// the read lock first, and look again at what was read under it once the
	// write lock is there. It is known by Options.Client.
	ErrUpgrade = fmt.Errorf("%w: a reader can't become the writer: release the read lock first", compat.ErrInvalid)

	// ErrDowngrade means that the client that writes asked to read.
	ErrDowngrade = fmt.Errorf("%w: the writer can't become a reader: release the write lock first", compat.ErrInvalid)
)

// setTTL is the TTL of the sets beside the key. It is the same for all, and
// longer than any lease, because each client sets it anew without seeing what
// others set: a shorter one would end the leases of those who asked for more.
const setTTL = 24 * time.Hour

// In seconds. A waiter looks twice a second, if compat.Options does not say otherwise.
const (
	turn  = 1 // how long readers that were refused have, after a writer has gone, before the next
	grace = 1 // how long the announcement of a writer counts when nobody is in the way any more
)

// The keys beside the key, all in its slot.
func readersOf(key string) string { return compat.Aux(key, "readers") } // tokens, scored by the ends of their leases
func waitingOf(key string) string { return compat.Aux(key, "waiting") } // writers that were refused, by the ends of their patience
func dueOf(key string) string     { return compat.Aux(key, "due") }     // is there: readers were refused
func turnOf(key string) string    { return compat.Aux(key, "turn") }    // is there: it is the readers' turn
func mutexOf(key string) string   { return compat.Aux(key, "mutex") }   // Inner's

const (
	reader = "r:" // what readers' tokens begin with
	writer = "w:"
)

func (o Options) token(role string) string {
	token := compat.NewToken
	if o.Token != nil {
		token = o.Token
	}
	return o.ours(role) + token()
}

// ours is what all tokens of this client begin with. The name is escaped: it
// has no colon, so "a" is not taken for "a:b".
func (o Options) ours(role string) string {
	if o.Client == "" {
		return role
	}
	return role + url.QueryEscape(o.Client) + ":"
}

// mine reports whether token is of this client, in that role.
func (o Options) mine(role, token string) bool {
	return o.Client != "" && strings.HasPrefix(token, o.ours(role))
}

// draws says that l ought to have a fence and has none: it was adopted, or its number was lost
// with the reply.
func (o Options) draws(l compat.Lease) bool { return o.Fence && l.Fence == 0 }

// check returns ErrUnsafeServer if a sorted set with a TTL does not stand up to ZADD here, if EXEC
// runs although a watched key was touched, or if a command that the options ask for is missing.
// It runs them on a scratch key.
func (o Options) check(c *compat.Conn, key string) error {
	const use = "getsetlock.Classic, which lets one reader in at a time"
	scratch := compat.Aux(key, "check:"+compat.NewToken())
	replies, err := c.Exec(compat.Cmd{"ZADD", scratch, 1, "a"}, compat.Cmd{"EXPIRE", scratch, 10}, compat.Cmd{"ZADD", scratch, 2, "b"},
		compat.Cmd{"ZCARD", scratch}, compat.Cmd{"TTL", scratch}, compat.Cmd{"DEL", scratch})
	switch {
	case err != nil:
		return c.Lacks(err, "it does not let us use MULTI and sorted sets", use)
	case replies == nil || replies[3] != int64(2):
		return c.Unsafe("ZADD deletes a sorted set that has a TTL, and the readers in it (mended in 2.2)", use)
	case replies[4] == int64(-1):
		return c.Unsafe("ZADD takes a sorted set's TTL away, so dead readers would stay for ever", use)
	}

	if _, _, err := c.Watch(scratch); err != nil {
		return c.Lacks(err, "it has no WATCH (it came with 2.2), so nobody can be let in safely", use)
	}
	if _, err := c.Do("SETEX", scratch, 10, "touched"); err != nil {
		c.Unwatch()
		return err
	}
	replies, err = c.Exec(compat.Cmd{"DEL", scratch})
	switch {
	case err != nil:
		return err
	case replies != nil:
		return c.Unsafe("EXEC runs although a watched key was touched", use)
	}
	defer c.Do("DEL", scratch) //nolint:errcheck // if the connection is broken it ends by itself
	return o.checkOptions(c, key, scratch)
}

func (o Options) checkOptions(c *compat.Conn, key, scratch string) error {
	if o.Millis {
		if _, err := c.Do("PEXPIRE", scratch, 10000); err != nil {
			return c.Lacks(err, "it counts in whole seconds (milliseconds came with 2.6)", "whole seconds: Options.Millis false")
		}
	}
	if o.ServerClock {
		if _, err := c.Do("TIME"); err != nil {
			return c.Lacks(err, "it does not tell the time (TIME came with 2.6)", "the clients' clocks: Options.ServerClock false")
		}
	}
	if o.Inner != nil {
		if check := o.Inner.Traits().Check; check != nil {
			return check(c, mutexOf(key))
		}
	}
	return nil
}
