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

	"golang.org/x/sys/unix"
)

// onTerminal runs setnxlock on a terminal so many columns wide and returns what
// is shown there.
func onTerminal(t *testing.T, columns uint16, env []string, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
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
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("setnxlock", args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm"), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	shown, _ := io.ReadAll(master) // ends in EIO when the last one has closed the terminal
	cmd.Wait()                     //nolint:errcheck // the status is the scripts' to test
	return strings.ReplaceAll(string(shown), "\r\n", "\n")
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
	bar := regexp.MustCompile(`\r\[[.#]{20}\]  [0-9,]+ states  [0-9,]+/s  depth [0-9]+  [0-9.]+ s\x1b\[K`)
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
