package compat_test

import (
	"errors"
	"io"
	"testing"

	"github.com/setnxlock/setnxlock/compat"
)

// A Backend that is made of others reads their errors as the engine does.
func TestSettled(t *testing.T) {
	for _, test := range []struct {
		err   error
		known bool
	}{
		{nil, false},
		{io.EOF, false},
		{compat.ErrUnknown, false},
		{compat.ErrHeld, true},
		{&compat.HeldError{Key: "k"}, true},
		{compat.ErrLost, true},
		{compat.ErrAborted, true},
	} {
		why, known := compat.Settled(test.err)
		if why != test.err || known != test.known {
			t.Errorf("Settled(%v): %v, %v; want it and %v", test.err, why, known, test.known)
		}
	}
	marked := compat.NotDone(compat.NotDone(io.EOF))
	if why, known := compat.Settled(marked); why != io.EOF || !known || !errors.Is(marked, io.EOF) { //nolint:errorlint // the very one
		t.Errorf("Settled of what is marked as not done: %v, %v; want EOF, and that it is known", why, known)
	}
}
