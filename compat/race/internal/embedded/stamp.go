package embedded

import (
	"math"
	"strconv"
	"time"

	"github.com/setnxlock/setnxlock/compat/dialect"
	"github.com/setnxlock/setnxlock/compat/race/internal/plan"
)

// StampOf reads the time in a value, in ms since the beginning; 0 if it has none.
func StampOf(value string) int64 {
	for _, s := range written {
		if t, _, ok := s.Parse(value); ok {
			if ms := plan.Millis(t); ms != 0 {
				return ms
			}
			return 1
		}
	}
	return 0
}

// written are the times that clients write on keys.
var written = []dialect.Stamp{
	{Unit: time.Second, Float: true},
	{Unit: time.Millisecond},
	{Unit: time.Nanosecond},
	{Unit: time.Second, Owner: dialect.OwnerPIDThread},
	{Unit: time.Second, Owner: dialect.OwnerColonPID},
	{Unit: time.Millisecond, Owner: dialect.OwnerUUID},
	{Unit: time.Second, Binary: true},
}

// StampOfScore reads the time in a score of a sorted set, in any unit.
func StampOfScore(score string) int64 {
	f, err := strconv.ParseFloat(score, 64)
	for _, unit := range []float64{1e-3, 1, 1e3, 1e6} { // of a millisecond: seconds, milliseconds, …
		if ms := f / unit; err == nil && ms > 1e12 && ms < 1e13 {
			return StampOf(strconv.FormatInt(int64(math.Ceil(ms)), 10))
		}
	}
	return 0
}
