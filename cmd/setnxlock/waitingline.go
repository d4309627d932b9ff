package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"golang.org/x/term"
)

// A waitingLine shows the reason of a wait: at a terminal on one line that is drawn anew and wiped at the
// end; elsewhere, where lines stay, on one line at the beginning and one every few minutes. Its methods do
// nothing on nil: with -q nothing is shown.
type waitingLine struct {
	out   *os.File
	say   func(format string, args ...any) // nil at a terminal
	began time.Time
	erase func()

	mu   sync.Mutex
	text fitted
	said time.Time // when say was last called
}

const (
	lineAfter = 500 * time.Millisecond // a wait that is shorter tells nothing
	lineEvery = time.Second
	lookEvery = 2 * time.Second // at the key, for who holds it
	sayEvery  = 5 * time.Minute // and no look in between
)

// waitingLine begins one. Lines that stay take the place of the drawn one on a terminal whose lines
// can't be wiped, and where the log goes.
func (a *app) waitingLine() *waitingLine {
	if a.quiet {
		return nil
	}
	l := &waitingLine{out: a.errs, began: time.Now(), erase: func() {}}
	if terminal := screen.New(a.errs); terminal.Live && !a.verbose {
		l.erase = terminal.Line(lineAfter, lineEvery, l.line)
	} else {
		l.say = a.say
	}
	return l
}

// A fitted text has a form for each width of a line.
type fitted func(width int) string

// says sets the line's text.
func (l *waitingLine) says(text fitted) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
	now := time.Now()
	if l.say == nil || now.Sub(l.began) < lineAfter || !l.said.IsZero() && now.Sub(l.said) < sayEvery || !foreground(l.out) {
		return
	}
	l.said = now
	l.say("%s", text(1<<20))
}

// wipe ends the line, and leaves nothing behind that can be wiped.
func (l *waitingLine) wipe() {
	if l != nil {
		l.erase()
	}
}

func (l *waitingLine) line(int, time.Duration) string {
	l.mu.Lock()
	text := l.text
	l.mu.Unlock()
	if text == nil || !foreground(l.out) {
		return ""
	}
	width, _, err := term.GetSize(int(l.out.Fd()))
	if err != nil || width < 2 {
		width = 80
	}
	return cut(screen.Escaped(scrubbed(text(width))), width)
}

// cut shortens a text to width.
func cut(text string, width int) string {
	if r := []rune(text); len(r) > width {
		return string(r[:max(width-1, 0)]) + "…"
	}
	return text
}

// watch shows the holder of the target, until ctx is done.
func (l *waitingLine) watch(ctx context.Context, t *target) {
	if l == nil {
		return
	}
	every := lookEvery
	if l.say != nil {
		every = sayEvery
	}
	next := time.NewTimer(lineAfter)
	defer next.Stop()
	last, since := "", time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		all, err := t.looks(ctx)
		v, what := t.keepsOut(all)
		switch who := what + holderOf(v); {
		case err != nil || v.Status == protocol.StatusFree || v.Owner != "" && v.Owner == t.owner:
			last = ""
			next.Reset(lookEvery) // it is between two holders, not to be seen, or ours, as Lock will tell
			continue
		case who != last:
			last, since = who, time.Now()
		}
		l.says(waitsFor(what, holderOf(v), since, v))
		next.Reset(every)
	}
}

// keepsOut returns the first key that others hold, and its name.
func (t *target) keepsOut(all []verdict.Verdict) (v verdict.Verdict, what string) {
	v.Status = protocol.StatusFree
	if len(all) == 1 {
		return all[0], t.says
	}
	if i := slices.IndexFunc(all, func(v verdict.Verdict) bool { return !v.Obtainable }); i >= 0 {
		return all[i], strconv.Quote(all[i].Key)
	}
	return v, t.says
}

// waitsFor names the holder of a lock, and the end of the lease. A narrow line loses the least telling part
// first, and the end of the lease last.
func waitsFor(what, who string, since time.Time, v verdict.Verdict) fitted {
	head, seen, end, unless := "waiting for "+what+": ", " since "+since.Local().Format("15:04"), "", ""
	switch {
	case v.Status == protocol.StatusPersistent:
		end = ", with no end"
	case !v.Until.IsZero():
		end, unless = ", until "+clockOf(v.Until), " unless renewed"
	}
	return func(width int) string {
		for _, tail := range []string{seen + end + unless, seen + end, end} {
			room := width - utf8.RuneCountInString(head+tail)
			if n := utf8.RuneCountInString(who); room >= n || tail == seen+end && room >= min(n, 12) {
				return head + cut(who, room) + tail
			}
		}
		return head + cut(who, max(width-utf8.RuneCountInString(head+end), 1)) + end
	}
}

// clockOf writes a time near now as this machine's clocks show it; another with its date.
func clockOf(t time.Time) string {
	if away := time.Until(t); away > 20*time.Hour || away < -20*time.Hour {
		return t.Local().Format("2006-01-02 15:04")
	}
	return t.Local().Format("15:04:05")
}

// holderOf names the holder of a lock, as far as its value tells.
func holderOf(v verdict.Verdict) string {
	switch {
	case v.Owner != "":
		return ownerInWords(v.Owner)
	case len(v.Holders) > 1:
		return fmt.Sprintf("%d clients", len(v.Holders))
	case v.Value == "" || len(v.Value) > 80:
		return "another client"
	}
	return printable(v.Value)
}
