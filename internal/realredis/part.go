package realredis

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
)

// Embedded reports whether SETNXLOCK_TEST=embedded asks for the tests with Go alone.
func Embedded() bool { return os.Getenv("SETNXLOCK_TEST") == "embedded" }

// UnderRace reports whether the race detector watches, under which a step takes ten times as long: a test then makes a
// part of its runs.
var UnderRace = sync.OnceValue(func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
})

// Need returns the path of an indispensable program; debian names its package there. A machine that lacks it fails the
// test, so that it is noticed: `make test` installs it. Where Embedded the test ends as skipped, and Skipped notes it.
func Need(t testing.TB, program, debian string) string {
	t.Helper()
	if Embedded() {
		Skipped(t, program)
		t.SkipNow()
	}
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("no %s on the PATH: this test needs it (make test installs it; by hand on Debian: apt-get install %s)", program, debian)
	}
	return path
}

// Skipped notes a test, or a part of it, left out for want of what, for the list at the end of `make test`.
func Skipped(t testing.TB, what string) {
	t.Helper()
	t.Logf("not run, for SETNXLOCK_TEST=embedded: what needs %s", what)
	note(t, what)
}

// Long begins a test too long for `make test`: the test ends as skipped, and is noted for the list at the end, unless
// SETNXLOCK_TEST=all. Such a test is called TestLong…: by that name `make long` finds it.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("SETNXLOCK_TEST") != "all" {
		Nightly(t, "make long")
	}
}

// Nightly ends a test of another target than make test, "make today": it is noted for the list at the end.
func Nightly(t testing.TB, target string) {
	t.Helper()
	note(t, target)
	t.Skip("not for make test: " + target + " runs it")
}

// note adds a line to the file in SETNXLOCK_TEST_SKIPPED.
func note(t testing.TB, what string) {
	t.Helper()
	name := os.Getenv("SETNXLOCK_TEST_SKIPPED")
	if name == "" {
		return
	}
	dir, _ := os.Getwd() //nolint:errcheck // then the test's name has to do
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(f, "%s %s: %s\n", dir, t.Name(), what)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}
