package compat

import (
	"fmt"

	"github.com/setnxlock/setnxlock/compat/internal/handle"
)

// A Handle names a lock to another process. It holds the key as it stands on the server, prefix included, and the
// token, the proof of ownership.
type Handle struct {
	Key   string
	Token string
}

// String writes the handle in letters, digits, '.', '-' and '_', so any shell takes it as an argument or a
// variable. [Handle.UnmarshalText] reads it.
func (h Handle) String() string { return handle.Encode(h.Key, h.Token) }

// MarshalText returns the bytes of [Handle.String].
func (h Handle) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads the text of [Handle.String]. It returns [ErrInvalid] for anything else, also for a handle
// that was cut or mistyped.
func (h *Handle) UnmarshalText(s []byte) error {
	key, token, ok := handle.Decode(string(s))
	if !ok {
		return fmt.Errorf("%w: %.20q is not a handle of a lock, or not all of one", ErrInvalid, s)
	}
	*h = Handle{Key: key, Token: token}
	return nil
}
