package search

import "math"

// left estimates how many states there are still to be found, from the sizes of the levels so far; -1:
// nothing can be said yet. The sizes rise and fall like a bell, their logarithms like a parabola: its course
// over the last levels is followed to its end.
func left(levels []int) int {
	const fitted = 5
	if len(levels) < fitted {
		return -1
	}
	last := levels[len(levels)-fitted:]
	if 2*last[fitted-1] >= 3*last[fitted-2] {
		return -1 // far from the middle: a guess would be off by any factor
	}
	// The least squares of a + b·t + c·t², t counted from the middle so that the sums of odd powers are 0.
	const mid = float64(fitted-1) / 2
	var n, t2, t4, y, ty, t2y float64
	for i, size := range last {
		t, log := float64(i)-mid, math.Log(float64(max(size, 1)))
		n, t2, t4 = n+1, t2+t*t, t4+t*t*t*t
		y, ty, t2y = y+log, ty+t*log, t2y+t*t*log
	}
	c := (n*t2y - t2*y) / (n*t4 - t2*t2)
	b := ty / t2
	if c >= 0 { // no bell: it dies away, or grows faster and faster
		if c, b = 0, math.Log(float64(last[fitted-1])/float64(last[fitted-2])); b >= 0 {
			return -1
		}
	}
	// On from the last level, whose size is known.
	size, sum := float64(last[fitted-1]), 0.0
	for t := mid; size >= 1; t++ {
		size *= math.Exp(b + c*(2*t+1))
		sum += size
	}
	return int(sum)
}
