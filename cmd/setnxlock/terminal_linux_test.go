package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/internal/must"
	"golang.org/x/sys/unix"
)

// onTerminal runs setnxlock on a terminal so many columns wide and returns what
// is shown there.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) string {
	t.Helper()
	cmd, master := startOnTerminal(t, columns, env, args...)
	defer master.Close()
	shown, _ := io.ReadAll(master) // ends in EIO when the last one has closed the terminal
	cmd.Wait()                     //nolint:errcheck // the status is the scripts' to test
	return strings.ReplaceAll(string(shown), "\r\n", "\n")
}

// startOnTerminal starts setnxlock on a terminal, and returns the other end of that.
func startOnTerminal(t *testing.T, columns uint16, env []string, args ...string) (*exec.Cmd, *os.File) {
	t.Helper()
	master := must.Get(os.OpenFile("/dev/ptmx", os.O_RDWR, 0))(t)
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: columns})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty := must.Get(os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	cmd := exec.Command("setnxlock", args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	must.Do(t, cmd.Start())
	tty.Close()
	return cmd, master
}

// Who waits at a terminal is told for whom, on one line that is gone afterwards; elsewhere, and
// on a terminal whose lines can't be wiped, nothing is told.
func TestWaitingLine(t *testing.T) {
	t.Parallel()
	address := startOld(t, "2.4")
	env := []string{"SETNXLOCK_REDIS=" + address}
	for _, columns := range []uint16{40, 200} {
		ask(t, address, "SETEX", "job", 1000, "somebody")
		cmd, master := startOnTerminal(t, columns, env, "run", "--wait", "1m", "job", "--", "echo", "under the lock")
		var shown syncBuffer
		read := make(chan struct{})
		go func() {
			defer close(read)
			io.Copy(&shown, master) //nolint:errcheck // EIO at the end
		}()
		until(t, "it tells the holder", func() bool { return strings.Contains(shown.String(), `"job" is held by somebody`) })
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
		told := regexp.MustCompile(`^\rsetnxlock: "job" is held by somebody, seen since \d\d:\d\d:\d\d, until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC unless it is renewed; waiting for \d+s\x1b\[K`)
		if columns == 200 && !told.MatchString(line) {
			t.Errorf("%q", line)
		}
		for one := range strings.SplitSeq(strings.ReplaceAll(line, "\x1b[K", ""), "\r") {
			if utf8.RuneCountInString(one) >= int(columns) {
				t.Errorf("%d columns: %q", columns, one)
			}
		}
	}

	ask(t, address, "SETEX", "job", 1000, "somebody")
	if shown := onTerminal(t, 80, append(env, "TERM=dumb"), "run", "--wait", "1s", "job", "--", "true"); strings.Contains(shown, "\r") || strings.Contains(shown, "waiting") {
		t.Errorf("on a dumb terminal: %q", shown)
	}
	if _, errs, _ := cli(t, env, "run", "--wait", "1s", "job", "--", "true"); strings.Contains(errs, "waiting") || strings.Contains(errs, "\r") {
		t.Errorf("without a terminal: %q", errs)
	}
	if shown := onTerminal(t, 200, env, "run", "--redis", "127.0.0.1:1", "--wait", "1s", "job", "--", "true"); !strings.Contains(shown, "\rsetnxlock: no connection to 127.0.0.1:1: ") {
		t.Errorf("without a server: %q", shown)
	}
}

// A terminal gets colours and lines that fit it, and NO_COLOR is heard.
func TestRaceOnTerminal(t *testing.T) {
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
func TestRaceExploreBar(t *testing.T) {
	shown := onTerminal(t, 80, []string{"NO_COLOR=1"}, "race", "explore", "--algorithm", "tx:classic", "--faults", "lost=1")
	bar := regexp.MustCompile(`\r\[[.#]{20}\]  [0-9,]+ states  [0-9,]+/s  [0-9]+ MB  depth [0-9]+  [0-9.]+ s\x1b\[K`)
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
