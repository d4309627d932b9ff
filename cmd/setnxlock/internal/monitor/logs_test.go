package monitor

import (
	"os"
	"strings"
	"testing"

	"github.com/setnxlock/setnxlock/compat/race"
	"github.com/setnxlock/setnxlock/internal/must"
)

// logOf is what a log of testdata says, and its steps.
func logOf(t *testing.T, text string) (Log, string) {
	t.Helper()
	log := must.Get(Read(text, Options{}))(t)
	for _, e := range log.Trace.Events {
		t.Logf("%2d %6dms %s %s → %s: %s %q", e.N, e.At, e.Who, e.Cmd, e.Reply, e.Why, e.Server.Value)
	}
	return log, strings.Join(log.Says, "\n")
}

func read(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile("testdata/" + name))(t))
}

// Redisson's hash locks are held, renewed over another connection and released; the field is the holder.
func TestRedissonsFieldIsTheHolder(t *testing.T) {
	log, says := logOf(t, read(t, "redisson.log"))
	want := `C1 held it from 0s to 11.9s, and released it.
C2 held it from 12s, and has it at the end of the log: its lease lasts to 42s.
As far as the log tells, no two clients held it at once, and nobody removed another's lock.`
	if says != want || log.Trace.Verdict.Violated != "" || log.Skipped.Lines != 0 {
		t.Errorf("%s\n%+v", says, log.Trace.Verdict)
	}
	if f := log.Follows; len(f) != 2 || f[0].Address != "10.0.0.1:61000, 10.0.0.1:61002" {
		t.Errorf("%+v", f)
	}
	if e := log.Trace.Events[1]; e.Why != "C2 is refused: C1 holds the lock." || e.Server.Value != "«C1»" {
		t.Errorf("%+v", e)
	}
	if e := log.Trace.Events[2]; e.Who != "C1" || e.Belief["C1"].Until != 40000 {
		t.Errorf("the renewal over another connection: %+v", e)
	}
}

// A hash lock that its holder takes twice is released by the second unlock; one whose lease is over is another's, and
// forceUnlock removes it.
func TestHashLocksAreCounted(t *testing.T) {
	const script = `1720000000.%s [0 10.0.0.%s:1] "EVAL" "s" "1" "l" "30000" "%s"` + "\n"
	const a, b = "11111111-2222-4333-8444-555555555555:46", "66666666-7777-4888-8999-000000000000:51"
	lua := func(at, cmd string) string { return "1720000000." + at + " [0 lua] " + cmd + "\n" }
	eval := func(at, host, id string) string {
		return strings.NewReplacer().Replace(strings.Replace(strings.Replace(strings.Replace(script, "%s", at, 1), "%s", host, 1), "%s", id, 1))
	}
	text := eval("000001", "1", a) + lua("000002", `"hincrby" "l" "`+a+`" "1"`) + lua("000003", `"pexpire" "l" "30000"`) +
		eval("100001", "1", a) + lua("100002", `"hincrby" "l" "`+a+`" "1"`) + lua("100003", `"pexpire" "l" "30000"`) +
		eval("200001", "1", a) + lua("200002", `"hexists" "l" "`+a+`"`) + lua("200003", `"hincrby" "l" "`+a+`" "-1"`) + lua("200004", `"pexpire" "l" "30000"`)
	log, _ := logOf(t, text)
	last := log.Trace.Events[len(log.Trace.Events)-1]
	if log.Trace.Events[1].Server.Value != "«C1» ×2" || last.Server.Value != "«C1»" || last.Belief["C1"].State != race.Holds {
		t.Errorf("taken twice: %+v", last)
	}
	forced := text + eval("300001", "2", b) + lua("300002", `"del" "l"`) + eval("400001", "2", b) + lua("400002", `"hincrby" "l" "`+b+`" "1"`) + lua("400003", `"pexpire" "l" "30000"`)
	_, says := logOf(t, forced)
	for _, want := range []string{"C2 removed the lock of C1 at 0.3s (step 4).", "Two held it: C1 and C2 from 0.4s to 30.2s (step 5)."} {
		if !strings.Contains(says, want) {
			t.Errorf("forceUnlock: no %q in\n%s", want, says)
		}
	}
	readers := eval("000001", "1", a) + lua("000002", `"hset" "l" "mode" "read"`) + lua("000003", `"hset" "l" "`+a+`" "1"`) + lua("000004", `"pexpire" "l" "30000"`) +
		eval("100001", "2", b) + lua("100002", `"hget" "l" "mode"`) + lua("100003", `"hincrby" "l" "`+b+`" "1"`) + lua("100004", `"pexpire" "l" "30000"`)
	if log, says := logOf(t, readers); log.Trace.Verdict.Violated != "" || len(log.Held) != 2 || len(log.Both) != 0 {
		t.Errorf("two readers: %s", says)
	}
}

// The server's own compare-and-set is what the server made of it.
func TestServersCompareAndSet(t *testing.T) {
	log, says := logOf(t, read(t, "newcmds.log"))
	if want := `C1 held it from 0s to 5s, and released it.
C2 held it from 6s to 7.9s, and released it.
As far as the log tells, no two clients held it at once, and nobody removed another's lock.`; says != want {
		t.Errorf("%s", says)
	}
	for i, want := range []string{"C1 takes the lock.", "C1 extends its lease.", "C2 is refused: C1 holds the lock.", "C1 releases the lock.", "C2 takes the lock.", "C2 releases the lock."} {
		if e := log.Trace.Events[i]; e.Why != want {
			t.Errorf("step %d: %q, want %q", i+1, e.Why, want)
		}
	}
	for text, want := range map[string]string{
		// SET NX GET answers with the value that is there, or nil if it took the lock.
		`1720000000.100000 [0 a:1] "SET" "l" "A" "NX" "GET" "PX" "10000"
1720000000.200000 [0 a:2] "SET" "l" "B" "NX" "GET" "PX" "10000"`: "C1 takes the lock.|C2 is refused: C1 holds the lock.",
		// A release whose lease is over removes nothing of the next holder's.
		`1720000000.100000 [0 a:1] "SET" "l" "A" "NX" "PX" "1000"
1720000002.000000 [0 a:2] "SET" "l" "B" "NX" "PX" "10000"
1720000003.000000 [0 a:1] "DELIFEQ" "l" "A"
1720000003.500000 [0 a:1] "SET" "l" "A" "IFEQ" "A" "PX" "10000"`: "C1 takes the lock.|C2 takes the lock.|C1 removes nothing: the key is gone, or holds another value.|C1 is refused: C2 holds the lock.",
		// IFEQ with GET answers with the value, whether it wrote or not.
		`1720000000.100000 [0 a:1] "SET" "l" "A" "NX" "PXAT" "1720000010100"
1720000001.100000 [0 a:1] "SET" "l" "A" "IFEQ" "A" "GET" "EX" "20"
1720000012.000000 [0 a:2] "SET" "l" "B" "NX" "PX" "10000"`: "C1 takes the lock.|C1 extends its lease.|C2 is refused: C1 holds the lock.",
	} {
		log, says := logOf(t, text)
		var whys []string
		for _, e := range log.Trace.Events {
			whys = append(whys, e.Why)
		}
		if got := strings.Join(whys, "|"); got != want || log.Trace.Verdict.Violated != "" {
			t.Errorf("%s\n%s\n%s", got, want, says)
		}
	}
}

// A command that the model lacks makes no verdict, and is named.
func TestUnknownCommandsAreNotJudged(t *testing.T) {
	const text = `1720000000.100000 [0 a:1] "SET" "l" "A" "NX" "PX" "10000"
1720000000.200000 [0 a:1] "NEWLOCK.GIVE" "l" "B"
1720000000.300000 [0 a:2] "DEL" "l"
1720000000.400000 [0 a:3] "SET" "l" "C" "NX" "PX" "10000"
`
	log, says := logOf(t, text)
	if log.Trace.Verdict.Violated != "" || len(log.Both) != 0 || !strings.Contains(log.Unjudged, "NEWLOCK.GIVE") || !strings.Contains(log.Unjudged, "from step 2 on") ||
		strings.Contains(says, "As far as the log tells") {
		t.Errorf("%s", says)
	}
	if log, _ := logOf(t, strings.Replace(text, `"NEWLOCK.GIVE" "l" "B"`, `"SET" "l" "B" "IFDEQ" "0123456789abcdef"`, 1)); !strings.Contains(log.Unjudged, "IFDEQ") {
		t.Errorf("an option that it lacks: %q", log.Unjudged)
	}
}

// What is none of MONITOR's lines is skipped and counted; a container's time stamp before a line hides nothing.
func TestForeignLines(t *testing.T) {
	log, says := logOf(t, read(t, "warned.log"))
	if want := `C1 held it from 0s to 6s, and its lease ran out.
C2 held it from 6.999s to 12.999s as far as it knows: C1 removed it at step 4.
C1 removed the lock of C2 at 7.499s (step 4).
1 line is none of MONITOR's and skipped: line 1: "Warning: Using a password with '-a' or '-u' option on the co".`; says != want {
		t.Errorf("%s", says)
	}
	if log.Trace.Verdict.Violated != "ownership" {
		t.Errorf("%+v", log.Trace.Verdict)
	}
	plain := must.Get(Read(classic, Options{}))(t)
	var stamped strings.Builder
	for line := range strings.Lines(classic) {
		stamped.WriteString("2023-11-14T22:13:20.123456789Z " + line)
	}
	named := strings.ReplaceAll(stamped.String(), "2023", "redis-1  | 2023")
	for _, text := range []string{
		stamped.String(), named, "# a note\n" + classic + `1700000099.000000 [0 10.0.0.3:1] "SETNX" "lock.rep`, classic + `17000`,
		strings.ReplaceAll(classic, "\n", "\r\n"),
	} {
		log, _ := logOf(t, text)
		if log.Trace.Verdict != plain.Trace.Verdict || len(log.Trace.Events) != len(plain.Trace.Events) {
			t.Errorf("%+v of %d steps, want %+v of %d:\n%s", log.Trace.Verdict, len(log.Trace.Events), plain.Trace.Verdict, len(plain.Trace.Events), text)
		}
		if cut := strings.HasSuffix(text, "rep"); log.Skipped.Last != cut {
			t.Errorf("a cut last line: %+v", log.Skipped)
		}
	}
	if log, says := logOf(t, "# a note\n"+classic+`1700000099.000000 [0 10.0.0.3:1] "SETNX" "lock.rep`); log.Skipped.Lines != 2 || !strings.Contains(says, "the last line is cut off") {
		t.Errorf("%+v %s", log.Skipped, says)
	}
}
