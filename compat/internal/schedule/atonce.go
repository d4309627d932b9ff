package schedule

import (
	"sync"
	"sync/atomic"
)

// atOnce limits the goroutines, and so the connections, for work that is due together.
const atOnce = 8

// AtOnce calls do n times on up to eight goroutines, and waits for them.
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
