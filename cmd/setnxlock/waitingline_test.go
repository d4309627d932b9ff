package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/internal/must"
)

// heldBy is a lock that is held for so long, or without an end.
func heldBy(owner string, until time.Time) verdict.Verdict {
	v := verdict.Verdict{Owner: owner}
	if v.Status, v.Until = protocol.StatusHeld, until; until.IsZero() {
		v.Status = protocol.StatusPersistent
	}
	return v
}

// Off a terminal a wait is told once at its beginning, and once every five minutes with who holds the
// lock then; a wait that is over soon is not told. In between the key is looked at as seldom.
func TestWaitingLineStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var told []string
		looks := 0
		l := &waitingLine{out: must.Get(os.Open(os.DevNull))(t), began: began, say: func(format string, args ...any) {
			told = append(told, fmt.Sprintf("%v ", time.Since(began))+fmt.Sprintf(format, args...))
		}}
		look := func(context.Context) ([]verdict.Verdict, error) {
			looks++
			switch took := time.Since(began); {
			case looks == 1: // between two holders
				return []verdict.Verdict{{State: protocol.State{Status: protocol.StatusFree}}}, nil
			case looks == 2:
				return nil, errors.New("no answer")
			case looks == 3: // its own, while the server's reply is on its way
				return []verdict.Verdict{heldBy("web-1:4711/backup", time.Now().Add(time.Minute))}, nil
			case took < 6*time.Minute:
				return []verdict.Verdict{heldBy("web-2:13127/backup", time.Now().Add(time.Minute))}, nil
			}
			other := heldBy("web-3:7", time.Time{}) // of several keys
			other.Key = "y"
			return []verdict.Verdict{{Obtainable: true}, other}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
		defer cancel()
		l.watch(ctx, &target{says: `"x"`, looks: look, owner: "web-1:4711/backup"})
		at := func(d time.Duration, layout string) string { return began.Add(d).Local().Format(layout) }
		first := 6500 * time.Millisecond
		if want := []string{
			`6.5s waiting for "x": backup@web-2 (13127) since ` + at(first, "15:04") + ", until " + at(first+time.Minute, "15:04:05") + " unless renewed",
			`5m6.5s waiting for "x": backup@web-2 (13127) since ` + at(first, "15:04") + ", until " + at(first+6*time.Minute, "15:04:05") + " unless renewed",
			`10m6.5s waiting for "y": web-3 (7) since ` + at(first+10*time.Minute, "15:04") + ", with no end",
		}; !slices.Equal(told, want) || looks != 6 {
			t.Errorf("%d looks; told\n%q, want\n%q", looks, told, want)
		}
	})
}

// What is waited for from the first moment, a server say, is told when the wait has lasted.
func TestWaitingLineIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		l := &waitingLine{out: must.Get(os.Open(os.DevNull))(t), began: time.Now(), say: func(string, ...any) { told++ }}
		for range 4000 { // every 100 ms: 6 minutes and 40 seconds
			l.says(func(int) string { return "no server" })
			if time.Since(l.began) < lineAfter && told > 0 {
				t.Fatal("told at once")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if told != 2 {
			t.Errorf("told %d times", told)
		}
	})
}

// A line that is too narrow for all loses the end of the lease last.
func TestWaitingLineFits(t *testing.T) {
	local := time.Local
	time.Local = time.UTC
	defer func() { time.Local = local }()
	since := time.Now().UTC().Truncate(time.Minute)
	until := since.Add(7*time.Minute + 38*time.Second)
	from, to := since.Format("15:04"), until.Format("15:04:05")
	for _, c := range []struct {
		width int
		owner string
		want  string
	}{
		{80, "web-2:13127/backup", `waiting for "x": backup@web-2 (13127) since ` + from + ", until " + to + " unless renewed"},
		{79, "web-2:13127/backup", `waiting for "x": backup@web-2 (13127) since ` + from + ", until " + to},
		{79, "web-2.internal.example.com:13127/nightly-report", `waiting for "x": nightly-report@web-2.internal.exa… since ` + from + ", until " + to},
		{50, "web-2:13127/backup", `waiting for "x": backup@web-2 (13…, until ` + to},
		{40, "web-2:13127/backup", `waiting for "x": backup…, until ` + to},
		{79, "web-2:13127", `waiting for "x": web-2 (13127) since ` + from + ", until " + to + " unless renewed"},
	} {
		got := waitsFor(`"x"`, holderOf(heldBy(c.owner, until)), since, heldBy(c.owner, until))(c.width)
		if got != c.want || utf8.RuneCountInString(got) > c.width {
			t.Errorf("%d columns: %q, want %q", c.width, got, c.want)
		}
	}
	if got, far := clockOf(since.Add(72*time.Hour)), since.Add(72*time.Hour).Format("2006-01-02 15:04"); got != far {
		t.Errorf("%q, want %q", got, far)
	}
}
