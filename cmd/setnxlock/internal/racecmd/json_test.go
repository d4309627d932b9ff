package racecmd

import (
	"bytes"
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/answer/described"
	"github.com/setnxlock/setnxlock/compat/race"
)

// race guarantees --json prints what docs/json.md says. (All of it takes a minute to compute.)
func TestGuaranteesJSONPage(t *testing.T) {
	sections, err := described.Read("../../../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []race.Matrix{{}, {Cells: []race.Cell{
		{}, {Refused: "it has no WATCH"}, {Bound: "states"}, {Breaks: []race.Break{{Invariant: "exclusion", Steps: 3, Text: "both", Schedule: "C1 C2"}}},
	}}} {
		var b bytes.Buffer
		if err := answer.Write(&b, matrixJSON(m)); err != nil {
			t.Fatal(err)
		}
		if wrong := sections["race guarantees --json"].Check(b.Bytes()); len(wrong) > 0 {
			t.Errorf("%q\n%s", wrong, &b)
		}
	}
}
