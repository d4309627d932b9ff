package duration_test

import (
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/duration"
	"github.com/spf13/pflag"
)

func TestPlainNumbersAreSeconds(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "0": 0, "0.25": 250 * time.Millisecond, ".5": 500 * time.Millisecond, "-1": -time.Second, "+3": 3 * time.Second,
		"90s": 90 * time.Second, "1m30s": 90 * time.Second, "100ms": 100 * time.Millisecond, "0010": 10 * time.Second,
	} {
		if d, err := duration.Parse(text); err != nil || d != want {
			t.Errorf("%q: %v, %v; want %v", text, d, err, want)
		}
	}
	for _, text := range []string{"", " ", "5 ", "soon", "5m3", "1e3", "0x10", "inf", ".", "-", "1.2.3", "5d", "99999999999999"} {
		if d, err := duration.Parse(text); err == nil {
			t.Errorf("%q is read as %v", text, d)
		}
	}
}

// What a flag shows, it reads: hints have the flags of the command line that they rebuild.
func TestFlagsReadWhatTheyShow(t *testing.T) {
	var d time.Duration
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	duration.Var(f, &d, "ttl", 30*time.Second, "")
	if d != 30*time.Second || f.Lookup("ttl").DefValue != "30s" {
		t.Errorf("%v, %q", d, f.Lookup("ttl").DefValue)
	}
	if err := f.Parse([]string{"--ttl", "90"}); err != nil || d != 90*time.Second {
		t.Errorf("%v, %v", d, err)
	}
	if err := f.Parse([]string{"--ttl", f.Lookup("ttl").Value.String()}); err != nil || d != 90*time.Second {
		t.Errorf("%v, %v", d, err)
	}
	if err := f.Parse([]string{"--ttl", "soon"}); err == nil || d != 90*time.Second {
		t.Errorf("%v, %v", d, err)
	}
}

func TestListsOfDurations(t *testing.T) {
	var all []time.Duration
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	duration.SliceVar(f, &all, "skew", "")
	if err := f.Parse([]string{"--skew", "0,3", "--skew=-1m"}); err != nil || f.Lookup("skew").Value.String() != "0s,3s,-1m0s" || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
	if err := f.Parse([]string{"--skew", "4,x"}); err == nil || len(all) != 3 {
		t.Errorf("%v, %v", all, err)
	}
}
