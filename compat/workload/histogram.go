package workload

import (
	"math"
	"math/bits"
	"time"
)

// A histogram counts durations in cells: up to 2,048 ns one for each nanosecond, and from each further
// power of two to the next 1,024 of the same size. So what is read from it is too long by less than a
// thousandth, whatever was measured. The zero value is empty.
type histogram struct {
	n      int64
	sum    float64 // nanoseconds
	max    time.Duration
	counts [(powers + 1) * fine]int64
}

const (
	fine   = 1 << 10
	powers = 30
	most   = time.Duration(1)<<(powers+10) - 1 // eighteen minutes: what took longer is counted as this
)

// cell is where a duration is counted.
func cell(d time.Duration) int {
	row := max(bits.Len64(uint64(d))-11, 0)
	return row*fine + int(d>>row)
}

// last is the longest duration that a cell counts.
func last(cell int) time.Duration {
	row := max(cell/fine-1, 0)
	return time.Duration(cell-row*fine+1)<<row - 1
}

// record counts a duration; one that a coarse clock did not see at all is a nanosecond.
func (h *histogram) record(d time.Duration) {
	d = min(max(d, 1), most)
	h.n++
	h.sum += float64(d)
	h.max = max(h.max, d)
	h.counts[cell(d)]++
}

// quantile is the shortest time within which that share of the durations were.
func (h *histogram) quantile(share float64) time.Duration {
	rank := int64(math.Ceil(share * float64(h.n)))
	for c, n := range h.counts[:] {
		if rank -= n; rank <= 0 && h.n > 0 {
			return min(last(c), h.max)
		}
	}
	return h.max
}

func (h *histogram) spread() Spread {
	if h.n == 0 {
		return Spread{}
	}
	return Spread{h.n, time.Duration(h.sum / float64(h.n)), h.quantile(0.5), h.quantile(0.9), h.quantile(0.99), h.max}
}
