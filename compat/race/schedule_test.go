package race

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/compat/race/internal/live"
	"github.com/setnxlock/setnxlock/internal/must"
)

func TestWords(t *testing.T) {
	for short, long := range map[string]string{
		"C1 C2 C1*":                "C1 C2.step C1 run",
		"C1- C2.sever C1.cut":      "C1 drop C2 sever C1 cut",
		"C1.refuse C2.refuse12":    "C1 refuse C2.refuse12",
		"C1.pause +9s C1.resume":   "C1 pause +9s C1 resume",
		"C1.clock+3s C2.clock-1s":  "C1 clock +3s C2.clock -1s",
		"redis.restart redis.reap": "redis restart redis reap",
		"C1.look +9.898s~ C1.stall C3.crash redis.failover redis.evict": "C1 look +9898ms~ C1 stall C3 crash redis failover redis evict",
	} {
		want, err := ParseWords(short)
		if err != nil {
			t.Errorf("%q: %v", short, err)
		}
		got, err := ParseWords(long)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, %v; want %v", long, got, err, want)
		}
		if s := Words(got); s != short {
			t.Errorf("%q is written as %q", short, s)
		}
	}
	for _, bad := range []string{"C", "C0", "c1", "C1.jump", "C1.clock", "C1.refuse1", "C1.refusex", "+x", "+-1s", "+1ns", "redis.sleep", "redis", "1"} {
		if got, err := ParseWords(bad); err == nil {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}

// A schedule is all that a replay needs.
func TestScheduleRoundTrip(t *testing.T) {
	for _, c := range []Config{
		{Algorithm: "tx:classic", Server: "2.2", Clients: 3, Attempts: 1},
		{Algorithm: "getset:classic+tx:guarded", Server: "7.0", Clients: 2, Attempts: 2, TTL: 5 * time.Second, Skew: []time.Duration{0, -3 * time.Second},
			Key: "a b", Given: []string{"SET {key} t=-2s", `SET "quoted" 1`}, Bare: true, Extend: true, Keep: true, Poll: true, Write: true, Fence: true,
			Invariants: []string{"exclusion"}, Within: time.Minute},
	} {
		line := Schedule(c, []Choice{{}, {Client: 1}})
		got, choices, err := ParseSchedule(line)
		if err != nil || !reflect.DeepEqual(got, c) || Words(choices) != "C1 C2" {
			t.Errorf("%s\nwas read as %+v %v, %v\nwant        %+v", line, got, choices, err, c)
		}
		if again := Schedule(got, choices); again != line {
			t.Errorf("%s\nis written as %s", line, again)
		}
	}
}

// A choice that can't be made where it stands is an error that says so, not a
// step that is skipped.
func TestReplayFailsLoudly(t *testing.T) {
	for line, want := range map[string]string{
		"tx:classic 2.4 2x1 : C3":                        "there is no C3",
		"tx:classic 2.4 2x1 : C1.crash C1":               "C1 is dead",
		"tx:classic 2.4 2x1 : C1.pause C1":               "C1 is paused",
		"tx:classic 2.4 2x1 : C1.resume":                 "C1 is paused: false",
		"tx:classic 2.4 2x1 : C1* C1":                    "C1 has made its last attempt",
		"tx:classic 2.4 2x1 : C1.cut":                    "first command of its write",
		"tx:classic 2.4 2x1 : C1.refuse2":                "nothing there that can be refused",
		"tx:guarded 2.4 2x1 : C1.refuse":                 "nothing there that can be refused",
		"tx:classic 2.4 2x1 : C1 C1-":                    "more commands follow",
		"tx:classic 2.4 2x1 : C1 C1 C1.sever":            "have run",
		"tx:classic 2.4 2x1 : C1 C1.look":                "not about to read its clock",
		"tx:classic 2.4 2x1 : C1.stall":                  "not about to read its clock for the end",
		"tx:classic 2.4 2x1 : C1 C1 C1.stall C1":         "waits for time to pass",
		"tx:classic 2.4 2x1 : redis.evict":               "no key to evict",
		"tx:classic 9.9 2x1 : C1":                        "no server",
		"tx:classical 2.4 2x1 : C1":                      "no algorithm",
		"tx:classic 2.4 2 : C1":                          "clients x attempts",
		"tx:classic 2.4 2x1 given=\"NOSUCH {key}\" : C1": "given",
	} {
		_, err := ReplaySchedule(line, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", line, err, want)
		}
	}
	_, err := ReplaySchedule("tx:classic 2.4 2x1 : C1.cut", nil)
	if !errors.As(err, new(live.Disabled)) {
		t.Errorf("%v is no errDisabled", err)
	}
}

// Every event says why, and what is true: nothing of it is empty.
func TestTracesAreComplete(t *testing.T) {
	tr := must.Get(ReplaySchedule("tx:renamed 2.4 2x2 write fence : C1 C1 C1 C1- C2.look +9.898s C1* C2 C2.cut C2* C1.pause redis.restart C1.resume C1 C2.crash", nil))(t)
	for _, e := range tr.Events {
		if e.Why == "" || e.Who == "" || e.Cmd == "" && e.Note == "" || len(e.Belief) != 2 || strings.Contains(e.Cmd+e.Reply+e.Server.Value, "0000007") {
			t.Errorf("event %d lacks something or shows a token: %+v", e.N, e)
		}
	}
}
