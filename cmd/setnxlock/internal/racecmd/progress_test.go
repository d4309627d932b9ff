package racecmd

import (
	"testing"
	"time"
)

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
