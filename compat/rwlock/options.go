package rwlock

import (
	"net/url"
	"strings"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Options are the same for Read and Write. The zero value works on every server since 2.2. All
// clients of a key should use the same. If they differ in Prefer, Inner, Millis or Margin, only
// fairness suffers. If only some use ServerClock, the clocks of the others must agree with the
// server's.
type Options struct {
	// Prefer says who goes first. Default: Fair.
	Prefer Preference

	// ServerClock makes readers' leases count by the server's TIME (Redis 2.6 and later) instead of
	// the clients' clocks. It costs no round trip.
	ServerClock bool

	// Margin is how long after the end of a reader's lease a writer waits before it removes the
	// reader, for clocks that disagree. Default: none.
	Margin time.Duration

	// Millis counts the writer's lease in milliseconds (PSETEX, PEXPIRE: Redis
	// 2.6 and later) instead of whole seconds. The readers' are in
	// milliseconds everywhere.
	Millis bool

	// Fence draws a fence by INCR in the transaction that lets a reader or a writer in; both draw
	// from one counter.
	Fence bool

	// Inner is a lock that is held around each acquisition, as in the articles. It spares clients
	// that come at the same moment aborted transactions, for about three more round trips. Safety
	// does not depend on it: a transaction that comes too late does nothing. Default: none, which
	// is faster.
	Inner protocol.Algorithm

	// Client names the client that takes the lock: one flow of work, not a process in which several
	// goroutines take locks. When a Write would then wait for its own reader, it returns
	// [ErrUpgrade], and a Read that would wait for its own writer [ErrDowngrade]. Default: no name;
	// such a wait lasts until the lease ends.
	Client string

	// Token returns the value of the next acquisition, unique to it. nil: [protocol.NewToken].
	Token func() string
}

// A Preference says who is let in when readers and writers wait for each other. Clients in
// [compat.Locker.Lock] or Do wait; a TryLock waits for nobody, and nobody waits for it.
type Preference string

const (
	// Fair lets nobody starve, as sync.RWMutex does: readers that come after a
	// waiting writer wait for it, and when a writer goes, the readers that wait
	// then go in before the next writer.
	Fair Preference = ""

	// WritersFirst has readers give way to every writer that waits. Writers
	// that follow each other without a pause starve the readers.
	WritersFirst Preference = "writers first"

	// ReadersFirst lets readers in whenever no writer holds the lock, and
	// those that wait before the next writer. Readers that overlap without a
	// gap starve the writers (rw/starved-writer).
	ReadersFirst Preference = "readers first"
)

func (o Options) token(role string) string {
	token := protocol.NewToken
	if o.Token != nil {
		token = o.Token
	}
	return o.ours(role) + token()
}

// ours returns the beginning of all tokens of this client. The name is escaped: it has no colon, so "a" is not taken
// for "a:b".
func (o Options) ours(role string) string {
	if o.Client == "" {
		return role
	}
	return role + url.QueryEscape(o.Client) + ":"
}

// mine reports whether token is of this client, in this role.
func (o Options) mine(role, token string) bool {
	return o.Client != "" && strings.HasPrefix(token, o.ours(role))
}

// draws reports whether l lacks the fence it ought to have: it was adopted, or its number was lost with the reply.
func (o Options) draws(l protocol.Lease) bool { return o.Fence && l.Fence == 0 }

func (o Options) unit() time.Duration {
	if o.Millis {
		return time.Millisecond
	}
	return time.Second
}
