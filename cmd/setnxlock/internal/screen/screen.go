// Package screen is where the command shows something: a terminal, or a file.
package screen

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Screen is a terminal, where lines can move, or a file.
type Screen struct {
	W     io.Writer
	Live  bool // lines can move
	Color bool
}

// New examines out: a terminal, or a file.
func New(out *os.File) Screen {
	live := term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"
	return Screen{W: out, Live: live, Color: live && os.Getenv("NO_COLOR") == ""}
}

// Escaped escapes as in Go all characters that can't be printed, the ends of lines too: a terminal obeys none
// of the rest.
func Escaped(text string) string { return escaped(text, 0) }

func escaped(text string, but rune) string {
	plain := func(r rune) bool { return r == but || unicode.IsPrint(r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	var b strings.Builder
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		if plain(r) && (r != utf8.RuneError || n > 1) {
			b.WriteRune(r)
		} else {
			q := strconv.Quote(text[:n])
			b.WriteString(q[1 : len(q)-1])
		}
		text = text[n:]
	}
	return b.String()
}

// A Page passes on text with the ends of its lines, and escapes all else for a terminal.
type Page struct{ W io.Writer }

func (p Page) Write(text []byte) (int, error) {
	_, err := io.WriteString(p.W, escaped(string(text), '\n'))
	return len(text), err
}

// Paint colours text, where there is colour.
func (s Screen) Paint(code, text string) string {
	if !s.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s Screen) Good(text string) string { return s.Paint("32", text) }
func (s Screen) Bad(text string) string  { return s.Paint("31", text) }

// Progress shows how far something has come, on a terminal, until the function
// it returns has wiped the line away. of is -1 if nobody knows how far there is to go.
func (s Screen) Progress(name string, done func() int, of int) (stop func()) {
	return s.Line(0, 40*time.Millisecond, func(int, time.Duration) string { return "   " + name + progress(done(), of) })
}

// Line shows a line on a terminal, anew at intervals, until the function it returns has wiped it away.
// While it is empty nothing is shown.
func (s Screen) Line(first, every time.Duration, line func(n int, took time.Duration) string) (wipe func()) {
	if !s.Live {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		next := time.NewTimer(first)
		defer next.Stop()
		for n, drawn := 0, false; ; n++ {
			select {
			case <-next.C:
				next.Reset(every)
			case <-end:
				if drawn {
					io.WriteString(s.W, "\r\x1b[K") //nolint:errcheck // what can't be shown is not
				}
				return
			}
			if text := line(n, time.Since(began)); text != "" {
				io.WriteString(s.W, over(text)) //nolint:errcheck // likewise
				drawn = true
			}
		}
	}()
	return func() { close(end); <-ended }
}

// over writes a line in place of the one before. It erases the rest of that line before it writes the last
// character, which may stand in the last column: behind it the cursor is still on it.
func over(text string) string {
	_, n := utf8.DecodeLastRuneInString(text)
	if strings.Contains(text, "\x1b") { // colours: no character may be parted from its escape
		n = 0
	}
	return "\r" + text[:len(text)-n] + "\x1b[K" + text[len(text)-n:]
}

// progress draws a bar, or a count alone for an unknown total.
func progress(done, of int) string {
	if of <= 0 {
		return fmt.Sprintf("  %d", done)
	}
	done = min(max(done, 0), of)
	const width = 30
	full := width * done / of
	return fmt.Sprintf("  %3d%% |%s%s| (%d/%d)", 100*done/of, strings.Repeat("█", full), strings.Repeat(" ", width-full), done, of)
}

// Width returns the terminal's width, or 80.
func Width(out *os.File) int {
	if w, _, err := term.GetSize(int(out.Fd())); err == nil && w > 0 {
		return w
	}
	return 80
}

// Paragraph writes a text under a label, in lines of the width.
func Paragraph(label, text string, width int) string {
	var b strings.Builder
	line, indent := label, strings.Repeat(" ", len(label))
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return b.String() + strings.TrimRight(line, " ") + "\n"
}
