package compat

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
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

// OwnedToken is NewToken with the holder's name in it, for whoever looks at the key:
// setnxlock:OWNER:RANDOM. Give it to a lock's Options.Token. Clients only compare it, so owner
// may be any text: what is not a letter, a digit or one of "-._~:@/" is written %20, and only the
// first 128 bytes of that are kept. With an owner of "" it is NewToken.
func OwnedToken(owner string) func() string {
	if owner == "" {
		return NewToken
	}
	var b strings.Builder
	for i := range len(owner) {
		part := string(owner[i])
		if c := owner[i]; !plainByte(c) {
			part = fmt.Sprintf("%%%02X", c)
		}
		if b.Len()+len(part) > 128 {
			break
		}
		b.WriteString(part)
	}
	named := "setnxlock:" + b.String() + ":"
	return func() string { return named + NewToken() }
}

// plainByte reports whether c stands in an owner's name as it is: what no shell, no composite
// lock's value and no terminal reads anything into.
func plainByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~:@/", c) >= 0
}
