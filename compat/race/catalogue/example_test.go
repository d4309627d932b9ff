package catalogue_test

import (
	"fmt"

	"github.com/setnxlock/setnxlock/compat/race/catalogue"
)

// A file of one's own needs an algorithm and a schedule.
func ExampleParse() {
	s, err := catalogue.Parse("mine", []byte(`
algorithm tx:classic/never   # nobody mends what a crash leaves
C1 C1.crash                  # between SETNX and EXPIRE
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	t, err := s.Trace()
	fmt.Println(t.Verdict.Violated, "at step", t.Verdict.Step, err)
	// Output: progress at step 2 <nil>
}

// An answer to an exercise is a schedule.
func ExampleScenario_Check() {
	s, _ := catalogue.Find("loser-overwrites")
	fmt.Println(s.Exercise.Text)
	for _, answer := range []string{"C1 C2 C1 C2 C1", "C1 C2 C1 C2 C1 C2"} {
		_, err := s.Check(answer)
		fmt.Println(err)
	}
	// Output:
	// No time needs to pass. Find the shorter schedule.
	// nothing breaks: break ownership
	// <nil>
}
