package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
)

// nested refuses to wait for a key that the run around this one holds: it would wait for itself.
func (a *app) nested(ctx context.Context, t *target) error {
	if around := keysAround(); !slices.ContainsFunc(t.keys, func(key string) bool { return slices.Contains(around, key) }) {
		return nil
	}
	all, err := t.looks(ctx)
	if err != nil {
		return nil // the attempt will tell
	}
	if key := heldAround(all); key != "" {
		return exit.Because(
			exit.Wrong, fmt.Errorf("%q is held by the run around this one, which would wait for itself", key),
			"leave out one of the two, or give them two KEYs",
		)
	}
	return nil
}

// heldAround is the first key that the run around this one holds, and keeps from this one: not what several may hold at
// once. The environment tells which keys those are, and what is on them whether they are the same and still held.
func heldAround(all []verdict.Verdict) string {
	token, keys := os.Getenv("SETNXLOCK_TOKEN"), keysAround()
	if h := (compat.Handle{}); h.UnmarshalText([]byte(token)) == nil { // the token was no text
		token = h.Token
	}
	for _, v := range all {
		if !v.Obtainable && slices.Contains(keys, v.Key) && holds(token, v) {
			return v.Key
		}
	}
	return ""
}

// keysAround are those of the run around this one; none if there is no such run.
func keysAround() []string {
	if os.Getenv("SETNXLOCK_TOKEN") == "" {
		return nil
	}
	return append(strings.Split(os.Getenv("SETNXLOCK_KEYS"), "\n"), os.Getenv("SETNXLOCK_KEY"))
}

// holds reports that a token, or what its holder has put in its place since, is on a key.
func holds(token string, v verdict.Verdict) bool {
	same := func(value string) bool { return value == token || dialect.SameHolder(token, value) }
	return same(v.Value) || slices.ContainsFunc(v.Holders, func(h compat.Holder) bool { return same(h.Value) })
}
