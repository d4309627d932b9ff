package sentinel_test

import (
	"testing"

	"github.com/setnxlock/setnxlock/compat/conformance"
)

func TestMain(m *testing.M) { conformance.Main(m) }
