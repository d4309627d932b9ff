package schedule

import (
	"sync"
	"sync/atomic"
)

// atOnce is how many goroutines, and so how many connections, what is due together may use.
const atOnce = 8

// AtOnce calls do for each of n, on a few goroutines, and waits for them.
func AtOnce(n int, do func(i int)) {
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(i)
		}
	}
	var wg sync.WaitGroup
	for range min(n, atOnce) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
