//go:build unix

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

func TestSocketsAreAddresses(t *testing.T) {
	dir := must.Get(os.MkdirTemp("", "snx"))(t) // t.TempDir's name may be too long for a socket
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis sock")
	tcp := realredis.Start(t, "--unixsocket", socket)
	for _, at := range []string{socket, "unix://" + strings.ReplaceAll(socket, " ", "%20"), "unix://" + strings.ReplaceAll(socket, " ", "%20") + "?db=3"} {
		out, errs, status := cli(t, nil, "run", "--redis", at, "job", "--", "sh", "-c", "setnxlock --redis '"+at+"' inspect job")
		if status != 0 || !strings.Contains(out, "held") {
			t.Errorf("%s: %d, %s%s", at, status, out, errs)
		}
		if out, errs, status := cli(t, nil, "doctor", "--redis", at); status != 0 || !strings.Contains(out, "server     "+socket) {
			t.Errorf("doctor at %s: %d, %s%s", at, status, out, errs)
		}
	}
	ask(t, tcp, "SET", "job", "in database 0")
	if _, errs, status := cli(t, nil, "run", "--try", "--redis", "unix://"+strings.ReplaceAll(socket, " ", "%20")+"?db=3", "job", "--", "true"); status != 0 {
		t.Errorf("another database: %d, %s", status, errs)
	}
}

// An authority signs certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "tests"}}
	a.cert, a.key = a.sign("ca", template, template, nil)
	return a
}

// sign writes name.crt and name.key.
func (a *authority) sign(name string, template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	if by == nil {
		by = key
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der := must.Get(x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by))(a.t)
	private := must.Get(x509.MarshalPKCS8PrivateKey(key))(a.t)
	for ext, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		must.Do(a.t, os.WriteFile(a.file(name+ext), pem.EncodeToMemory(block), 0o600))
	}
	return must.Get(x509.ParseCertificate(der))(a.t), key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t), newAuthority(t)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	ours.sign("server", &x509.Certificate{DNSNames: []string{"redis.example"}, ExtKeyUsage: usage}, ours.cert, ours.key)
	ours.sign("client", &x509.Certificate{Subject: pkix.Name{CommonName: "client"}, ExtKeyUsage: usage}, ours.cert, ours.key)
	port := freePort(t)
	at := "127.0.0.1:" + port
	realredis.Start(t, "--tls-port", port, "--tls-cert-file", ours.file("server.crt"), "--tls-key-file", ours.file("server.key"),
		"--tls-ca-cert-file", ours.file("ca.crt"), "--tls-auth-clients", "yes")

	secure := "rediss://" + at
	all := []string{"--tls-ca", ours.file("ca.crt"), "--tls-cert", ours.file("client.crt"), "--tls-key", ours.file("client.key"), "--tls-name", "redis.example"}
	without := func(flag string) []string {
		for i, f := range all {
			if f == flag {
				return append(append([]string{}, all[:i]...), all[i+2:]...)
			}
		}
		return all
	}
	for _, test := range []struct {
		name   string
		flags  []string
		status int
		said   string
	}{
		{"all", all, 0, ""},
		{"no authority", without("--tls-ca"), 69, "--tls-ca FILE names"},
		{"another authority", append(without("--tls-ca"), "--tls-ca", others.file("ca.crt")), 69, "--tls-ca FILE names"},
		{"another name", without("--tls-name"), 69, "--tls-name NAME expects another name"},
		{"no client certificate", all[:2:2], 69, ""},
		{"not a certificate", []string{"--tls-ca", ours.file("ca.key")}, 64, "has no certificate"},
	} {
		t.Run(test.name, func(t *testing.T) { // no wait cures any of them
			args := append([]string{"run", "--redis", secure, "--wait", "1h"}, test.flags...)
			out, errs, status := cli(t, nil, append(args, "job", "--", "echo", "under the lock")...)
			if status != test.status || !strings.Contains(errs, test.said) || (status == 0) != (out == "under the lock\n") {
				t.Errorf("%d, want %d; %s%s", status, test.status, out, errs)
			}
		})
	}
	if out, errs, status := cli(t, nil, append([]string{"doctor", "--redis", secure}, all...)...); status != 0 {
		t.Errorf("doctor: %d, %s%s", status, out, errs)
	}
	var env []string // in place of flags, as a unit or a crontab has them
	for i := 0; i < len(all); i += 2 {
		env = append(env, "SETNXLOCK_"+strings.ToUpper(strings.ReplaceAll(all[i][2:], "-", "_"))+"="+all[i+1])
	}
	if out, errs, status := cli(t, env, "run", "--redis", secure, "--wait", "1h", "job", "--", "echo", "under the lock"); out != "under the lock\n" || errs != "" || status != 0 {
		t.Errorf("by variables: %d, %s%s", status, out, errs)
	}
}

func TestPassword(t *testing.T) {
	const secret = "p:w@d/ x"
	address := realredis.Start(t, "--requirepass", secret, "--user", "app", "on", ">apps", "~*", "&*", "+@all")
	file := filepath.Join(t.TempDir(), "password")
	write := func(name, text string) string {
		must.Do(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	write(file, secret+"\nsecond line\n")
	apps := write(file+"2", "apps\r\n")
	empty := write(file+"3", "\n")
	encoded := "redis://:p%3Aw%40d%2F%20x@" + address
	env := []string{"SETNXLOCK_PASSWORD=" + secret, "SETNXLOCK_REDIS=" + address}
	for _, test := range []struct {
		name   string
		env    []string
		flags  []string
		status int
	}{
		{"in the URL", nil, []string{"--redis", encoded}, 0},
		{"alone in the URL", nil, []string{"--redis", "redis://p%3Aw%40d%2F%20x@" + address}, 0},
		{"in a file", nil, []string{"--redis", address, "--password-file", file}, 0},
		{"in the environment", env, nil, 0},
		{"the file before the environment", []string{"SETNXLOCK_PASSWORD=wrong"}, []string{"--redis", address, "--password-file", file}, 0},
		{"the URL before the file", nil, []string{"--redis", encoded, "--password-file", apps}, 0},
		{"a user in the URL", nil, []string{"--redis", "redis://app@" + address, "--password-file", apps}, 0},
		{"a user", nil, []string{"--redis", address, "--user", "app", "--password-file", apps}, 0},
		{"a user of a quorum", nil, []string{"--redis", address, "--algorithm", "redlock", "--timeout", "1m", "--user", "app", "--password-file", apps}, 0},
		{"another user's", nil, []string{"--redis", address, "--user", "app", "--password-file", file}, 69},
		{"none", nil, []string{"--redis", address}, 69},
		{"a user without", nil, []string{"--redis", address, "--user", "app"}, 64},
		{"an empty file", nil, []string{"--redis", address, "--password-file", empty}, 64},
		{"no file", nil, []string{"--redis", address, "--password-file", "/nonesuch"}, 64},
	} {
		if _, errs, status := cli(t, test.env, append(append([]string{"run"}, test.flags...), "job", "--", "true")...); status != test.status {
			t.Errorf("%s: %d, want %d: %s", test.name, status, test.status, errs)
		}
	}

	seen, _, _ := cli(t, env, "run", "job", "--", "sh", "-c", `echo "${SETNXLOCK_PASSWORD-unset}"`)
	kept, _, _ := cli(t, env, "run", "--keep-password", "job", "--", "sh", "-c", `echo "$SETNXLOCK_PASSWORD"; setnxlock inspect job`)
	if seen != "unset\n" || !strings.HasPrefix(kept, secret+"\n") || !strings.Contains(kept, "held") {
		t.Errorf("COMMAND sees %q, and with --keep-password %q", seen, kept)
	}
}

// Whatever goes wrong, a password is neither told nor shown by ps.
func TestPasswordsStaySecret(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	dead := "127.0.0.1:1"
	guarded := realredis.Start(t, "--requirepass", "another")
	open := startServer(t, "2.0")
	url := func(at string) string { return "redis://:" + secret + "@" + at }
	silent := serve(t, hangs)
	ask(t, open, "SET", "stuck", "somebody")
	ask(t, open, "RPUSH", "list", "x")

	run := func(args ...string) []string { return append(append([]string{"run"}, args...), "job", "--", "true") }
	for _, args := range [][]string{
		run("--redis", url(dead)),
		run("--redis", url(dead), "--wait", "100ms"),
		run("--redis", url(dead), "-v"),
		run("--redis", url(guarded)),
		run("--redis", "redis://app:"+secret+"@"+guarded),
		run("--redis", "redis://"+secret+"@"+guarded),
		run("--redis", "rediss://:"+secret+"@"+open),
		run("--redis", url(silent), "--timeout", "100ms"),
		run("--redis", url(open), "--algorithm", "tx"),
		run("--redis", url(open), "--algorithm", "nix"),
		run("--redis", "redis://:"+secret+"%@h"),
		run("--redis", "redis://:"+secret+"@h:port"),
		run("--redis", "redis://:"+secret+"@h/db"),
		run("--redis", "redis://:"+secret+"@[::1"),
		run("--redis", "http://:"+secret+"@h"),
		run("--redis", ":"+secret+"@h"),
		run("--redis", "unix://:"+secret+"@h/x"),
		run("--redis", "unix://:"+secret+"@/nonesuch"),
		run("--redis", "redis://u:12/"+secret+"@h"),
		run("--redis", "redis://#"+secret+"@h"),
		run("-a" + secret),
		run("-a", secret),
		run("--redis", dead, "--sentinel", ":"+secret+"@"+dead),
		run("--redis", dead, "--sentinel", "m@:"+secret+"@"+dead),
		run("--redis", url("nonesuch.invalid"), "--timeout", "2s"),
		run("--redis", url(dead)+","+url(open)),
		run("--redis", url(dead)+","+url(open), "--algorithm", "redlock", "--timeout", "1m", "-v"),
		run("--redis", url(dead)+","+url(dead)+","+url(open), "--algorithm", "redlock", "-v"),
		run("--redis", url(open), "--cluster"),
		run("--redis", url(dead), "--cluster"),
		run("--redis", url(open), "--sentinel", "m@"+url(dead)),
		run("--redis", url(open), "--sentinel", "m@"+url(open), "--timeout", "300ms"),
		run("--redis", url(open), "--sentinel", url(open)),
		run("--redis", url(open), "--tls-ca", "/nonesuch"),
		run("--redis", url(open), "--try", "--ttl", "1ms"),
		{"run", "--redis", url(open), "--try", "stuck", "--", "true"},
		{"run", "--redis", url(open), "--try", "list", "--", "true"},
		{"run", "--redis", url(open), "job"},
		{"run", "--redis", url(open), "job", url(open)},
		{"run", "--redis", url(open), "job", "--", "curl " + url("h")},
		{"run", url(open)},
		{url(open)},
		{"--nix=" + url(open)},
		{"inspect", "--redis", url(dead), "job"},
		{"inspect", "--redis", url(open), "list"},
		{"release", "--redis", url(dead), "job", "--token", "x"},
		{"release", "--redis", url(open), "stuck", "--force"},
		{"survey", "--redis", url(dead)},
		{"survey", "--redis", url(open)},
		{"repair", "--redis", url(open)},
		{"doctor", "--redis", url(dead)},
		{"doctor", "--redis", url(open)},
		{"doctor", "--redis", url(open), "--json"},
		{"doctor", "--redis", url(open) + "," + url(dead) + "," + url(open), "--algorithm", "redlock"},
		{"migrate", "--redis", url(open)},
	} {
		if !strings.Contains(args[0], secret) { // a command: some wait for an answer in vain
			args = append([]string{"--timeout", "200ms"}, args...)
		}
		out, errs, _ := cli(t, nil, args...)
		if strings.Contains(out+errs, secret) {
			t.Errorf("%q: %s%s", args, out, errs)
		}
		for _, text := range []string{"%!", "(<nil>)"} {
			if strings.Contains(out+errs, text) {
				t.Errorf("%q: %s%s", args, out, errs)
			}
		}
	}

	s := play(t, "", "run", "--redis", url(silent), "--timeout", "1m", "job", "--", "sh", "-c", ": "+url("h"))
	line := func() string {
		b := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.cmd.Process.Pid)))(t)
		return string(b)
	}
	stars := "redis://:" + strings.Repeat("*", len(secret)) + "@"
	until(t, "ps shows stars in place of both passwords", func() bool { // before its exec the process has no arguments at all
		shown := line()
		return strings.Count(shown, stars) == 2 && !strings.Contains(shown, secret)
	})
}

// A server that takes connections and says nothing is away after one --timeout, however many
// questions each command has: after the first that is not answered it is not connected to again.
func TestTimeoutBoundsConnecting(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"run":      {"run", "job", "--", "true"},
		"try":      {"run", "--try", "job", "--", "true"},
		"named":    {"run", "--algorithm", "set:lua", "job", "--", "true"},
		"family":   {"run", "--algorithm", "getset", "job", "--", "true"},
		"rw":       {"run", "--algorithm", "rw:write", "job", "--", "true"},
		"several":  {"run", "job", "another", "--", "true"},
		"password": {"run", "--redis", "redis://:x@AT/3", "job", "--", "true"},
		"TLS":      {"run", "--redis", "rediss://AT", "job", "--", "true"},
		"redlock":  {"run", "--redis", "AT,AT,AT", "--algorithm", "redlock", "job", "--", "true"},
		"doctor":   {"doctor"},
		"inspect":  {"inspect", "job"},
		"release":  {"release", "job", "--token", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connected atomic.Int32
			at := serve(t, func(c net.Conn) {
				connected.Add(1)
				hangs(c)
			})
			command := []string{"--timeout", "500ms"}
			most := int32(1)
			for _, arg := range args {
				command = append(command, strings.ReplaceAll(arg, "AT", at))
				most = max(most, int32(strings.Count(arg, "AT")))
			}
			_, errs, status := cli(t, using(at), command...)
			if n := connected.Load(); status != statusUnavailable || n > most {
				t.Errorf("%d, connected %d times, want %d at most: %s", status, n, most, errs)
			}
		})
	}
}

// --wait covers a server that comes late, one that is full, and one that is loading; without it
// the user learns at once that there is none.
func TestWaitCoversTheServer(t *testing.T) {
	t.Parallel()
	s := realredis.Run(t)
	s.Kill()
	if _, errs, status := cli(t, nil, "run", "--redis", s.Addr, "job", "--", "true"); status != statusUnavailable {
		t.Errorf("no --wait: %d, %s", status, errs)
	}
	waitsInVain(t, s.Addr, nil, "refused; tried for ")
	for _, flags := range [][]string{{"--wait", "1m"}, {"--wait", "forever"}, {"--wait", "1m", "--algorithm", "set:lua"}, {"--wait", "1m", "--algorithm", "redlock"}} {
		p := play(t, s.Addr, append(append([]string{"run", "-v"}, flags...), "job", "--", "puppet")...)
		until(t, "it waits for the server", func() bool { return strings.Contains(p.errs.String(), "waiting for the server") })
		s.Restart()
		p.begins()
		p.exits(0, 0, "")
		s.Kill()
	}

	full := realredis.Start(t, "--maxclients", "1")
	c := dial(t, full)
	p := play(t, full, "run", "--wait", "1m", "job", "--", "puppet")
	until(t, "it was turned away", func() bool {
		text, err := c.Do("INFO", "stats")
		return err == nil && !strings.Contains(string(text.([]byte)), "rejected_connections:0\r")
	})
	must.Get(c.Do("CONFIG", "SET", "maxclients", "100"))(t)
	p.begins()
	p.exits(0, 0, "")
}

// waitsInVain demands that run --wait ends when the time is over, and says what it saw of the server.
func waitsInVain(t *testing.T, address string, flags []string, said string) {
	t.Helper()
	for wait := 300 * time.Millisecond; ; wait *= 2 { // on a busy machine it may not come to connect in that time
		args := append(append([]string{"run", "--wait", wait.String()}, flags...), "job", "--", "true")
		_, errs, status := cli(t, using(address), args...)
		if strings.Contains(errs, "no answer; tried for") && wait < patience {
			continue
		}
		if status != statusUnavailable || !strings.Contains(errs, said) || !strings.Contains(errs, "tried for "+wait.String()) {
			t.Errorf("%q, never: %d, %s", flags, status, errs)
		}
		return
	}
}

// With --wait a server that is loading its data is waited for, and what it said is told if it takes too
// long.
func TestWaitCoversLoading(t *testing.T) {
	t.Parallel()
	real := realredis.Start(t)
	for _, flags := range [][]string{nil, {"--algorithm", "set:lua"}, {"--algorithm", "rw:write"}, {"--algorithm", "redlock"}} {
		var loaded atomic.Bool
		address := startLoading(t, &loaded, real)
		waitsInVain(t, address, flags, "LOADING")
		p := play(t, address, append(append([]string{"run", "-v", "--wait", "1m"}, flags...), "job", "--", "puppet")...)
		until(t, "it waits for the server", func() bool { return strings.Contains(p.errs.String(), "waiting for the server") })
		loaded.Store(true)
		p.begins()
		p.exits(0, 0, "")
	}
}

// Whatever answers, in whatever bytes, the command says so.
func TestHostileReplies(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"$9223372036854775807\r\n": "too large", "*9223372036854775807\r\n": "too large",
		"$17179869184\r\n":              "a string of 17179869184 bytes",
		strings.Repeat("*1\r\n", 8<<20): "more than 16 deep", "HTTP/1.1 400 Bad Request\r\n": "begins with 'H'",
	} {
		at := serve(t, func(c net.Conn) {
			c.Read(make([]byte, 4096)) //nolint:errcheck // whatever it asks
			io.WriteString(c, said)    //nolint:errcheck // as much as is read
		})
		for _, args := range [][]string{{"run", "job", "--", "true"}, {"inspect", "job"}, {"doctor"},
			{"survey"}, {"release", "job", "--force", "--yes"},
			{"run", "--algorithm", "set:lua", "job", "--", "true"},
			{"run", "--redis", "redis://:secret@" + at, "job", "--", "true"},
			{"inspect", "--cluster", "job"}, {"inspect", "--timeout", "1s", "--sentinel", "m@" + at, "job"}} {
			if !slices.Contains(args, "--redis") && !slices.Contains(args, "--sentinel") {
				args = slices.Insert(slices.Clone(args), 1, "--redis", at)
			}
			_, errs, status := cli(t, nil, args...)
			told := strings.Contains(errs, want) || slices.Contains(args, "--cluster") || slices.Contains(args, "--sentinel")
			if status != statusUnavailable || !told {
				t.Errorf("%.40q, %q: status %d, %.400s", said, args, status, errs)
			}
		}
	}
}

// A socket may notice the end of --wait before its context does: that --timeout is over is not said then.
func TestWaitIsOverBeforeTimeout(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	end := time.Now().Add(50 * time.Millisecond)
	time.AfterFunc(300*time.Millisecond, func() { cancel(context.DeadlineExceeded) })
	a := &app{options: options{timeout: patience}}
	_, err := a.dial(slowEnd{ctx, end}, address{network: "tcp", host: serve(t, hangs), password: "secret"}, nil)
	if err == nil || strings.Contains(err.Error(), patience.String()) || ctx.Err() == nil {
		t.Errorf("%v, while --wait is over: %v", err, ctx.Err() != nil)
	}
}

// slowEnd is a context whose timer is late.
type slowEnd struct {
	context.Context
	end time.Time
}

func (s slowEnd) Deadline() (time.Time, bool) { return s.end, true }
