package locks

import (
	"context"
	"errors"

	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/server"
)

// Check asks a lock whether it is safe on the server that has key. The error is
// ErrUnsafeServer if it is not; a server that closes the connection on what the
// lock needs is one. Scratch keys are in key's slot and begin with it.
func Check(ctx context.Context, source compat.Source, a compat.Algorithm, key string, o server.Options) error {
	checker, ok := a.(compat.Checker)
	if !ok {
		return nil
	}
	err := server.Try(ctx, source, key, o, checker.Check)
	var unsafe *compat.UnsafeServerError
	if errors.As(err, &unsafe) && unsafe.Use == "" {
		unsafe.Use = undemanding().Go
	}
	return err
}

// undemanding is the lock that needs least of a server.
func undemanding() Lock {
	list := Preferred()
	return list[len(list)-1]
}
