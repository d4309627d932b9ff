//go:build unix

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/internal/must"
)

// Passwords that are pasted into an address as they are: no message has four characters of one in a row, no
// resolver is asked for a part of one, and nothing but the host that was meant is connected to.
func TestPastedPasswords(t *testing.T) {
	var asked, connected atomic.Int64
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asked.Add(1)
		return nil, errors.New("no resolver is to be asked")
	}}
	defer func() { net.DefaultResolver = before }()
	at := serve(t, func(c net.Conn) {
		connected.Add(1)
		c.Read(make([]byte, 1024)) //nolint:errcheck // AUTH
		c.Write([]byte("-WRONGPASS invalid username-password pair\r\n"))
	})
	out := must.Get(os.Create(t.TempDir() + "/out"))(t)
	defer out.Close()
	in := must.Get(os.Open(os.DevNull))(t)
	defer in.Close()
	// written is what command lines write.
	written := func(lines ...[]string) (said string, status int) {
		must.Do(t, out.Truncate(0))
		must.Get(out.Seek(0, 0))(t)
		for _, args := range lines {
			status = execute(args, in, out, out)
		}
		return strings.ReplaceAll(string(must.Get(os.ReadFile(out.Name()))(t)), at, ""), status
	}
	// tried is what a command line comes to: what it says, its status, and whether anything but at would be dialled.
	tried := func(args []string) (said string, status int, elsewhere string) {
		said, status = written(args)
		a := &app{known: &cache{}, in: in, out: out, errs: out}
		must.Do(t, a.rootCommand().PersistentFlags().Parse(args))
		if p, err := a.deployment(); err == nil {
			for _, n := range p.nodes {
				if rest := strings.NewReplacer(at, "", "the cluster of ", "", "m, as ", "", " say", "", ", ", "").Replace(n.name); rest != "" {
					elsewhere += rest
				}
			}
			p.Close()
		}
		return said, status, elsewhere
	}
	forms := [][]string{
		{"--redis", "redis://:PW@AT"}, {"--redis", "redis://app:PW@AT/2"}, {"--redis", "redis://PW@AT"},
		{"--redis", "rediss://:PW@AT"}, {"--redis", "redis://app:PW@AT", "--cluster"},
		{"--redis", "app:PW@AT"}, {"--redis", "PW@AT"}, {"--redis", ":PW@AT"},
		{"--redis", "redis://app:PW@AT", "--algorithm", "redlock"}, {"--sentinel", "m@redis://:PW@AT"},
		{"--redis", "unix://app:PW@/nonesuch"}, {"--redis", "redis://:" + "PW@AT?db=1"},
	}
	random := rand.New(rand.NewPCG(1, 2))
	refused, read := 0, 0
	for i := range 10_000 {
		password := make([]byte, 16)
		for j := range password {
			password[j] = byte(' ' + random.IntN('~'-' '+1))
			if i%2 == 0 && random.IntN(3) == 0 { // what means something in an address, more often
				password[j] = "@/:?#,%&=[] 0123456789"[random.IntN(22)]
			}
		}
		form := forms[i%len(forms)]
		var args []string
		for _, arg := range form {
			args = append(args, strings.NewReplacer("PW", string(password), "AT", at).Replace(arg))
		}
		if i%20 == 0 { // in place of a command, or of a flag's value
			text, _ := written([]string{args[1]}, []string{"inspect", "job", "--timeout", args[1]})
			if part := partOf(password, text); strings.HasPrefix(args[1], "redis") && part != "" {
				t.Fatalf("%q: %q of it is printed: %s", args[1], part, text)
			}
		}
		said, status, elsewhere := tried(append(args, "--timeout", "30s", "inspect", "job"))
		for _, known := range []string{addressHint, passwordHint} {
			said = strings.ReplaceAll(said, known, "")
		}
		if part := partOf(password, said); part != "" {
			t.Fatalf("%q: %q of it is printed: %s", args, part, said)
		}
		if elsewhere != "" && elsewhere != "/nonesuch" {
			t.Fatalf("%q connects to %q", args, elsewhere)
		}
		switch status {
		case exit.Wrong:
			refused++
		case statusUnavailable:
			read++
		default:
			t.Fatalf("%q: status %d: %s", args, status, said)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("a resolver was asked %d times", n)
	}
	if refused < 3000 || read < 500 || connected.Load() < 300 {
		t.Errorf("%d were refused, %d read, %d connections: the test proves nothing", refused, read, connected.Load())
	}
}

// partOf is what of a password stands in a text, by four characters in a row; "" if nothing does.
func partOf(password []byte, text string) string {
	for j := range len(password) - 3 {
		if part := string(password[j : j+4]); strings.Contains(text, part) {
			return part
		}
	}
	return ""
}
