package dialect

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// OwnedToken makes tokens that name their holder, for people who look at the key:
// setnxlock:OWNER:RANDOM. Give it to a lock's Options.Token; locks.Options and auto.Options have a
// field for it. Clients only compare a token, so owner may be any text: what is not a letter, a
// digit or one of "-._~:@/" is written %20, and only the first 128 bytes of that are kept. The last
// 32 digits are random, as in any token. If owner is "", the token is only these.
func OwnedToken(owner string) func() string {
	if owner == "" {
		return Random
	}
	var b strings.Builder
	for i := range len(owner) {
		part := owner[i : i+1]
		if !plain(owner[i]) {
			part = fmt.Sprintf("%%%02X", owner[i])
		}
		if b.Len()+len(part) > 128 {
			break
		}
		b.WriteString(part)
	}
	named := "setnxlock:" + b.String() + ":"
	return func() string { return named + Random() }
}

// plain reports whether c stands in an owner's name as it is: what no shell, no terminal and no
// lock made of several reads anything into.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~:@/", c) >= 0
}

// owned is what OwnedToken writes, as it stands on a key: rwlock puts a letter before it, and perhaps
// its client's name.
var owned = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[rw]:(?:[^:]*:)?)?setnxlock:(.+):[0-9a-f]{32}$`)
})

// OwnerOf returns the owner that a token of OwnedToken names.
func OwnerOf(token string) (owner string, ok bool) {
	m := owned().FindStringSubmatch(token)
	if m == nil {
		return "", false
	}
	owner, err := url.PathUnescape(m[1])
	return owner, err == nil
}
