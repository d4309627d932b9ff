package rwlock

import (
	"errors"
	"time"

	"github.com/setnxlock/setnxlock/compat/protocol"
)

// innerTTL is how long a client that died inside keeps the inner lock.
const innerTTL = 5 * time.Second

// lockInner takes Options.Inner, if there is one, and returns its release. Should its lease run out in the middle of
// the section (any/paused-holder), the transaction notices that it came too late by itself.
func (o Options) lockInner(c *protocol.Conn, now time.Time, key string) (done func(), err error) {
	if o.Inner == nil {
		return func() {}, nil
	}
	c = protocol.NewConn(c) // not the inner lock is to pin the connection, or to wake others
	l, err := o.Inner.Acquire(c, now, mutexOf(key), innerTTL)
	done = func() { c.Run(o.Inner.Release(l)) } //nolint:errcheck // it ends by itself
	switch {
	case errors.Is(err, protocol.ErrHeld):
		return nil, &protocol.HeldError{Key: key} // for as long as an acquisition takes
	case err != nil:
		done()
		return nil, err
	}
	return done, nil
}
