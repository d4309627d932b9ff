package compat

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// NewToken returns 32 random hexadecimal digits: a value that no other client
// and no other acquisition of ours ever writes.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

// NewTokenAndAux returns a new token and Aux(key, token).
func NewTokenAndAux(key string) (token, aux string) {
	if key == "" || strings.ContainsAny(key, "{}") {
		token = NewToken()
		return token, Aux(key, token)
	}
	var digits [32]byte
	var b [16]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	hex.Encode(digits[:], b[:])
	aux = "{" + key + "}:" + string(digits[:]) // of which the token is a part: one piece of memory
	return aux[len(aux)-len(digits):], aux
}

// InspectToken reads a key that holds a token and has its lease for a TTL: one
// round trip. unit is what the TTL is asked for in, a second or, since Redis
// 2.6, a millisecond.
func InspectToken(c redis.Conn, now time.Time, key string, unit time.Duration) (State, error) {
	s := State{Key: key, Status: StatusFree, TTL: NoTTL}
	ttl := "TTL"
	if unit == time.Millisecond {
		ttl = "PTTL"
	}
	replies, err := Pipe(c, Cmd{"GET", key}, Cmd{ttl, key})
	if err != nil {
		return s, err
	}
	s.Value, err = redis.String(replies[0], nil)
	if errors.Is(err, redis.ErrNil) {
		return s, nil
	}
	if err != nil {
		return s, Foreign(key, err)
	}
	s.TTL, err = ReadTTL(replies[1], unit)
	s.Status, s.Format, s.Clock = StatusHeld, "token", "server"
	switch {
	case err != nil:
		return s, err
	case s.TTL == NoTTL:
		s.Status = StatusEndless
	default:
		s.Until = now.Add(s.TTL)
	}
	return s, nil
}
