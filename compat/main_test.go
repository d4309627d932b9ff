package compat_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// TestMain lets the many checks that only wait for a lease to end wait
// together, and fails if a Locker left a goroutine behind.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "128") //nolint:errcheck // a flag that exists
	goleak.VerifyTestMain(m)
}
