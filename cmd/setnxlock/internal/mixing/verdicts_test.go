package mixing

import (
	"context"
	_ "embed"
	"slices"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

//go:embed testdata/verdicts.txt
var drawnUp string

// The computed verdicts agree with those derived from the clients' source code.
func TestVerdictsAreThoseOfTheSources(t *testing.T) {
	self := alone(context.Background())
	rows := 0
	for line := range strings.Lines(drawnUp) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if rows++; realredis.UnderRace() && rows%8 != 0 {
			continue
		}
		row := strings.Split(line, "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		holder := must.Get(Find("theirs/" + row[0]))(t)
		challenger := must.Get(Find("theirs/" + row[1]))(t)
		v := must.Get(pair(context.Background(), holder, challenger, self))(t)
		if got := taken(v); row[2] != "-" && got != row[2] {
			t.Errorf("%s, challenged by %s: %s, want %s: %+v", row[0], row[1], got, row[2], v.Clash)
		}
		if got := recovered(v, holder, challenger); row[3] != "-" && got != row[3] {
			t.Errorf("%s, died and challenged by %s: %s, want %s: %+v", row[0], row[1], got, row[3], v.Stuck)
		}
	}
	if rows < 40 {
		t.Errorf("%d verdicts, want those of the whole table", rows)
	}
}

// taken reports whether two clients hold the lock although none is late.
func taken(v Verdict) string {
	if v.Clash == nil || v.Clash.Grade == Late {
		return "not taken"
	}
	return "taken"
}

func recovered(v Verdict, of, by Party) string {
	i := slices.IndexFunc(v.Stuck, func(s Stuck) bool { return s.Of == of.Name && s.By == by.Name && s.When != Orderly })
	switch {
	case i < 0:
		return "recovered"
	case v.Stuck[i].When == Halfway:
		return "half"
	}
	return "never"
}
