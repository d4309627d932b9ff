// Package must ends a test for want of something that the test is not about. Tests only.
package must

import "testing"

// Do ends the test if err is one.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns the value of a call that may not fail here: must.Get(redis.Dial("tcp", addr))(t).
func Get[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return value
	}
}
