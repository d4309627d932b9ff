package dialect

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
)

// OwnedToken makes tokens that name their holder, for people who look at the key:
// setnxlock:OWNER:RANDOM. Give it to a lock's Options.Token; locks.Options and probe.Options have a
// field for it. Clients only compare a token, so owner may be any text: what is not a letter, a
// digit or one of "-._~:@/" is written %20, and only the first 128 bytes of that are kept. The last
// 32 digits are random. If owner is "", the token is these digits alone.
func OwnedToken(owner string) func() string {
	return func() string { return HolderToken(owner)() }
}

// HolderToken makes the tokens of one acquisition and its extensions: OwnedToken's, but the first half of the random
// digits is the same in all, for [SameHolder].
func HolderToken(owner string) func() string {
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
	named := "setnxlock:" + b.String() + ":" + Random()[:16]
	return func() string { return named + Random()[:16] }
}

// OwnedDigits makes the 12 digits of a timestamp, as HolderToken does for tokens. They have no room for a name: the
// first 8 are the same each time.
func OwnedDigits() func() string {
	digits := func() string {
		return strings.Map(func(c rune) rune { return '0' + c%10 }, Random())
	}
	mine := digits()[:8]
	return func() string { return mine + digits()[:4] }
}

// sameHolder is what all values have in common that one HolderToken or OwnedDigits made.
var sameHolder = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:(.*setnxlock:.+:[0-9a-f]{16})[0-9a-f]{16}|\d{10}\.\d{3}(\d{8})\d{4})$`)
})

// SameHolder reports whether two values are of one HolderToken or OwnedDigits: of one holder, which has extended its
// lock in between.
func SameHolder(a, b string) bool {
	first, second := sameHolder().FindStringSubmatch(a), sameHolder().FindStringSubmatch(b)
	return first != nil && second != nil && first[1] == second[1] && first[2] == second[2]
}

// plain reports whether c stands in an owner's name as it is: it has no meaning to a shell, a terminal or a lock made
// of several.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~:@/", c) >= 0
}

// owned is what OwnedToken writes, as it stands on a key: rwlock puts a letter before it, and perhaps
// its client's name, and a semaphore the number of its slot.
var owned = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[rw]:(?:[^:]*:)?|[0-9]+:)?setnxlock:([^,]+):[0-9a-f]{32}$`)
})

// OwnerOf returns the owner in a token of OwnedToken's.
func OwnerOf(token string) (owner string, ok bool) {
	m := owned().FindStringSubmatch(token)
	if m == nil {
		return "", false
	}
	owner, err := url.PathUnescape(m[1])
	return owner, err == nil
}
