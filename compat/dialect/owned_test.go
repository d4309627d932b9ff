package dialect_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/dialect"
)

// A token with an owner is as hard to guess as one without, and has nothing in it that a shell, a
// terminal or a lock made of several reads anything into.
func TestOwnedToken(t *testing.T) {
	form := regexp.MustCompile(`^setnxlock:[-._~:@/%A-Za-z0-9]{1,128}:[0-9a-f]{32}$`)
	for _, owner := range []string{"web1:4711/nightly", "a b", "\x1b[31m", "*~!,|(%)", "ä", strings.Repeat("x", 300), strings.Repeat("ä", 300)} {
		next := dialect.OwnedToken(owner)
		a, b := next(), next()
		if a == b || !form.MatchString(a) || !form.MatchString(b) {
			t.Errorf("%q: %q, %q", owner, a, b)
		}
	}
	if token := dialect.OwnedToken("")(); !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(token) {
		t.Errorf("nobody's: %q", token)
	}
	if token := dialect.OwnedToken("web1:4711/nightly")(); !strings.HasPrefix(token, "setnxlock:web1:4711/nightly:") {
		t.Errorf("%q", token)
	}
}

// What OwnedToken writes is read, as any lock wraps it; nothing else names an owner.
func TestOwnerOf(t *testing.T) {
	const hex = "94213c24e0f911f0a9d30242ac120002"
	for _, owner := range []string{"web1:4711/nightly", "a b", "100%", "x:y", "ä", "\x1b[31m"} {
		token := dialect.OwnedToken(owner)()
		for _, wrapped := range []string{token, "r:" + token, "w:" + token, "r:client:" + token} {
			if got, ok := dialect.OwnerOf(wrapped); !ok || got != owner {
				t.Errorf("%q: %q, %v", wrapped, got, ok)
			}
		}
	}
	for _, token := range []string{"", hex, "setnxlock:" + hex, "setnxlock::" + hex, "setnxlock:x:" + hex[1:], "r:" + hex, "x:setnxlock:y:" + hex,
		"setnxlock:x:" + hex + ",setnxlock:x:" + hex} {
		if got, ok := dialect.OwnerOf(token); ok {
			t.Errorf("%q: %q", token, got)
		}
	}
}

// What one holder writes is told from what any other does, also one of the same name.
func TestSameHolder(t *testing.T) {
	at := func(digits func() string) func() string { return func() string { return "1764078272.123" + digits() } }
	makers := []func() string{dialect.HolderToken("a"), dialect.HolderToken("a"), dialect.HolderToken("b"), dialect.OwnedToken("a"),
		at(dialect.OwnedDigits()), at(dialect.OwnedDigits())}
	for i, one := range makers {
		for j, other := range makers {
			a, b := one(), other()
			if same := dialect.SameHolder(a, b); same != (i == j && i != 3) || a == b {
				t.Errorf("%q and %q: %v", a, b, same)
			}
		}
	}
	for _, value := range []string{"", "x", "1764078272", "1764078272.123"} {
		if dialect.SameHolder(value, value) {
			t.Errorf("%q says whose it is", value)
		}
	}
}
