package protocol

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/setnxlock/setnxlock/compat/internal/slot"
)

// Aux names a key beside key: a temporary key, or "fence", the counter of key's fences. The counter must never
// have a TTL: before Redis 2.2 an INCR would start it again at 1.
//
// The name is key:name:{key}, or key:name if key has a hash tag. It begins with key: an ACL for a prefix covers
// it. It hashes to key's slot: on a cluster both can be in one transaction. A Locker takes no lock on a name
// that a lock of this project keeps beside another: see Locker.TryLock.
func Aux(key, name string) string {
	return slot.Beside(key, name)
}

// NewToken returns 32 random hexadecimal digits (128 bits). No other client, and no other acquisition of ours,
// writes the same value.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
