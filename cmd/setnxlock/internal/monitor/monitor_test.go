package monitor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

// The published GETSET lock, as it breaks: C1 is late, C2 takes over, C1's DEL removes C2's lock, and C3 takes it too.
const classic = `OK
1700000000.000000 [0 10.0.0.1:1] "SETNX" "lock.report" "1700000010.0"
1700000001.000000 [0 10.0.0.2:1] "SETNX" "lock.report" "1700000011.0"
1700000001.100000 [0 10.0.0.2:1] "GET" "lock.report"
1700000001.200000 [0 10.0.0.2:1] "GET" "lock.report"
1700000002.000000 [0 10.0.0.9:1] "PING"
1700000012.000000 [0 10.0.0.2:1] "SETNX" "lock.report" "1700000022.0"
1700000012.000100 [0 10.0.0.2:1] "GET" "lock.report"
1700000012.000200 [0 10.0.0.2:1] "GETSET" "lock.report" "1700000022.1"
1700000013.000000 [0 10.0.0.1:1] "DEL" "lock.report"
1700000014.000000 [0 10.0.0.3:1] "SETNX" "lock.report" "1700000024.0"
`

func TestViolationsAreFound(t *testing.T) {
	log := must.Get(Read(classic, Options{}))(t)
	tr := log.Trace
	if v := tr.Verdict; v.Violated != "exclusion" || v.Step != 8 || tr.Events[7].Violation.Text != "C2 and C3 both hold the lock" {
		t.Errorf("%+v", v)
	}
	if v := tr.Events[6].Violation; v == nil || v.Invariant != "ownership" || v.Text != "C1 removed the lock of C2" {
		t.Errorf("step 7: %+v", v)
	}
	for i, want := range []string{
		"0 C1 SETNX t=10s → 1: C1 takes the lock: the key was free. t=10s",
		"1000 C2 SETNX t=11s → 0: C2 is refused: C1 holds the lock. t=10s",
		"1100 C2 GET → t=10s: C2 looks at the key. t=10s", // the second look says the same
		"12000 C2 SETNX t=22s → 0: C2 is refused: the key is there. t=10s",
		"12000 C2 GET → t=10s: C2 looks at the key. t=10s",
		"12000 C2 GETSET t=22.1s → t=10s: C2 takes the lock over: the time on the key was past. t=22.1s",
		"13000 C1 DEL → 1: C1 removes the lock of C2. ",
		"14000 C3 SETNX t=24s → 1: C3 takes the lock: the key was free. t=24s",
	} {
		if i >= len(tr.Events) {
			t.Fatalf("%d steps", len(tr.Events))
		}
		e := tr.Events[i]
		got := strings.Join([]string{race.Seconds(e.At * 1000)[:len(race.Seconds(e.At*1000))-1], " ", e.Who, " ", e.Cmd, " → ", e.Reply, ": ", e.Why, " ", e.Server.Value}, "")
		if got != want {
			t.Errorf("step %d:\n%s\n%s", i+1, got, want)
		}
	}
	if f := log.Follows; len(f) != 3 || strings.Join(f[1].Does, ", ") != "takes it with SETNX, takes it over with GETSET" || f[1].Like[0] != "getset:classic" {
		t.Errorf("%+v", f)
	}
	var b bytes.Buffer
	must.Do(t, tr.WriteJSON(&b))
	if _, err := race.ReadTrace(&b); err != nil {
		t.Errorf("it is no trace: %v", err)
	}
}

// A release over another connection of the same pool is the holder's, if it knows the token.
func TestPooled(t *testing.T) {
	log := must.Get(Read(`1700000000.000000 [2 10.0.0.1:1] "set" "l" "94213c24e0f911f0a9d30242ac120002" "NX" "PX" "30000"
1700000001.000000 [2 10.0.0.1:2] "evalsha" "a42059b356c875f0717db19a51f6aaca9ae659ea" "1" "l" "94213c24e0f911f0a9d30242ac120002"
1700000001.000010 [2 lua] "get" "l"
1700000001.000020 [2 lua] "del" "l"
1700000002.000000 [0 10.0.0.1:3] "set" "l" "of another database" "NX"
1700000003.000000 [2 10.0.0.1:3] "set" "l" "94213c24e0f911f0a9d30242ac120003" "NX" "PX" "30000"
1700000004.000000 [2 10.0.0.1:3] "watch" "l"
1700000004.000100 [2 10.0.0.1:3] "multi"
1700000004.000200 [2 10.0.0.1:3] "exec"
`, Options{}))(t)
	if v := log.Trace.Verdict; v.Violated != "" || len(log.Follows) != 2 || log.Follows[0].Address != "10.0.0.1:1, 10.0.0.1:2" {
		t.Errorf("%+v, %+v", v, log.Follows)
	}
	if e := log.Trace.Events[1]; e.Cmd != "evalsha a42059… «C1»" || e.Reply != "get → «C1», del → 1" || e.Why != "C1 looks at the key; C1 releases the lock." {
		t.Errorf("%+v", e)
	}
	if e := log.Trace.Events[len(log.Trace.Events)-1]; e.Cmd != "MULTI; EXEC" || e.Reply != "nil" {
		t.Errorf("an EXEC that ran nothing: %+v", e)
	}
}

func TestReadRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "the log has no line of MONITOR's",
		"hello":                        "line 1 is none of MONITOR's",
		`1700000000.000000 "get" "k"`:  "names no client",
		`1.000000 (db 2) "get" "k"`:    "names no client",
		`1.000000 [0 a:1] "get" "k`:    "none of MONITOR's",
		`1.000000 [0 a:1] "get" "k"`:   "no key that is taken as a lock is",
		`1.000000 [0 a:1] "get" x "k"`: "no quoted argument",
	} {
		if _, err := Read(text, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Read(classic, Options{Key: "other"}); err == nil || !strings.Contains(err.Error(), `concerns the key "other"`) {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(classic)
	f.Add(`1.000000 [0 a:1] "eval" "x" "1" "k" "\x00\"\\"` + "\n" + `1.000000 [0 lua] "set" "k" "v" "PX" "9223372036854775807"`)
	f.Add(`9999999999999.000000 [3 a:1] "setnx" "k" "1e308"` + "\n" + `0.000000 [3 a:1] "expire" "k" "-9223372036854775808"`)
	f.Fuzz(func(t *testing.T, text string) {
		log, err := Read(text, Options{})
		if err != nil {
			return
		}
		var b bytes.Buffer
		must.Do(t, log.Trace.WriteJSON(&b))
		if _, err := race.ReadTrace(&b); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
