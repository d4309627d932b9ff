package limit

import (
	"time"

	"github.com/benbjohnson/clock"
)

// This file alone looks at the real clock; everything else in the engine goes by a Locker's own, which a test may have
// stand, or set. Here is what can't:
//
//   - The limit of a step. It is compared with the deadlines of contexts, and becomes the time limit of reads and writes:
//     the system keeps both. So a step ends also if the Locker's clock stands.
//   - How long an answer takes: the server and the network have no other clock. A connection that is silent gets no new
//     messages, a check goes on as long as answers come, and a Get that hangs is given up.
//   - The age of a connection. Its pool and its server close it by theirs.
//   - What Close and a caller that gave up wait for at most: they return, whatever the Locker's clock says.

// Real is the clock of what is limited so, whatever a Locker's own is.
var Real = clock.New()

// Now is when a step, a read, a connection or a wait for an answer begins.
func Now() time.Time { return time.Now() }

// Since is for how long that has gone on.
func Since(t time.Time) time.Duration { return time.Since(t) }

// Left is how long it may go on.
func Left(until time.Time) time.Duration { return time.Until(until) }

// After is a channel that is ready when it has gone on for long enough.
func After(d time.Duration) <-chan time.Time { return time.After(d) }

// Timer is After for what may end sooner.
func Timer(d time.Duration) *time.Timer { return time.NewTimer(d) }

// AfterFunc calls f then: what was limited ends, or is looked at.
func AfterFunc(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }
