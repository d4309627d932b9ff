package promises_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a Locker left a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
