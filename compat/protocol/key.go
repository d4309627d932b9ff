package protocol

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/setnxlock/setnxlock/compat/internal/slot"
)

// Aux names an auxiliary key of key: a temporary one, or "fence", the counter of key's fences. (The
// counter must never have a TTL: before Redis 2.2 an INCR would start it again at 1.) The name
// begins with the key, so an ACL for a prefix covers it, and it hashes to the key's slot, so on a
// cluster both can be in one transaction: key:name:{key}, or key:name if key has a hash tag. A Locker
// takes no lock on a name that a lock of this project keeps beside another: see Locker.TryLock.
func Aux(key, name string) string {
	return slot.Beside(key, name)
}

// NewToken returns 32 random hexadecimal digits (128 bits): a value that no other client and no
// other acquisition of ours writes.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
