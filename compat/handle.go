package compat

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"
)

// A Handle names a lock to another process: the key as it stands on the
// server, prefix included, and the token that proves whose it is.
type Handle struct {
	Key   string
	Token string
}

// ErrHandedOver is the cause with which a lock's context ends when the lock
// was given to somebody else.
var ErrHandedOver = errors.New("setnxlock: handed over")

// The first letters of every handle, with the number of its form.
const handlePrefix = "snx1."

// String is the handle in letters, digits, '.', '-' and '_': an argument or a
// variable in any shell. ParseHandle reads it.
func (h Handle) String() string {
	b := binary.AppendUvarint(nil, uint64(len(h.Key)))
	b = append(append(b, h.Key...), h.Token...)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return handlePrefix + base64.RawURLEncoding.EncodeToString(b)
}

// IsHandle tells a handle, or what is left of one, from a token.
func IsHandle(s string) bool { return strings.HasPrefix(s, handlePrefix) }

// ParseHandle reads what Handle.String wrote. It returns ErrInvalid for
// anything else, one that was cut or mistyped included.
func ParseHandle(s string) (Handle, error) {
	bad := fmt.Errorf("%w: %.20q is no handle of a lock, or not all of one", ErrInvalid, s)
	text, ok := strings.CutPrefix(s, handlePrefix)
	if !ok {
		return Handle{}, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 4 {
		return Handle{}, bad
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	n, size := binary.Uvarint(b)
	if crc32.ChecksumIEEE(b) != sum || size <= 0 || n == 0 || n >= uint64(len(b)-size) {
		return Handle{}, bad
	}
	return Handle{Key: string(b[size:][:n]), Token: string(b[size:][n:])}, nil
}

// Handle names the lock to somebody who may release it (Locker.ReleaseHandle),
// or take it over when its holder is gone (Locker.AdoptHandle). With getsetlock
// each extension makes a new one. To give a lock away while it is held, use
// HandOver.
func (l *Lock) Handle() Handle {
	lease := l.current()
	return Handle{Key: lease.Key, Token: lease.Value}
}

// HandOver gives the lock away without releasing it: nothing renews or
// releases it here any more, and its context ends with cause ErrHandedOver.
// Whoever adopts the handle has until Until to do so. It returns ErrLost if the
// lock is held no more, and any other error if it is not known what the key holds.
func (l *Lock) HandOver(ctx context.Context) (Handle, error) {
	l.leave()
	l.op.Lock()
	defer l.op.Unlock()
	if l.over() {
		return Handle{}, l.gone()
	}
	if err := l.learn(ctx); err != nil {
		return Handle{}, err
	}
	l.mu.Lock()
	l.released = true
	l.mu.Unlock()
	l.finish(ErrHandedOver)
	l.k.unkeep(l.current())
	l.k.gone(l)
	return l.Handle(), nil
}

// AdoptHandle is Adopt of the lock that h names.
func (k *Locker) AdoptHandle(ctx context.Context, h Handle, ttl time.Duration) (*Lock, error) {
	start := k.o.Clock.Now()
	if err := k.names(h, ttl); err != nil {
		return nil, err
	}
	return k.adopt(ctx, h.Key, h.Token, ttl, start)
}

// ReleaseHandle is ReleaseToken of the lock that h names.
func (k *Locker) ReleaseHandle(ctx context.Context, h Handle) error {
	if err := k.names(h, time.Second); err != nil {
		return err
	}
	return k.releaseToken(ctx, h.Key, h.Token)
}

// names checks that h names a lock of this Locker's.
func (k *Locker) names(h Handle, ttl time.Duration) error {
	key, ok := strings.CutPrefix(h.Key, k.o.Prefix)
	if !ok {
		return fmt.Errorf("%w: the handle is of %q, which does not begin with %q", ErrInvalid, h.Key, k.o.Prefix)
	}
	_, err := k.valid(key, ttl)
	return err
}
