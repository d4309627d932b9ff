package workload

import "time"

// A Result is the measurement of one lock under a workload.
type Result struct {
	Name string `json:"name"`
	Err  string `json:"error,omitempty"` // why the measurement failed or stopped

	Sections int64         `json:"sections"`    // critical sections during Measured
	Measured time.Duration `json:"measured_ns"` // how long was measured, without warm-ups
	Rate     float64       `json:"rate"`        // sections per second
	Ideal    float64       `json:"ideal"`       // Rate as a share of the rate with free locks; 0 without a section
	Failed   int64         `json:"failed"`      // acquisitions and releases that returned an error; Failure is the first error
	Failure  string        `json:"failure,omitempty"`
	Overlaps int64         `json:"overlaps"` // sections that began while another goroutine held the key

	Acquire Spread `json:"acquire"`
	Release Spread `json:"release"`
	Pair    Spread `json:"pair"`     // an acquisition and its release, without the section
	Section Spread `json:"section"`  // as measured, not as configured
	HandOff Spread `json:"hand_off"` // from the start of a release until the next holder's Lock returned
	Other   Spread `json:"other"`    // HandOff, where the next holder was another goroutine

	Pings    Spread  `json:"pings"`     // two PINGs, on connections of the same client
	PingRate float64 `json:"ping_rate"` // pairs of PINGs per second, by as many goroutines

	Commands    float64 `json:"commands"`    // sent per section, including waiters' commands
	Trips       float64 `json:"trips"`       // round trips per section
	Writes      float64 `json:"writes"`      // system calls that sent data, per section
	Bytes       float64 `json:"bytes"`       // sent and received per section
	Connections int64   `json:"connections"` // the most open at the same time, in all processes

	CPU       time.Duration `json:"cpu_ns"`        // processor time of this process per section
	ServerCPU time.Duration `json:"server_cpu_ns"` // of the server, if Workload.Server is set

	Least     int64   `json:"least"`          // sections of the goroutine that got fewest
	Most      int64   `json:"most"`           // of the goroutine that got most
	LeastProc int64   `json:"least_process"`  // of the process that got fewest
	MostProc  int64   `json:"most_process"`   // of the process that got most
	Self      float64 `json:"self_share"`     // sections that went to the goroutine which had just released
	SelfProc  float64 `json:"self_processes"` // or to a goroutine of its process
}

// OverPings returns the median pair as a multiple of the median of two PINGs; 0 if either was not
// measured.
func (r Result) OverPings() float64 { return ratio(r.Pair.P50.Seconds(), r.Pings.P50.Seconds()) }

// Fairness returns the ratio of the least served goroutine to the most served; 1 is even.
func (r Result) Fairness() float64 { return ratio(float64(r.Least), float64(r.Most)) }

// FairnessProc returns the same for processes.
func (r Result) FairnessProc() float64 { return ratio(float64(r.LeastProc), float64(r.MostProc)) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// A Spread is a distribution of durations.
type Spread struct {
	N    int64         `json:"n"`
	Mean time.Duration `json:"mean_ns"`
	P50  time.Duration `json:"p50_ns"`
	P90  time.Duration `json:"p90_ns"`
	P99  time.Duration `json:"p99_ns"`
	Max  time.Duration `json:"max_ns"`
}
