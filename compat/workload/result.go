package workload

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A Result is what one lock did under a workload.
type Result struct {
	Name string `json:"name"`
	Err  string `json:"error,omitempty"` // why it was not measured, or not to the end

	Sections int64         `json:"sections"`    // critical sections, within Measured
	Measured time.Duration `json:"measured_ns"` // how long was counted, warm-ups left out
	Rate     float64       `json:"rate"`        // sections a second
	Ideal    float64       `json:"ideal"`       // Rate as a share of what locks that cost no time would allow; 0 if there is no section to measure
	Failed   int64         `json:"failed"`      // locks and releases that ended in an error; Failure is the first one's
	Failure  string        `json:"failure,omitempty"`
	Overlaps int64         `json:"overlaps"` // sections that began while another had the key

	Acquire Spread `json:"acquire"`
	Release Spread `json:"release"`
	Pair    Spread `json:"pair"`     // an acquisition and its release, without the section
	Section Spread `json:"section"`  // as it was, not as it was asked for
	HandOff Spread `json:"hand_off"` // from the start of a release to the moment when the next one's Lock returned
	Other   Spread `json:"other"`    // HandOff, where the next one was another goroutine

	Pings    Spread  `json:"pings"`     // two PINGs, on connections of the same client
	PingRate float64 `json:"ping_rate"` // pairs of PINGs a second, by as many goroutines

	Commands    float64 `json:"commands"`    // sent for each section, those of waiters included
	Trips       float64 `json:"trips"`       // round trips for each section
	Writes      float64 `json:"writes"`      // system calls that sent something, for each section
	Bytes       float64 `json:"bytes"`       // sent and received for each section
	Connections int64   `json:"connections"` // open at the same time, at most, in all processes

	CPU       time.Duration `json:"cpu_ns"`        // processor time of this process for each section
	ServerCPU time.Duration `json:"server_cpu_ns"` // of the server's, if Workload.Server told

	Least     int64   `json:"least"`          // sections of the goroutine that got fewest
	Most      int64   `json:"most"`           // of the one that got most
	LeastProc int64   `json:"least_process"`  // of the process that got fewest
	MostProc  int64   `json:"most_process"`   // of the one that got most
	Self      float64 `json:"self_share"`     // sections that went to the goroutine which had just released
	SelfProc  float64 `json:"self_processes"` // or to one of its process
}

// OverPings is the median pair as a multiple of the median of two PINGs; 0 if
// one of them was not measured.
func (r Result) OverPings() float64 { return ratio(r.Pair.P50.Seconds(), r.Pings.P50.Seconds()) }

// Fairness is least served over most served, of goroutines; 1 is even.
func (r Result) Fairness() float64 { return ratio(float64(r.Least), float64(r.Most)) }

// FairnessProc is the same of processes.
func (r Result) FairnessProc() float64 { return ratio(float64(r.LeastProc), float64(r.MostProc)) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// A Spread is how long something took.
type Spread struct {
	N    int64         `json:"n"`
	Mean time.Duration `json:"mean_ns"`
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	Max  time.Duration `json:"max_ns"`
}

// longest is what a histogram can tell; longer is told as that.
const longest = int64(10 * time.Minute)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest, 3) }

func record(h *hdrhistogram.Histogram, d time.Duration) {
	h.RecordValue(min(max(int64(d), 1), longest)) //nolint:errcheck // it is in the range
}

func spread(h *hdrhistogram.Histogram) Spread {
	if h.TotalCount() == 0 {
		return Spread{}
	}
	at := func(q float64) time.Duration { return time.Duration(h.ValueAtQuantile(q)) }
	return Spread{h.TotalCount(), time.Duration(h.Mean()), at(50), at(90), at(99), time.Duration(h.Max())}
}
