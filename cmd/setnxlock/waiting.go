package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/screen"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/verdict"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
	"github.com/setnxlock/setnxlock/compat/sentinel"
	"golang.org/x/term"
)

// passes reports that a server which failed like this may be there later: nothing is wrong
// with the address, the password or the lock.
func passes(err error) bool {
	var f *exit.Failure
	if errors.As(err, &f) && f.Status != statusUnavailable {
		return false
	}
	var refused redis.Error
	if errors.As(err, &refused) {
		d := denial(refused)
		return d != nil && d.Passes || refused == probe.Closed // what a full server's reply may be lost in
	}
	var record tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	dial := dialled(err)
	switch {
	case errors.Is(err, protocol.ErrUnsafeServer), errors.Is(err, protocol.ErrForeign), errors.Is(err, protocol.ErrUnanswered), errors.Is(dial, os.ErrPermission),
		errors.As(dial, &record), errors.As(dial, &certificate), errors.As(dial, &authority), notRedis(err):
		return false
	}
	var network net.Error
	return errors.As(dial, &network) || errors.Is(dial, io.EOF) || errors.Is(dial, io.ErrUnexpectedEOF) ||
		errors.Is(err, sentinel.ErrNoMaster) || errors.Is(err, protocol.ErrTimeout) || errors.Is(err, protocol.ErrUnknown)
}

// pause waits between two attempts to reach a server: longer each time, up to a second or so.
func pause(ctx context.Context, tries int) {
	d := min(50*time.Millisecond<<min(tries, 5), time.Second)
	again := time.NewTimer(d/2 + rand.N(d))
	defer again.Stop()
	select {
	case <-ctx.Done():
	case <-again.C:
	}
}

// A waitingLine tells at a terminal what the wait is for, and for how long it has lasted.
// Its methods do nothing on nil: where nobody looks, nothing is told.
type waitingLine struct {
	out   *os.File
	erase func()

	mu   sync.Mutex
	text string
}

const (
	lineAfter = 500 * time.Millisecond // a wait that is shorter tells nothing
	lineEvery = time.Second
	lookEvery = 2 * time.Second // at the key, for who holds it
)

// waitingLine begins one if stderr is a terminal whose lines can be wiped, and
// the log does not go there.
func (a *app) waitingLine() *waitingLine {
	terminal := screen.New(a.errs)
	if a.verbose || !terminal.Live {
		return nil
	}
	l := &waitingLine{out: a.errs}
	l.erase = terminal.Line(lineAfter, lineEvery, l.line)
	return l
}

// says sets what is waited for.
func (l *waitingLine) says(format string, args ...any) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = screen.Escaped(fmt.Sprintf(format, args...))
}

// wipe ends it, and leaves nothing behind.
func (l *waitingLine) wipe() {
	if l != nil {
		l.erase()
	}
}

// line is what is shown.
func (l *waitingLine) line(_ int, took time.Duration) string {
	l.mu.Lock()
	text := l.text
	l.mu.Unlock()
	if text == "" || !foreground(l.out) {
		return ""
	}
	line := []rune(fmt.Sprintf("setnxlock: %s; waiting for %v", text, took.Round(time.Second)))
	if width, _, err := term.GetSize(int(l.out.Fd())); err == nil && width > 1 && len(line) >= width {
		line = append(line[:width-2], '…')
	}
	return string(line)
}

// watch tells who holds the target, until ctx is done.
func (l *waitingLine) watch(ctx context.Context, t *target) {
	if l == nil {
		return
	}
	next := time.NewTimer(lineAfter)
	defer next.Stop()
	last, since := "", time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			next.Reset(lookEvery)
		}
		s, err := t.look(ctx)
		switch who := holderOf(s); {
		case err != nil || s.Status == protocol.StatusFree:
			last = ""
		case who != last:
			last, since = who, time.Now()
			fallthrough
		default:
			l.says("%s is held by %s, seen since %s%s", t.says, who, since.Format("15:04:05"), heldUntil(s))
		}
	}
}

// holderOf is who holds a lock, as far as its value tells.
func holderOf(s verdict.Verdict) string {
	switch {
	case s.Owner != "":
		return printable(s.Owner)
	case len(s.Holders) > 1:
		return fmt.Sprintf("%d clients", len(s.Holders))
	case s.Value == "" || len(s.Value) > 80:
		return "another client"
	}
	return printable(s.Value)
}

func heldUntil(s verdict.Verdict) string {
	switch {
	case s.Status == protocol.StatusPersistent:
		return ", with no end"
	case s.Until.IsZero():
		return ""
	}
	return ", until " + verdict.Moment(s.Until) + " unless it is renewed"
}
