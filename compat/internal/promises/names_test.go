package promises_test

import (
	"context"
	"time"

	"github.com/setnxlock/setnxlock/compat"
)

// What the tests call by names that may change stands here, once.

// errReleased is what an operation on a lock says that we have released ourselves.
var errReleased = compat.ErrReleased

// errTimeout is what a step says whose time limit, Options.Timeout, ran out.
var errTimeout = compat.ErrTimeout

// handoff gives l to a new holder in this process.
func handoff(ctx context.Context, l *compat.Lock, ttl time.Duration) (*compat.Lock, error) {
	return l.Handoff(ctx, ttl)
}

// detach lets l go without releasing it on the server.
func detach(ctx context.Context, l *compat.Lock) (compat.Handle, error) {
	return l.Detach(ctx)
}
