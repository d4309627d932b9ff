package compat

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/setnxlock/setnxlock/compat/internal/slot"
)

// Aux names an auxiliary key of key: "fence", the counter that gives key's leases their numbers
// (which must never have a TTL: before 2.2 an INCR would start it again at 1), or a temporary one. It begins with the key, so
// that an ACL for a prefix covers it, and hashes to the key's slot, so that on a cluster both
// can stand in one transaction: key:name:{key}, or key:name if key has a hash tag.
func Aux(key, name string) string {
	return slot.Beside(key, name)
}

// NewToken returns 32 random hexadecimal digits: a value that no other client and no other
// acquisition of ours ever writes.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
