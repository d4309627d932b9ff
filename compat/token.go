package compat

import (
	"crypto/rand"
	"encoding/hex"
)

// NewToken returns 32 random hexadecimal digits: a value that no other client
// and no other acquisition of ours ever writes.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
