package promises_test

import (
	"testing"

	"github.com/setnxlock/setnxlock/internal/realredis"
)

// whole has the tests strike every command with every misfortune, and more servers lie.
var whole bool

// What make test has a part of, whole.
func TestLongPromises(t *testing.T) {
	realredis.Long(t)
	whole = true
	defer func() { whole = false }()
	for name, test := range map[string]func(t *testing.T){
		"BatchesDecideAsSinglesDo":         TestBatchesDecideAsSinglesDo,
		"FailedStepsLeaveTheLockScheduled": TestFailedStepsLeaveTheLockScheduled,
		"BeliefNeverOutlivesTheGrant":      TestBeliefNeverOutlivesTheGrant,
		"FencesNeverFall":                  TestFencesNeverFall,
		"ALateRequestIsNoLoss":             TestALateRequestIsNoLoss,
		"ReleaseAgainIsNoLoss":             TestReleaseAgainIsNoLoss,
		"ReleaseAfterAResolvedExtension":   TestReleaseAfterAResolvedExtension,
		"HostileServer":                    TestHostileServer,
	} {
		t.Run(name, test)
	}
}
