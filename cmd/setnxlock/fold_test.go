package main

import (
	"fmt"
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
)

func TestNumbersFoldIntoPatterns(t *testing.T) {
	for key, want := range map[string]string{
		"user:17:last_login": "user:*:last_login", "report": "report", "": "", "lock:report": "lock:report", "17": "*",
		"user:fb2d0a1e-3f44-4e2e-8f0a-0123456789ab:x": "user:*:x", "session:94213c24e0f911f0": "session:*", "user_12_at3": "user_*_at*",
		"2026-11-27:job": "*-*-*:job", "a.1.b.2": "a.*.b.*", "é1:ü": "é*:ü", "::": "::", "x-1": "x-*",
	} {
		if got := pattern(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

func TestKeysOfAFolderAreAGroup(t *testing.T) {
	for key, want := range map[string]string{
		"jobs:a": "jobs:*", "mix.b": "mix.*", "report": "", "user:1:token": "user:*:token", "user:1:last_login": "user:*:last_login", "jobs:17": "jobs:*",
	} {
		if got := group(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

// However many patterns there are, what is kept of them is bounded, and no key is lost.
func TestFoldsAreBounded(t *testing.T) {
	var f folds
	var v verdict.Verdict
	word := func(n int) (s string) {
		for ; n > 0; n /= 26 {
			s += string(rune('a' + n%26))
		}
		return s
	}
	for i := range 20_000 {
		v.Key, v.Format = word(i)+":x:"+fmt.Sprint(i), "token"
		f.add(v)
	}
	single, several := f.list()
	keys := len(single)
	for _, one := range several {
		keys += one.keys
	}
	if keys != 20_000 || len(f.all) > 2*mostFolds+1 {
		t.Errorf("%d keys in %d folds", keys, len(f.all))
	}
}
