package racecmd

import (
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/race"
)

// So does that of race explore; of how much is left it says nothing as long as nobody knows.
func TestSearchedSaysAll(t *testing.T) {
	for _, c := range []struct {
		race.Stats
		want string
	}{
		{race.Stats{Left: -1}, "[####................]  0 states  0/s  0 MB  depth 0  10.0 s"},
		{race.Stats{States: 20_000, Depth: 9, Memory: 3 << 20, Left: -1}, "[####................]  20,000 states  2,000/s  3 MB  depth 9  10.0 s"},
		{race.Stats{States: 3_000_000, Depth: 20, Memory: 150 << 20, Left: 1_000_000},
			"[####................]  3,000,000 states  300,000/s  150 MB  depth 20  10.0 s  about 75 %, 3 s more"},
	} {
		if got := searched(0, &c.Stats, 10*time.Second); got != c.want {
			t.Errorf("%+v: %q, want %q", c.Stats, got, c.want)
		}
	}
}

// The line of race guarantees says how far it is, how fast, with how much memory, and for how long still.
func TestStandingSaysAll(t *testing.T) {
	for _, c := range []struct {
		standing
		want string
	}{
		{standing{}, "guarantees  0 of 0 cells  0 states  0/s  48 MB"},
		{standing{2500, 10000, 1_000_000}, "guarantees  2,500 of 10,000 cells  1,000,000 states  100,000/s  48 MB  about 30 s more"},
		{standing{10000, 10000, 3_000_000}, "guarantees  10,000 of 10,000 cells  3,000,000 states  300,000/s  48 MB"},
	} {
		if got := c.line(10*time.Second, 48<<20); got != c.want {
			t.Errorf("%+v: %q, want %q", c.standing, got, c.want)
		}
	}
}
