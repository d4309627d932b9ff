package oneline

import (
	"errors"
	"io"
	"os"
	"testing"
)

func TestJoin(t *testing.T) {
	if err := Join(nil, nil); err != nil {
		t.Errorf("of no error: %v", err)
	}
	if err := Join(nil, io.EOF); err != io.EOF {
		t.Errorf("of one: %v", err)
	}
	err := Join(io.EOF, nil, os.ErrClosed)
	if err.Error() != "EOF; file already closed" || !errors.Is(err, io.EOF) || !errors.Is(err, os.ErrClosed) {
		t.Errorf("of two: %q", err)
	}
}
