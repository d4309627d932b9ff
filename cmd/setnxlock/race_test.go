//go:build unix

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// Whoever plays a race as the catalogue has it reaches its objective.
func TestRacesArePlayable(t *testing.T) {
	t.Parallel()
	for _, s := range catalogue.All() {
		if s.Expect.Violated == "" {
			continue
		}
		cmd := exec.Command("setnxlock", "race", "play", s.Name)
		cmd.Stdin = strings.NewReader(s.Run.Schedule + "\n")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\nWell done: that was the objective") {
			t.Errorf("%s: %v\n%s", s.Name, err, out)
		}
	}
}
