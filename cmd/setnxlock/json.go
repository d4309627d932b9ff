package main

import (
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// printJSON prints an answer for machines.
func (a *app) printJSON(v any) error { return answer.Write(a.out, v) }

// A jsonKey is a verdict as machines get it.
type jsonKey struct {
	Key        string       `json:"key"`
	KeyBytes   string       `json:"key_base64,omitempty"` // if the key is no UTF-8
	Status     string       `json:"status"`
	Obtainable bool         `json:"obtainable"`
	Kind       string       `json:"kind,omitempty"`
	Format     string       `json:"format,omitempty"`
	LooksLike  []string     `json:"looks_like"`
	Confidence string       `json:"confidence,omitempty"`
	Reasons    []string     `json:"reasons"`
	Owner      string       `json:"owner,omitempty"`
	Value      string       `json:"value,omitempty"`
	ValueBytes string       `json:"value_base64,omitempty"` // if the value is no UTF-8
	Until      *time.Time   `json:"until,omitempty"`
	Clock      string       `json:"clock,omitempty"`
	TTL        *float64     `json:"ttl_seconds,omitempty"`
	Holders    []jsonHolder `json:"holders"`
	Wrong      []string     `json:"wrong"`
	Else       []string     `json:"else"`
	At         time.Time    `json:"at"`
}

type jsonHolder struct {
	Value string     `json:"value"`
	Owner string     `json:"owner,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

func keyJSON(v verdict.Verdict, at time.Time) jsonKey {
	j := jsonKey{
		Key: v.Key, Status: string(v.Status), Obtainable: v.Obtainable, Kind: v.Kind, Format: v.Format,
		LooksLike: orEmpty(v.Clients), Confidence: string(v.Sure), Reasons: orEmpty(v.Why), Owner: v.Owner, Value: v.Value,
		KeyBytes: raw(v.Key), ValueBytes: raw(v.Value), Until: moment(v.Until), Clock: v.Clock,
		Holders: []jsonHolder{}, Wrong: orEmpty(v.Wrong), Else: orEmpty(v.Else), At: *moment(at),
	}
	if v.TTL != protocol.NoTTL && v.Status != protocol.StatusFree {
		seconds := v.TTL.Seconds()
		j.TTL = &seconds
	}
	for _, h := range v.Holders {
		owner, _ := dialect.OwnerOf(h.Value)
		j.Holders = append(j.Holders, jsonHolder{Value: h.Value, Owner: owner, Until: moment(h.Until)})
	}
	return j
}

// orEmpty returns list, and [] in JSON for nil.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// moment returns a time for JSON; nil for the zero time.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(time.Millisecond)
	return &t
}

// raw encodes a text that is no UTF-8 in base64; "" for UTF-8.
func raw(text string) string {
	if utf8.ValidString(text) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(text))
}
