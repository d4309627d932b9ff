package main

import (
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat"
)

// A run knows the lock around it by one part of a quorum's token: a vote may have come since, or may have gone.
func TestHoldsByOneVote(t *testing.T) {
	key := verdict.FromState(compat.State{Value: "a,b%2c,c", Holders: []compat.Holder{{Value: "a"}, {Value: "b,"}, {Value: "c"}}})
	for token, want := range map[string]bool{
		"a,b%2c,": true, "~x|a,,": true, ",!b%2c,x": true, "a,b%2c,c": true, "*c": true,
		"x,y,": false, "A": false, ",,": false, "": false,
	} {
		if got := holds(token, key); got != want {
			t.Errorf("holds(%q) is %v, want %v", token, got, want)
		}
	}
}
