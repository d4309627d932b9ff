package workbench

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/catalogue"
	"github.com/setnxlock/setnxlock/internal/must"
)

// asked is what the page gets.
func asked[T any](t *testing.T, q Question) (answer T, refused string) {
	t.Helper()
	var got struct {
		Answer T
		Error  string
	}
	must.Do(t, json.Unmarshal(Answer(t.Context(), must.Get(json.Marshal(q))(t), nil), &got))
	return got.Answer, got.Error
}

// The page judges exercises as the command does.
func TestExercise(t *testing.T) {
	for _, s := range catalogue.All() {
		if s.Exercise == nil {
			continue
		}
		if m, refused := asked[Marked](t, Question{Do: "exercise", Race: s.Name}); refused != "" || m.Right || len(m.Goals) != len(s.Exercise.Goals) {
			t.Errorf("%s: %+v %s", s.Name, m, refused)
		}
		for _, words := range s.Exercise.Answers {
			if m, refused := asked[Marked](t, Question{Do: "exercise", Race: s.Name, Schedule: words}); refused != "" || !m.Right || m.Lacks != "" {
				t.Errorf("%s: %s: %+v %s", s.Name, words, m, refused)
			}
		}
		for _, w := range s.Exercise.Wrong {
			if m, _ := asked[Marked](t, Question{Do: "exercise", Race: s.Name, Schedule: w.Schedule}); m.Right || !strings.Contains(m.Lacks, w.Says) {
				t.Errorf("%s: %s: %+v", s.Name, w.Schedule, m)
			}
		}
	}
	if _, refused := asked[Marked](t, Question{Do: "exercise", Race: "nix"}); refused == "" {
		t.Error("a race that is none has an exercise")
	}
}

// The page's form begins with a template, and tells what is wrong with what was typed.
func TestOwnLock(t *testing.T) {
	list, refused := asked[[]catalogue.Template](t, Question{Do: "templates"})
	if refused != "" || len(list) != 7 {
		t.Fatalf("%d templates, %s", len(list), refused)
	}
	for _, x := range list {
		name, refused := asked[string](t, Question{Do: "form", Text: x.Text})
		if name != x.Lock || refused != "" {
			t.Errorf("%s: %s, %s", x.Name, name, refused)
		}
		if _, refused := asked[State](t, Question{Do: "at", Schedule: name + " " + x.Server + " 2x2 : C1 C2"}); refused != "" {
			t.Errorf("%s: %s", x.Name, refused)
		}
	}
	if _, refused := asked[string](t, Question{Do: "form", Text: "SETNX key TOKEN\n1 = mine"}); !strings.Contains(refused, "write KEY, TOKEN, TIME, TTL and TTLMS in capitals") {
		t.Error(refused)
	}
}

// The sample is a log in which two hold the lock, and leads on into the explorer.
func TestSample(t *testing.T) {
	text, _ := asked[string](t, Question{Do: "sample"})
	m, refused := asked[Monitored](t, Question{Do: "monitor", Text: text})
	if refused != "" || len(m.Both) != 1 || len(m.Removed) != 2 || m.Skipped.Lines != 2 || m.Way == nil {
		t.Fatalf("%s %+v", refused, m.Says)
	}
	if s, refused := asked[State](t, Question{Do: "at", Schedule: m.Way.Schedule}); refused != "" || s.Trace.Verdict.Violated == "" {
		t.Errorf("%s %+v", refused, s.Trace.Verdict)
	}
}
