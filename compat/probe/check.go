package probe

import (
	"context"
	"errors"
	"fmt"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/locks"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// Check asks a lock whether it is safe on the server that has key. The error is
// [compat.ErrUnsafeServer] if it is proven not to be; [compat.ErrUnanswered] if the connection
// broke each time on a command that the lock needs; otherwise [Try]'s. Scratch keys begin
// with key and are in its slot.
func Check(ctx context.Context, source compat.Source, a protocol.Algorithm, key string, o Options) error {
	check := a.Traits().Check
	if check == nil {
		return nil
	}
	err := Try(ctx, source, key, o, check)
	if errors.Is(err, compat.ErrUnanswered) {
		return fmt.Errorf("%w; if it is a proxy that lacks the command, use %s", err, undemanding().Go)
	}
	return err
}

// undemanding is the lock that needs least of a
func undemanding() locks.Lock {
	list := locks.Preferred()
	return list[len(list)-1]
}
