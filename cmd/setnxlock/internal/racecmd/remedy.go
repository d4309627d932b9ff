package racecmd

import (
	"context"

	"github.com/setnxlock/setnxlock/compat/race"
)

// remedy describes the help against the violation of a trace, in sentences; "" if exploring can't find
// it.
func remedy(t race.Trace) string {
	locks, err := locksOf(t.Schedule)
	if err != nil {
		return ""
	}
	r, err := race.Remedies(context.Background(), t, locks)
	if err != nil {
		return "" // the trace says what broke all the same
	}
	return r.String()
}
