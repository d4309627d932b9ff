package search

import (
	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/compat/race/internal/client"
	"github.com/setnxlock/setnxlock/compat/race/internal/embedded"
	"github.com/setnxlock/setnxlock/compat/race/internal/memo"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// replies numbers the answers of the server, from 1.
type replies struct {
	values [][]any
	byText map[string]uint32
	shapes [plan.MaxClients]map[uint32]uint64
}

func newReplies() *replies {
	return &replies{values: [][]any{nil}, byText: map[string]uint32{}}
}

func (r *replies) number(v []any) uint32 {
	text := embedded.ReplyKey(v)
	n, ok := r.byText[text]
	if !ok {
		n = uint32(len(r.values))
		r.values = append(r.values, v)
		r.byText[text] = n
	}
	return n
}

// rename numbers the replies in in, with their clients renamed.
func (r *replies) rename(in uint32, by *rename) uint32 {
	return r.number(mapText(r.values[in], by.text).([]any))
}

// mapText returns v with every text in it as f has it.
func mapText(v any, f func(string) string) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = mapText(e, f)
		}
		return list
	case []byte:
		return []byte(f(string(v)))
	case string:
		return f(v)
	case redis.Error:
		return redis.Error(f(string(v)))
	}
	return v
}

// shape reduces an input: each value becomes the client's own or another's.
func (r *replies) shape(who int, input uint32) uint64 {
	if input == inputLost || isClock(input) || input == inputWrote {
		return uint64(input)
	}
	m := r.shapes[who]
	if m == nil {
		m = map[uint32]uint64{}
		r.shapes[who] = m
	}
	h, ok := m[input]
	if !ok {
		text := embedded.ReplyKey(mapText(r.values[input], func(s string) string { return client.Anonymous(s, who) }))
		h = 1 << 40
		for _, b := range []byte(text) {
			h = memo.Mix(h, uint64(b))
		}
		m[input] = h
	}
	return h
}
