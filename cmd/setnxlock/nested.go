package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/redlock"
)

// aroundVariable has the handles of the runs around a command, the outermost first, with blanks between.
const aroundVariable = "SETNXLOCK_AROUND"

// around reads the locks of the runs around this one.
func around() (all []compat.Handle) {
	for word := range strings.FieldsSeq(os.Getenv(aroundVariable)) {
		var h compat.Handle
		if h.UnmarshalText([]byte(word)) == nil {
			all = append(all, h)
		}
	}
	return all
}

// nested refuses to wait for a key of a run around this one: it would wait for itself.
func (a *app) nested(ctx context.Context, t *target) error {
	wanted := func(key string) bool { return slices.Contains(t.keys, key) }
	if !slices.ContainsFunc(around(), func(h compat.Handle) bool { return slices.ContainsFunc(split(h.Key), wanted) }) {
		return nil
	}
	all, err := t.looks(ctx)
	if err != nil {
		return nil // the attempt will tell
	}
	if key := heldAround(all); key != "" {
		return exit.Because(exit.Wrong, fmt.Errorf("%q is held by a run around this one, which would wait for itself", key),
			"leave out one of the two, or give them two KEYs")
	}
	return nil
}

// heldAround finds the first key that a run around this one holds, and keeps from this one: a key for several
// holders counts only when it is full. The environment names the keys; the keys show whether they are still
// held.
func heldAround(all []verdict.Verdict) string {
	for _, h := range around() {
		for _, v := range all {
			if !v.Obtainable && slices.Contains(split(h.Key), v.Key) && holds(h.Token, v) {
				return v.Key
			}
		}
	}
	return ""
}

// holds reports whether a token, or its successor by the same holder, is on a key. A quorum's changes with each vote
// that comes or goes: one of its parts is enough.
func holds(token string, v verdict.Verdict) bool {
	parts := append(redlock.Values(token), token)
	same := func(value string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return value == p || dialect.SameHolder(p, value) })
	}
	return same(v.Value) || slices.ContainsFunc(v.Holders, func(h compat.Holder) bool { return same(h.Value) })
}

// successor returns what an extension has put in the place of a token. "" if there is no such value, or more than one. Of
// a value in parts, a quorum's or that of keys in turn, it leaves out the parts of others.
func (a *app) successor(token string, v verdict.Verdict) string {
	ours := func(value string) bool {
		return holds(token, verdict.Verdict{State: compat.State{Value: value}})
	}
	values := []string{v.Value}
	if a.algorithm != "redlock" {
		for _, h := range v.Holders {
			values = append(values, h.Value)
		}
		values = slices.DeleteFunc(values, func(v string) bool { return strings.Count(v, ",") != strings.Count(token, ",") })
	}
	for i, value := range values {
		parts := strings.Split(value, ",")
		for n, part := range parts {
			if !slices.ContainsFunc(redlock.Values(part), ours) {
				parts[n] = ""
			}
		}
		values[i] = strings.Join(parts, ",")
	}
	slices.Sort(values)
	values = slices.DeleteFunc(slices.Compact(values), func(v string) bool { return strings.Trim(v, ",") == "" })
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// byToken calls do with a token, and again with its successors as long as the key does not hold it.
func (a *app) byToken(ctx context.Context, t *target, token string, do func(token string) error) error {
	err := do(token)
	for tries := 0; tries < 3 && errors.Is(err, compat.ErrLost); tries++ {
		all, unseen := t.looks(ctx)
		if len(all) > 1 { // as of one lock
			var s compat.State
			s, unseen = t.locks.Inspect(ctx, t.key)
			all = []verdict.Verdict{verdict.FromState(s)}
		}
		if unseen != nil {
			break
		}
		next := a.successor(token, all[0])
		if next == "" || next == token {
			break
		}
		token = next
		err = do(token)
	}
	return err
}
