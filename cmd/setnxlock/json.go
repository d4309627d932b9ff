package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
)

// schema is the version of what --json prints: docs/json.md. It grows when a field goes, changes
// its type or its meaning; a new field leaves it as it is.
const schema = 1

// printJSON prints an answer: an object, that begins with the version of its schema.
func (a *app) printJSON(v any) error { return encodeJSON(a.out, v, "  ") }

// printLine prints an answer on a line.
func (a *app) printLine(v any) error { return encodeJSON(a.out, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	b, err := plainJSON(v)
	if err != nil {
		return err
	}
	head := []byte(`{"schema":1,`)
	if bytes.Equal(b, []byte("{}")) {
		head = []byte(`{"schema":1`)
	}
	b = append(head, b[1:]...)
	if indent != "" {
		var nice bytes.Buffer
		if err := json.Indent(&nice, b, "", indent); err != nil {
			return err
		}
		b = nice.Bytes()
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// plainJSON is v in JSON, with <, > and & as they are.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

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
	if v.TTL != compat.NoTTL && v.Status != compat.StatusFree {
		seconds := v.TTL.Seconds()
		j.TTL = &seconds
	}
	for _, h := range v.Holders {
		owner, _ := verdict.Owner(h.Value)
		j.Holders = append(j.Holders, jsonHolder{Value: h.Value, Owner: owner, Until: moment(h.Until)})
	}
	return j
}

// orEmpty is list, and [] in JSON where there is none.
func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// moment is a time in JSON; nil if there is none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(time.Millisecond)
	return &t
}

// raw are the bytes of a text that JSON can't carry as they are; "" if it can.
func raw(text string) string {
	if utf8.ValidString(text) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(text))
}
