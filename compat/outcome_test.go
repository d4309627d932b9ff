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
	"github.com/setnxlock/setnxlock/compat"
)

// What an error leaves open is judged in one place.
func TestOutcomeOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want compat.Outcome
	}{
		{nil, compat.Done},
		{io.EOF, compat.Unknown},
		{os.ErrDeadlineExceeded, compat.Unknown},
		{context.Canceled, compat.Unknown},
		{net.ErrClosed, compat.Unknown},
		{redis.Error("NOPERM this user has no permissions"), compat.Unknown}, // of several commands another may have run
		{compat.ErrTimeout, compat.Unknown},
		{compat.ErrUnknown, compat.Unknown},
		{&compat.UnknownError{Err: compat.ErrHeld}, compat.Unknown},
		{compat.ErrHeld, compat.Refused},
		{&compat.HeldError{Key: "k"}, compat.Refused},
		{compat.ErrLost, compat.Refused},
		{compat.ErrForeign, compat.Refused},
		{compat.ErrAborted, compat.Refused},
		{compat.ErrInvalid, compat.Refused},
		{errors.ErrUnsupported, compat.Refused},
		{&compat.UnsafeServerError{}, compat.Refused},
		{fmt.Errorf("in between: %w", compat.ErrLost), compat.Refused},
		{compat.NotSent.Mark(io.EOF), compat.NotSent},
		{compat.NotSent.Mark(compat.NotSent.Mark(compat.ErrHeld)), compat.NotSent},
		{fmt.Errorf("in between: %w", compat.NotSent.Mark(io.EOF)), compat.NotSent},
	} {
		if got := compat.OutcomeOf(test.err); got != test.want {
			t.Errorf("OutcomeOf(%v) is %v, want %v", test.err, got, test.want)
		}
	}
	if err := compat.NotSent.Mark(io.EOF); !errors.Is(err, io.EOF) {
		t.Errorf("%v hides what it marks", err)
	}
}
