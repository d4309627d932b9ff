package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/internal/must"
)

// stepLimit is how long an immediate reaction may take on a busy machine.
const stepLimit = 3 * time.Minute // where many clients run, a JVM alone takes one

// A process is one copy of a real client.
type process struct {
	t       testing.TB
	what    string
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string // closed when it has ended
	stderr  bytes.Buffer
}

// start starts a copy of the client that uses the server at addr and leases of lease. It ends with
// the test.
func (c client) start(t testing.TB, addr string, lease time.Duration) *process {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.command(t)
	cmd.Args = append(cmd.Args, host, port, c.nameOfLock(), ms(lease), ms(c.poll))
	p := &process{t: t, what: c.what, cmd: cmd, answers: make(chan string, 1)}
	cmd.Stderr = &p.stderr
	if p.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out := must.Get(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.answers <- lines.Text()
		}
		cmd.Wait() //nolint:errcheck // killed: always an error
		close(p.answers)
	}()
	t.Cleanup(p.kill)
	p.expect("ready")
	return p
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (p *process) send(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Fatalf("%s has ended: %v\n%s", p.what, err, &p.stderr)
	}
}

// answer returns the next answer, or "" if the process has ended.
func (p *process) answer() string {
	p.t.Helper()
	select {
	case a := <-p.answers:
		return a
	case <-time.After(stepLimit):
		p.t.Fatalf("%s says nothing\n%s", p.what, &p.stderr)
		return ""
	}
}

func (p *process) expect(want string) {
	p.t.Helper()
	if got := p.answer(); got != want {
		p.t.Fatalf("%s: %q, want %q\n%s", p.what, got, want, &p.stderr)
	}
}

// do sends a command word and returns the answer.
func (p *process) do(word string) string {
	p.t.Helper()
	p.send("%s", word)
	return p.answer()
}

// acquire makes the client take the lock, which must be free or about to become free.
func (p *process) acquire() {
	p.t.Helper()
	p.send("acquire")
	p.expect("held")
}

// warm makes the client take and release the lock once: the first time it connects, loads its scripts
// and its classes, which can take as long as a lease.
func (p *process) warm() {
	p.t.Helper()
	p.acquire()
	p.send("release")
	p.expect("released")
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	p.cmd.Process.Kill() //nolint:errcheck // it may have ended by itself
	for range p.answers {
	}
}

// threw reports whether an answer is the client's exception of this type.
func threw(answer, kind string) bool { return strings.HasPrefix(answer, "threw "+kind+":") }
