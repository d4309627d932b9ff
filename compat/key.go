package compat

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/setnxlock/setnxlock/compat/internal/slot"
)

// Aux names an auxiliary key of key: "fence", the counter that gives key's leases their numbers
// (which must never have a TTL: before 2.2 an INCR would start it again at 1), or a temporary one. It begins with the key, so
// that an ACL for a prefix covers it, and hashes to the key's slot, so that on a cluster both
// can stand in one transaction: key:name:{key}, or key:name if key has a hash tag.
func Aux(key, name string) string {
	if !strings.ContainsAny(key, "{}") {
		return key + ":" + name + ":{" + key + "}" // most keys: there is nothing to compute
	}
	_, after, open := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(after, "}")
	switch {
	case open && closed && tag != "":
		return key + ":" + name // key has a tag
	case open && closed: // "{}": nothing is a tag, all of it is hashed
		return key + ":" + name + ":" + suffixFor(key, key+":"+name+":")
	case open: // "a{b": the first brace that closes ends the tag
		return key + ":" + name + ":" + suffixFor(key, after+":"+name+":") + "}"
	}
	// "a}b": the first tag is ours
	return key + ":" + name + ":{" + suffixFor(key, "") + "}"
}

// suffixFor is a number that, behind head, hashes to key's slot. One in 16384 does; head is
// hashed once.
func suffixFor(key, head string) string {
	want, crc := slot.Of(key), slot.CRC(0, head)
	for n := 0; ; n++ {
		if s := strconv.Itoa(n); slot.In(slot.CRC(crc, s)) == want {
			return s
		}
	}
}

// NewToken returns 32 random hexadecimal digits: a value that no other client and no other
// acquisition of ours ever writes.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
