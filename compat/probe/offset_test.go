package probe_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/setnxlock/setnxlock/compat"
	"github.com/setnxlock/setnxlock/compat/internal/faulty"
	"github.com/setnxlock/setnxlock/compat/oldredis"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A sleeper is a clock that stands still until somebody waits for it.
type sleeper struct {
	*clock.Mock // for what is not used here
	now         time.Time
}

func at(now time.Time) *sleeper { return &sleeper{clock.NewMock(), now} }

func (s *sleeper) Now() time.Time                  { return s.now }
func (s *sleeper) Since(t time.Time) time.Duration { return s.now.Sub(t) }
func (s *sleeper) Until(t time.Time) time.Duration { return t.Sub(s.now) }
func (s *sleeper) Timer(d time.Duration) *clock.Timer {
	s.now = s.now.Add(d)
	return clock.New().Timer(0)
}

// slow is a network on which a request takes there to arrive and its reply back.
func slow(clk *sleeper, there, back time.Duration) *faulty.Network {
	net := new(faulty.Network)
	net.Expect(func(m faulty.Message) faulty.Fate {
		return faulty.Fate{Serve: func(run func(...any) any) any {
			if m.At == 0 {
				clk.now = clk.now.Add(there)
			}
			reply := run()
			if m.At == len(m.Write)-1 {
				clk.now = clk.now.Add(back)
			}
			return reply
		}}
	})
	return net
}

func TestOffset(t *testing.T) {
	begin := time.Date(2020, 1, 2, 3, 4, 5, 123456789, time.UTC)
	refusals := [][]string{nil, {"TIME"}, {"TIME", "PTTL"}}
	networks := [][2]time.Duration{{0, 0}, {500 * time.Microsecond, 100 * time.Microsecond}, {20 * time.Millisecond, 20 * time.Millisecond}, {1 * time.Millisecond, 60 * time.Millisecond}}
	offsets := []time.Duration{0, 1, 333 * time.Millisecond, -250 * time.Millisecond, 499 * time.Millisecond, 511 * time.Millisecond, -999 * time.Millisecond,
		876544211, 376544211, // the server's second, or half of it, begins as ours is read
		7 * time.Second, 90 * time.Second, -100 * time.Hour, 100 * time.Hour, 3 * 365 * 24 * time.Hour}
	worst, most, longest := time.Duration(0), 0, time.Duration(0)
	for _, v := range append(oldredis.Versions(), "twemproxy") {
		for _, refused := range refusals {
			if refused != nil && (v < "2.6" || v == "twemproxy" && len(refused) == 1) {
				continue // not there to be refused
			}
			for _, n := range networks {
				for _, want := range offsets {
					name := fmt.Sprintf("%s without %s, %v there, %v back, %v ahead", v, strings.Join(refused, ", "), n[0], n[1], want)
					clk := at(begin)
					s := must.Get(oldredis.New(v, oldredis.Options{Clock: clk, Refuse: refused}))(t)
					s.Advance(want)
					net := slow(clk, n[0], n[1])
					got, off, err := probe.Offset(t.Context(), compat.Pooled(net.Pool(s)), clk, probe.Options{})
					switch {
					case err != nil:
						t.Errorf("%s: %v", name, err)
					case (got - want).Abs() > off:
						t.Errorf("%s: found %v ± %v", name, got, off)
					case off > 50*time.Millisecond+(n[0]+n[1])/2:
						t.Errorf("%s: ± %v", name, off)
					}
					worst, most, longest = max(worst, off-(n[0]+n[1])/2), max(most, net.Writes()), max(longest, clk.now.Sub(begin))
					empty(t, s)
					s.Close()
				}
			}
		}
	}
	t.Logf("at most ± %v and half a round trip, %d writes, %v", worst, most, longest)
}

// A network that is too slow to tell whether TTL rounds costs half a second of
// certainty, not the truth.
func TestOffsetVerySlow(t *testing.T) {
	for _, v := range []string{"2.4", "7.0"} {
		clk := at(time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC))
		s := must.Get(oldredis.New(v, oldredis.Options{Clock: clk, Refuse: []string{"TIME", "PTTL"}}))(t)
		const want = 3 * time.Second / 10
		s.Advance(want)
		source := slow(clk, 350*time.Millisecond, 50*time.Millisecond).Pool(s)
		got, off, err := probe.Offset(t.Context(), compat.Pooled(source), clk, probe.Options{})
		if err != nil || (got-want).Abs() > off || off < 200*time.Millisecond {
			t.Errorf("%s: %v ± %v, %v", v, got, off, err)
		}
		empty(t, s)
		s.Close()
	}
}

func TestOffsetNoClock(t *testing.T) {
	clk := at(time.Unix(1577934245, 0))
	s := oldredis.MustNew("7.0", oldredis.Options{Clock: clk, Refuse: []string{"TIME", "EXPIREAT"}})
	defer s.Close()
	if _, _, err := probe.Offset(t.Context(), compat.Pooled(s), clk, probe.Options{}); !errors.Is(err, probe.ErrNoClock) {
		t.Error(err)
	}
	empty(t, s)
}

// On one computer both clocks are the same.
func TestOffsetReal(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"--rename-command", "TIME", ""},
		{"--rename-command", "TIME", "", "--rename-command", "PTTL", ""},
	} {
		source := poolOf(t, realredis.Start(t, args...))
		var got, off time.Duration
		var err error
		for late := time.Now().Add(time.Minute); ; { // it can't be measured while the machine stands still
			got, off, err = probe.Offset(t.Context(), compat.Pooled(source), nil, probe.Options{Timeout: time.Minute})
			if err == nil || time.Now().After(late) {
				break
			}
			t.Logf("%q: again: %v", args, err)
		}
		if err != nil || got.Abs() > off {
			t.Errorf("%q: %v ± %v, %v", args, got, off, err)
		}
		t.Logf("%q: %v ± %v", args, got, off)
	}
}
