package compat_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// What an error leaves open is judged in one place.
func TestOutcomeOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want protocol.Outcome
	}{
		{nil, protocol.Done},
		{io.EOF, protocol.Unknown},
		{os.ErrDeadlineExceeded, protocol.Unknown},
		{context.Canceled, protocol.Unknown},
		{net.ErrClosed, protocol.Unknown},
		{redis.Error("NOPERM this user has no permissions"), protocol.Unknown}, // of several commands another may have run
		{protocol.ErrTimeout, protocol.Unknown},
		{protocol.ErrUnknown, protocol.Unknown},
		{&protocol.UnknownError{Err: protocol.ErrHeld}, protocol.Unknown},
		{protocol.ErrHeld, protocol.Refused},
		{&protocol.HeldError{Key: "k"}, protocol.Refused},
		{protocol.ErrLost, protocol.Refused},
		{protocol.ErrForeign, protocol.Refused},
		{protocol.ErrAborted, protocol.Refused},
		{protocol.ErrInvalid, protocol.Refused},
		{errors.ErrUnsupported, protocol.Refused},
		{&protocol.UnsafeServerError{}, protocol.Refused},
		{fmt.Errorf("in between: %w", protocol.ErrLost), protocol.Refused},
		{protocol.NotSent.Mark(io.EOF), protocol.NotSent},
		{protocol.NotSent.Mark(protocol.NotSent.Mark(protocol.ErrHeld)), protocol.NotSent},
		{fmt.Errorf("in between: %w", protocol.NotSent.Mark(io.EOF)), protocol.NotSent},
	} {
		if got := protocol.OutcomeOf(test.err); got != test.want {
			t.Errorf("OutcomeOf(%v) is %v, want %v", test.err, got, test.want)
		}
	}
	if err := protocol.NotSent.Mark(io.EOF); !errors.Is(err, io.EOF) {
		t.Errorf("%v hides what it marks", err)
	}
}
