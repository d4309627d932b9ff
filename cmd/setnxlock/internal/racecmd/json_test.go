package racecmd

import (
	"bytes"
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer/described"
	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

// race guarantees --json prints what docs/json.md says. (All of it takes a minute to compute.)
func TestGuaranteesJSONPage(t *testing.T) {
	sections := must.Get(described.Read("../../../../docs/json.md"))(t)
	for _, m := range []race.Matrix{{}, {Cells: []race.Cell{
		{}, {Refused: "it has no WATCH"}, {Bound: "states"}, {Breaks: []race.Break{{Invariant: "exclusion", Steps: 3, Text: "both", Schedule: "C1 C2"}}},
	}}} {
		var b bytes.Buffer
		must.Do(t, answer.Write(&b, matrixJSON(m)))
		if wrong := sections["race guarantees --json"].Check(b.Bytes()); len(wrong) > 0 {
			t.Errorf("%q\n%s", wrong, &b)
		}
	}
}
