package main

import (
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
)

// discard gives back a lock under which nothing has run: --hold keeps none of those.
func (a *app) discard(h *held, signals *signals) {
	if a.hold == 0 {
		a.release(h, signals) //nolint:errcheck // it has said so itself
		return
	}
	ctx, done := signals.context()
	defer done()
	until := h.Until()
	handle, err := h.Detach(ctx)
	if err == nil {
		err = h.locks.ReleaseHandle(ctx, handle)
	}
	if err != nil {
		a.say("the lock on %s could not be released (it ends by itself at %s): %v", named(h.Key()), verdict.Moment(until), sentence(err))
	}
}
