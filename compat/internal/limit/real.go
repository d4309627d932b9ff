package limit

import (
	"time"

	"github.com/benbjohnson/clock"
)

// Only this file looks at the real clock. The rest of the engine uses the Locker's clock: a test may stop or
// set it. The real clock measures:
//
//   - The limit of a step. It is compared with the deadlines of contexts, and becomes the time limit of reads and writes:
//     the system keeps both. So a step ends also if the Locker's clock stands.
//   - The time of an answer: the server and the network have no other clock. A silent connection gets no new messages, a
//     check goes on as long as answers come, and a Get that hangs is given up.
//   - The age of a connection. Its pool and its server close it by the real clock.
//   - The longest wait of Close and of a caller that gave up: they return, whatever the Locker's clock says.

// Real is the real clock.
var Real = clock.New()

// Now returns the real time.
func Now() time.Time { return time.Now() }

// Since returns the real time since t.
func Since(t time.Time) time.Duration { return time.Since(t) }

// Left returns the real time left until then.
func Left(until time.Time) time.Duration { return time.Until(until) }

// After returns a channel, ready after d of real time.
func After(d time.Duration) <-chan time.Time { return time.After(d) }

// Timer returns a timer of d of real time.
func Timer(d time.Duration) *time.Timer { return time.NewTimer(d) }

// AfterFunc calls f after d of real time.
func AfterFunc(d time.Duration, f func()) *time.Timer { return time.AfterFunc(d, f) }
