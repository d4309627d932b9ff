package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/internal/must"
	"golang.org/x/sys/unix"
)

// onTerminal runs setnxlock on a terminal so many columns wide and returns what
// is shown there.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) string {
	t.Helper()
	shown, _ := answered(t, columns, env, "", args...)
	return shown
}

// answered runs setnxlock on a terminal on which somebody types, and returns what is shown there.
func answered(t *testing.T, columns uint16, env []string, types string, args ...string) (shown string, status int) {
	t.Helper()
	cmd, master := startOnTerminal(t, columns, env, args...)
	defer master.Close()
	must.Get(io.WriteString(master, types))(t)
	b, _ := io.ReadAll(master) // ends in EIO when the last one has closed the terminal
	cmd.Wait()                 //nolint:errcheck // the status is the caller's to judge
	return strings.ReplaceAll(string(b), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

// startOnTerminal starts setnxlock on a terminal, and returns the other end of that.
func startOnTerminal(t *testing.T, columns uint16, env []string, args ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	master := must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))(t)
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must.Do(t, err)
	must.Do(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	must.Do(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns}))
	tty := must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	cmd := exec.Command("setnxlock", args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	must.Do(t, cmd.Start())
	tty.Close()
	return cmd, master
}

// Who waits at a terminal is told for whom, on one line that is gone afterwards and has the end of the
// lease at any width; elsewhere, and on a terminal whose lines can't be wiped, on one line that stays.
func TestWaitingLine(t *testing.T) {
	t.Parallel()
	address := startServer(t, "2.4")
	env := using(address)
	full := `waiting for "job": somebody since \d\d:\d\d, until \d\d:\d\d:\d\d unless renewed`
	for _, columns := range []uint16{40, 80, 200} {
		ask(t, address, "SETEX", "job", 1000, "somebody")
		cmd, master := startOnTerminal(t, columns, env, "run", "--wait", "1m", "job", "--", "echo", "under the lock")
		var shown syncBuffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			io.Copy(&shown, master) //nolint:errcheck // EIO at the end
		}()
		until(t, "it tells the holder", func() bool { return strings.Contains(shown.String(), `waiting for "job": some`) })
		ask(t, address, "DEL", "job")
		<-read
		master.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		line, rest, _ := strings.Cut(shown.String(), "\r\x1b[K")
		if rest != "under the lock\r\n" {
			t.Errorf("left behind: %q", shown.String())
		}
		want := full
		if columns == 40 {
			want = `waiting for "job": some…, until \d\d:\d\d:\d\d`
		}
		for i, one := range strings.Split(strings.ReplaceAll(line, "\x1b[K", ""), "\r") {
			if i > 0 && !regexp.MustCompile(`^`+want+`$`).MatchString(one) || utf8.RuneCountInString(one) > int(columns) {
				t.Errorf("%d columns: %q", columns, one)
			}
		}
	}

	ask(t, address, "SETEX", "job", 1000, "somebody")
	var quiet string
	if status := enough([]string{"run", "-q", "--wait", "ENOUGH", "job", "--", "true"}, func(args []string) (status int) {
		quiet, status = answered(t, 200, env, "", args...)
		return status
	}); quiet != "" || status != statusBusy {
		t.Errorf("with -q: %d, %q", status, quiet)
	}
	cmd, master := startOnTerminal(t, 80, append(env, "TERM=dumb"), "run", "job", "--", "true")
	defer master.Close()
	dumb, _ := bufio.NewReader(master).ReadString('\n')
	ask(t, address, "DEL", "job")
	rest, _ := io.ReadAll(master)
	if err := cmd.Wait(); err != nil || !regexp.MustCompile(`^setnxlock: `+full+"\r\n$").MatchString(dumb) || len(rest) > 0 {
		t.Errorf("on a dumb terminal: %q and %q, %v", dumb, rest, err)
	}
	if shown := onTerminal(t, 200, env, "run", "--redis", "127.0.0.1:1", "--wait", "1s", "job", "--", "true"); !strings.Contains(shown, "\rwaiting for the server: can't connect to 127.0.0.1:1: ") {
		t.Errorf("without a server: %q", shown)
	}
}

// A survey fits its terminal: of long keys the middle is left out, and elsewhere nothing is.
func TestSurveyFitsTheTerminal(t *testing.T) {
	t.Parallel()
	address := startServer(t, "7.0")
	long := "app:" + strings.Repeat("of:many:parts:", 8) + "lock"
	put(t, address, onKey{long, someUUID, 600}, onKey{"lock:a", "1700000000", 0}, onKey{"lock:b", someHex, 0}, onKey{"own", "setnxlock:web1:47/nightly:" + someHex, 600})
	for i := range 3 {
		put(t, address, onKey{fmt.Sprintf("user:%d:%s", i, strings.Repeat("last:seen:", 8)), "1795230000", 0})
	}
	for _, columns := range []uint16{60, 80, 100} {
		_, shown, _ := strings.Cut(onTerminal(t, columns, using(address), "survey"), "KEY ")
		for line := range strings.Lines("KEY " + shown) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > int(columns) {
				t.Errorf("%d columns: %d in %q", columns, n, line)
			}
		}
		for _, want := range []string{"KEY +STATUS +UNTIL +OWNER OR LIKE", `app:of:.*….*:lock +held `, `own +held .*nightly@web1 \(47\)`, `lock:a +dead `, `user:\*:.*….*seen:`, "7 of 7 keys"} {
			if !regexp.MustCompile(`(?m)^` + want).MatchString("KEY " + shown) {
				t.Errorf("%d columns: no %s in\n%s", columns, want, shown)
			}
		}
	}
	if all, _ := command(t, address, "survey"); !strings.Contains(all, long+"  held") || strings.Contains(all, "…") {
		t.Errorf("off a terminal: %s", all)
	}
}

// A terminal gets colours and lines that fit it, and NO_COLOR is heard.
func TestRaceFitsTheTerminal(t *testing.T) {
	escapes := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for _, columns := range []uint16{60, 120} {
		shown := onTerminal(t, columns, nil, "race", "show", "--step", "8", "double-takeover")
		if !escapes.MatchString(shown) {
			t.Errorf("%d columns: no colour", columns)
		}
		for line := range strings.SplitSeq(escapes.ReplaceAllString(shown, ""), "\n") {
			if utf8.RuneCountInString(line) > int(columns) && !strings.Contains(line, "http") && !strings.Contains(line, "race replay") {
				t.Errorf("%d columns: %q", columns, line)
			}
		}
		plain := onTerminal(t, columns, []string{"NO_COLOR=1"}, "race", "show", "--step", "8", "double-takeover")
		if plain != escapes.ReplaceAllString(shown, "") {
			t.Errorf("%d columns: with NO_COLOR another text:\n%s", columns, plain)
		}
	}
}

// The bar tells how far a search is, and leaves nothing behind.
func TestExploreShowsHowFarItIs(t *testing.T) {
	shown := onTerminal(t, 80, []string{"NO_COLOR=1"}, "race", "explore", "--algorithm", "tx:classic", "--faults", "lost=1")
	bar := regexp.MustCompile(`\r\[[.#]{20}\]  [0-9,]+ states  [0-9,]+/s  [0-9]+ MB  depth [0-9]+  [0-9.]+ \x1b\[Ks`)
	if !bar.MatchString(shown) {
		t.Errorf("no bar in %q", shown)
	}
	last := shown[strings.LastIndex(shown, "\r\x1b[K")+len("\r\x1b[K"):]
	if !strings.HasPrefix(last, "tx:classic on 2.4") {
		t.Errorf("the bar was not wiped away: %q", shown)
	}
	if quiet := onTerminal(t, 80, []string{"TERM=dumb"}, "race", "explore", "--algorithm", "tx:classic", "--attempts", "1"); strings.Contains(quiet, "\x1b") {
		t.Errorf("on a dumb terminal: %q", quiet)
	}
}

// A command at a terminal asks before it changes anything or holds up a server, says what an answer means, and does
// only what a yes allows.
func TestQuestionsPrecedeEveryChange(t *testing.T) {
	t.Parallel()
	old, real := startServer(t, "2.4"), startServer(t, "real")
	put(t, old, onKey{"job:fence:{job}", "900", 0}, onKey{"resque:lock:a", "1700000000", 0}, onKey{"page", "<html>", 0})
	leave(t, real, "--owner", "nightly", "job")
	fences := []string{"fences", "--remove", "job"}
	repair := []string{"repair", "--lease", "1s", "--match", "resque:lock:*"}
	const passed = "900\n1 counter of fences\nThe next fence of these locks is 1. A storage that remembers a higher one\n" +
		"refuses every holder until they have passed it. Remove the counters? [y/N] "
	for _, test := range []struct {
		args    []string
		types   string
		status  int
		says    []string
		address string
		key     string
		left    int64
	}{
		{fences, "n\n", 1, []string{passed}, old, "job:fence:{job}", 1},
		{fences, "\n", 1, []string{passed}, old, "job:fence:{job}", 1},
		{fences, "y\n", 0, []string{passed}, old, "job:fence:{job}", 0},
		{[]string{"release", "--force", "job"}, "n\n", 1, []string{"Remove it? Its holder, nightly@", "works on until its next renewal fails, and ends then", "nothing was changed"}, real, "job", 1},
		{[]string{"release", "--force", "job"}, "yes\n", 0, []string{"job: removed"}, real, "job", 0},
		{[]string{"release", "--force", "page"}, "\n", 1, []string{"It may be no lock: any text looks like this. Its holder is not told. It works on until it looks at the key again"}, old, "page", 1},
		{[]string{"release", "--force", "page"}, "y\n", 0, []string{"page: removed"}, old, "page", 0},
		{[]string{"survey"}, "n\n", 1, []string{"KEYS blocks it while it lists all keys (1). Go on? [y/N]", "nothing was changed"}, old, "resque:lock:a", 1},
		{[]string{"survey"}, "y\n", 0, []string{"KEYS blocks it while it lists all keys (1). Go on? [y/N]", "1 of 1 keys look like locks"}, old, "resque:lock:a", 1},
		{repair, "y\nresque-lock\nno\n", 1, []string{"These keys look like locks of node-resque, resque-lock", "Do this? [y/N]"}, old, "resque:lock:a", 1},
		{repair, "y\nresque-lock\nyes\n", 0, []string{"resque:lock:a: removed"}, old, "resque:lock:a", 0},
	} {
		shown, status := answered(t, 200, using(test.address), test.types, test.args...)
		if left := ask(t, test.address, "EXISTS", test.key); status != test.status || left != test.left {
			t.Errorf("%q, %q: status %d, %v are left:\n%s", test.args, test.types, status, left, shown)
		}
		for _, want := range test.says {
			if !strings.Contains(shown, want) {
				t.Errorf("%q, %q: no %q in\n%s", test.args, test.types, want, shown)
			}
		}
		if test.args[0] == "survey" && strings.Contains(shown, "resque:lock:a ") != (status == 0) {
			t.Errorf("%q: %s", test.types, shown)
		}
	}
}

// asked runs setnxlock on a terminal until it asks. end waits for its end, and returns what was shown.
func asked(t *testing.T, address, question string, args ...string) (cmd *exec.Cmd, master *os.File, end func() (shown string)) {
	t.Helper()
	cmd, master = startOnTerminal(t, 200, using(address), args...)
	var shown syncBuffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(&shown, master) //nolint:errcheck // EIO at the end
	}()
	until(t, "it asks", func() bool { return strings.Contains(shown.String(), question) })
	return cmd, master, func() string {
		cmd.Wait() //nolint:errcheck // the status is the caller's to judge
		<-read
		master.Close()
		return strings.ReplaceAll(shown.String(), "\r\n", "\n")
	}
}

// A signal ends a command that asks, and nothing is changed.
func TestSignalsAnswerQuestions(t *testing.T) {
	t.Parallel()
	address := startServer(t, "2.4")
	put(t, address, onKey{"job:fence:{job}", "900", 0}, onKey{"resque:lock:a", "1700000000", 0})
	for _, test := range []struct {
		asks string
		args []string
	}{
		{"Do this?", []string{"repair", "--lease", "1s", "--dialect", "resque-lock", "resque:lock:a"}},
		{"Whose are they", []string{"repair", "--lease", "1s", "resque:lock:a"}},
		{"Go on?", []string{"repair", "--lease", "1s", "--match", "resque:*"}},
		{"Remove it?", []string{"release", "--force", "resque:lock:a"}},
		{"Remove the counters?", []string{"fences", "--remove", "job"}},
	} {
		for _, sig := range []os.Signal{os.Interrupt, unix.SIGTERM} {
			cmd, _, end := asked(t, address, test.asks, test.args...)
			must.Do(t, cmd.Process.Signal(sig))
			over := time.AfterFunc(patience, func() { cmd.Process.Kill() }) //nolint:errcheck // it is gone
			end()
			if !over.Stop() || cmd.ProcessState.Success() {
				t.Errorf("%q, %v: it does not end, %v", test.args, sig, cmd.ProcessState)
			}
		}
	}
	for _, key := range []string{"job:fence:{job}", "resque:lock:a"} {
		if ask(t, address, "EXISTS", key) != int64(1) {
			t.Errorf("%q was removed", key)
		}
	}
}

// What changes between the question and the answer stays as it is, and what was removed before is told.
func TestAnswersComeTooLate(t *testing.T) {
	t.Parallel()
	address := startServer(t, "7.0")
	for _, test := range []struct {
		asks, says string
		args       []string
		change     []any // of the keys, before the answer
		stays      string
	}{
		{"Remove them?", `"b" has changed since it was shown: it was not removed`, []string{"release", "--force", "a", "b"}, []any{"SET", "b", someHex}, "b"},
		{"Remove it?", "1 of 3 holders were removed before this\nsetnxlock: \"sem\" has changed since it was shown: the rest was not removed", []string{"release", "--force", "sem"}, []any{"DEL", "sem:2:{sem}"}, "sem:3:{sem}"},
		{"Do this?", "lock:owner:two: changed", []string{"repair", "--lease", "1s", "--dialect", "mlanett-redis-lock", "two"}, []any{"EXPIRE", "lock:owner:two", 600}, "lock:owner:two"},
	} {
		put(t, address, onKey{"a", someUUID, 600}, onKey{"b", someUUID, 600}, onKey{"lock:owner:two", "host:1", 0}, onKey{"lock:expire:two", "1700000000", 0})
		for range 3 {
			leave(t, address, "--limit", "3", "sem")
		}
		_, master, end := asked(t, address, test.asks, test.args...)
		ask(t, address, test.change[0].(string), test.change[1:]...)
		must.Get(io.WriteString(master, "y\n"))(t)
		if shown := end(); !strings.Contains(shown, test.says) {
			t.Errorf("%q: no %q in\n%s", test.args, test.says, shown)
		}
		if ask(t, address, "EXISTS", test.stays) != int64(1) {
			t.Errorf("%q: %s was removed", test.args, test.stays)
		}
		ask(t, address, "FLUSHALL")
	}
}
