package race

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/internal/must"
)

// Where a client stands is the line that sends what it is about to send.
func TestSpots(t *testing.T) {
	for _, test := range []struct{ schedule, doing, file, has string }{
		{"getset:classic 2.4 2x1 :", "acquire", "getsetlock/getsetlock.go", `"SETNX"`},
		{`getset:classic 2.4 2x1 given="SET {key} t=-2s" : C1`, "acquire", "getsetlock/getsetlock.go", `"GET"`},
		{`getset:classic 2.4 2x1 given="SET {key} t=-2s" : C1 C1`, "acquire", "getsetlock/classic.go", `"GETSET"`},
		{"getset:guarded 2.4 2x1 : C2 C1", "acquire", "getsetlock/guarded.go", "c.Watch(key)"},
		{"getset:classic 2.4 2x1 : C1", "release", "compat/protocol/unguarded.go", "c.values(list)"},
		{"tx:guarded 2.4 2x1 : C1 C1 C1", "release", "compat/protocol/watch.go", ""},
	} {
		c, choices, err := ParseSchedule(test.schedule)
		if err != nil {
			t.Fatal(err)
		}
		spots, err := Spots(c, choices)
		if err != nil {
			t.Errorf("%s: %v", test.schedule, err)
			continue
		}
		s := spots[0]
		at := s.Lock
		if at.N == 0 {
			at = s.Engine
		}
		if s.Doing != test.doing || at.File != test.file {
			t.Errorf("%s: %+v, want %s in %s", test.schedule, s, test.doing, test.file)
			continue
		}
		b := must.Get(os.ReadFile(filepath.Join("..", "..", at.File)))(t)
		if line := strings.Split(string(b), "\n")[at.N-1]; !strings.Contains(line, test.has) {
			t.Errorf("%s: at %v, %q", test.schedule, at, line)
		}
	}
}

// The schedule that breaks one lock is followed by another as far as it can.
func TestFollow(t *testing.T) {
	c, choices, err := ParseSchedule("getset:classic 2.4 2x3 : C1 C1 +10s +1ms C2 C2 C2 C1")
	if err != nil {
		t.Fatal(err)
	}
	c.Algorithm = "getset:guarded"
	tr, err := Follow(c, choices)
	if err != nil || tr.Verdict.Violated != "" {
		t.Fatal(tr.Verdict, err)
	}
	again, err := ReplaySchedule(tr.Schedule, nil)
	if err != nil || len(again.Events) != len(tr.Events) {
		t.Fatal(tr.Schedule, err)
	}
	for _, b := range again.Events[len(again.Events)-1].Belief {
		if b.State == Asking {
			t.Errorf("somebody asks still: %s", tr.Schedule)
		}
	}
}
