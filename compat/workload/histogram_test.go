package workload

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Each cell begins where the one before it ends, and is less than a thousandth of what it counts.
func TestCells(t *testing.T) {
	before := time.Duration(-1)
	for c := range (histogram{}).counts {
		first, last := before+1, last(c)
		if cell(first) != c || cell(last) != c {
			t.Fatalf("cell %d has %d to %d ns, which are counted in %d and %d", c, first, last, cell(first), cell(last))
		}
		if wide := float64(last - first); wide > float64(first)/1000 {
			t.Fatalf("cell %d has %d to %d ns", c, first, last)
		}
		before = last
	}
	if before != most {
		t.Errorf("the last cell ends at %v, not at %v", before, most)
	}
}

// A spread is what sorting gives, within a thousandth.
func TestSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 99, 100, 101, 10_000} {
		var h histogram
		var list []time.Duration
		var sum time.Duration
		for range n {
			d := time.Duration(math.Exp(r.Float64() * math.Log(float64(time.Minute))))
			h.record(d)
			list = append(list, d)
			sum += d
		}
		slices.Sort(list)
		s := h.spread()
		if s.N != int64(n) || s.Max != list[n-1] || (s.Mean-sum/time.Duration(n)).Abs() > time.Microsecond {
			t.Errorf("%d: %+v, want the mean %v and %v at most", n, s, sum/time.Duration(n), list[n-1])
		}
		for share, got := range map[int]time.Duration{50: s.P50, 90: s.P90, 99: s.P99} {
			want := list[(share*n+99)/100-1]
			if got < want || got > want+want/1000 {
				t.Errorf("%d: the %d in a hundred that were shortest took %v at most, want %v", n, share, got, want)
			}
		}
	}
	var h histogram
	h.record(-time.Second)
	h.record(24 * time.Hour)
	if s := h.spread(); s.P50 != 1 || s.Max != most {
		t.Errorf("%+v", s)
	}
	if s := new(histogram).spread(); s != (Spread{}) {
		t.Errorf("nothing was measured: %+v", s)
	}
}
