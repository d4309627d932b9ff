package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/dialect"
)

// refusal lists the held keys and their holders; "" if none is held.
func (t *target) refusal(all []verdict.Verdict) string {
	var held []string
	for _, v := range all {
		switch {
		case v.Obtainable:
		case len(all) == 1:
			return t.says + " " + v.Refusal()
		default:
			held = append(held, fmt.Sprintf("%q %s", v.Key, v.Refusal()))
		}
	}
	return strings.Join(held, "; ")
}

// statesPage writes the verdict on each key, and how they belong together.
func statesPage(all []verdict.Verdict) string {
	var pages []string
	for _, v := range all {
		pages = append(pages, statePage(v))
	}
	if len(all) > 1 {
		pages = append(pages, "together: "+relation(all)+"\n")
	}
	return strings.Join(pages, "\n")
}

// relation tells how several keys belong together: held as one or not, and the keys for which a run of all
// would wait.
func relation(all []verdict.Verdict) string {
	first := all[0]
	free := func(v verdict.Verdict) bool { return v.Status == compat.StatusFree }
	same, token := true, "the same token"
	var held []string
	for _, v := range all {
		if !v.Obtainable {
			held = append(held, fmt.Sprintf("%q", v.Key))
		}
		if v.Value != first.Value {
			same, token = false, "a token of its own"
		}
	}
	switch owner := "one client"; {
	case !slices.ContainsFunc(all, func(v verdict.Verdict) bool { return !free(v) }):
		if slices.ContainsFunc(all, verdict.Verdict.IsUnseen) {
			return "none is held, as far as this user sees"
		}
		return "all are free"
	case !slices.ContainsFunc(all, func(v verdict.Verdict) bool { return !sameHolder(first, v) }):
		if first.Owner != "" {
			owner = ownerInWords(first.Owner)
		}
		return "one lock, with " + token + " on each key: " + owner + " holds all of them"
	case same && first.Value != "":
		return "the same value on each key, which does not tell whether one client holds all of them"
	case len(held) == 0:
		return "no lock of all of them; a run would take them"
	}
	return "no lock of all of them" + heldTogether(all) + "; a run of all waits for " + strings.Join(held, ", ")
}

// sameHolder reports whether two keys show one holder: by our tokens, or by a value that no other client would write.
func sameHolder(v, other verdict.Verdict) bool {
	return dialect.SameHolder(v.Value, other.Value) || v.Random() && v.Value == other.Value
}

// heldTogether names the first of several keys with the same holder.
func heldTogether(all []verdict.Verdict) string {
	for i, v := range all {
		alike := []string{fmt.Sprintf("%q", v.Key)}
		for _, other := range all[i+1:] {
			if v.Sure == verdict.Certain && sameHolder(v, other) {
				alike = append(alike, fmt.Sprintf("%q", other.Key))
			}
		}
		if len(alike) > 1 {
			return ", " + strings.Join(alike, " and ") + " are one of " + ownerInWords(v.Owner)
		}
	}
	return ""
}

// A jsonSeveral is the verdict on several keys, for machines.
type jsonSeveral struct {
	jsonKey            // of all of them, as if they were one
	Keys     []jsonKey `json:"keys"`
	Together string    `json:"together"`
}
