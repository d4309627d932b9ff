package explore

import (
	"testing"

	"github.com/setnxlock/setnxlock/internal/realredis"
)

// The rest of what make test has a part of: other locks, other faults, wider bounds. A test that
// is called with rest takes what it leaves out without.
func TestLongExplorer(t *testing.T) {
	realredis.Long(t)
	for name, test := range map[string]func(t *testing.T, rest bool){
		"PinnedPromisesTheSame": pinnedPromisesTheSame,
		"NewerLocks":            newerLocks,
		"ProofsCarryOver":       func(t *testing.T, _ bool) { proofsCarryOver(t, "failover") },
	} {
		t.Run(name, func(t *testing.T) { test(t, true) })
	}
}
