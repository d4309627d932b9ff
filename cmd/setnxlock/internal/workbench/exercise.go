package workbench

import (
	"fmt"
	"strings"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// A Marked is the answer to "exercise".
type Marked struct {
	Text  string   `json:"text"`
	Goals []string `json:"goals"` // what an answer must do
	Right bool     `json:"right"`
	Lacks string   `json:"lacks"` // what this one does not; "": nothing, or there is no answer yet
}

// marked judges the words of a schedule as an answer to a race's exercise.
func marked(name, schedule string) (Marked, error) {
	s, ok := catalogue.Find(name)
	if !ok || s.Exercise == nil {
		return Marked{}, fmt.Errorf("race: %q has no exercise", name)
	}
	m := Marked{Text: s.Exercise.Text, Goals: strings.Split(s.Exercise.Goal(), ", ")}
	_, choices, err := race.ParseSchedule(schedule)
	if err != nil || len(choices) == 0 {
		return m, err
	}
	if _, err = s.Check(race.Words(choices)); err != nil {
		m.Lacks = reason(err)
	}
	m.Right = err == nil
	return m, nil
}
