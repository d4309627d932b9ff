package race_test

import (
	"context"
	"fmt"

	"github.com/setnxlock/setnxlock/compat/race"
)

func ExampleExplore() {
	r, err := race.Explore(context.Background(), race.Config{
		Algorithm: "getset:classic", Clients: 2, Attempts: 2, Ticks: 3, Invariants: []string{"exclusion"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Trace.Verdict.Violated, "is violated in", len(r.Trace.Events), "steps")
	fmt.Println(r.Trace.Schedule)
	// Output:
	// exclusion is violated in 9 steps
	// getset:classic 2.4 2x2 check=exclusion : C1 C1 +10s +1ms C2 C2 C2 C1 C1
}
