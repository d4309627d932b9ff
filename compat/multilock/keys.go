package multilock

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/compat/internal/slot"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

const opening = "all("

var (
	escape   = strings.NewReplacer("%", "%25", "(", "%28", ")", "%29", ",", "%2C")
	unescape = strings.NewReplacer("%25", "%", "%28", "(", "%29", ")", "%2C", ",")
)

// Join makes one key of several, for a Locker over one of this package's locks: Join("b", "a") is
// "all(a,b)". Order and repetition do not matter; keys may contain any bytes. A Locker's
// Options.Prefix is put before each of the keys. Join() is "", which no Locker accepts.
func Join(keys ...string) string {
	if len(keys) == 0 {
		return ""
	}
	set := slices.Compact(slices.Sorted(slices.Values(keys)))
	for i, k := range set {
		set[i] = escape.Replace(k)
	}
	return opening + strings.Join(set, ",") + ")"
}

// Split returns the keys that were joined, in the order of their bytes, each with the prefix before Join's text:
// "shop:all(a,b)" is "shop:a" and "shop:b". It returns [protocol.ErrInvalid] for a text not made by Join, and for an
// empty key.
func Split(joined string) ([]string, error) {
	at := strings.LastIndex(joined, opening) // Join escapes every other "("
	if at < 0 || !strings.HasSuffix(joined, ")") {
		return nil, fmt.Errorf("%w: %q is not a set of keys as multilock.Join makes them", protocol.ErrInvalid, joined)
	}
	prefix, body := joined[:at], joined[at+len(opening):len(joined)-1]
	keys := strings.Split(body, ",")
	for i, k := range keys {
		keys[i] = unescape.Replace(k)
	}
	// Two texts for one set would be two locks.
	if slices.Contains(keys, "") || Join(keys...) != joined[at:] {
		return nil, fmt.Errorf("%w: %q is not a set of keys as multilock.Join makes them", protocol.ErrInvalid, joined)
	}
	for i, k := range keys {
		keys[i] = prefix + k
	}
	return keys, nil
}

// lockable returns the keys of a set, unless one is reserved.
func lockable(joined string) ([]string, error) {
	keys, err := Split(joined)
	for _, k := range keys {
		if taken := slot.Taken(k); taken != nil {
			return nil, fmt.Errorf("%w: %w", protocol.ErrInvalid, taken)
		}
	}
	return keys, err
}
