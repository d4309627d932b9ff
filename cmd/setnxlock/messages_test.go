//go:build unix

package main

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/internal/must"
	"github.com/setnxlock/setnxlock/internal/realredis"
)

// A trouble is a server that can't be used, or not like this, and what is said of it.
type trouble struct {
	name  string
	args  func(t *testing.T) []string // the address, and what belongs to it
	says  string                      // what was seen
	hint  string                      // what to do
	reads bool                        // what only reads is answered
	page  string                      // as docs/troubleshooting.md has it
}

// What Go, redigo and TLS say of a connection, and no user can make anything of.
var inner = regexp.MustCompile(`redigo|dial |read tcp|write tcp|i/o timeout|EOF|x509|tls: |context |remote error|connect: |lookup |setnxlock:.*setnxlock:|unexpected|first record|goroutine|<nil>|%!|exit status`)

// Each trouble with a server says what was seen and what to do, on real servers wherever there is one.
func TestMessagesSayWhatWasSeenAndWhatToDo(t *testing.T) {
	t.Parallel()
	page := string(must.Get(os.ReadFile(root + "/docs/troubleshooting.md"))(t))
	_, page, _ = strings.Cut(page, "### 69: the server")
	page, _, _ = strings.Cut(page, "\n### ")
	ours := newAuthority(t)
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	ours.sign("server", &x509.Certificate{DNSNames: []string{"localhost"}, ExtKeyUsage: usage}, ours.cert, ours.key)
	ours.sign("named", &x509.Certificate{Subject: pkix.Name{CommonName: "localhost"}, ExtKeyUsage: usage}, ours.cert, ours.key)
	secure := func(cert string, more ...string) func(*testing.T) (host string) {
		return func(t *testing.T) string {
			port := freePort(t)
			realredis.Start(t, append([]string{"--tls-port", port, "--tls-cert-file", ours.file(cert + ".crt"), "--tls-key-file", ours.file(cert + ".key"),
				"--tls-ca-cert-file", ours.file("ca.crt"), "--tls-auth-clients", "no"}, more...)...)
			return "localhost:" + port
		}
	}
	at := func(start func(*testing.T) string, form string, more ...string) func(*testing.T) []string {
		return func(t *testing.T) []string {
			return append([]string{"--redis", fmt.Sprintf(form, start(t))}, more...)
		}
	}
	real := func(args ...string) func(*testing.T) string {
		return func(t *testing.T) string { return realredis.Start(t, args...) }
	}
	ca := []string{"--tls-ca", ours.file("ca.crt")}
	for _, test := range []trouble{
		{"refused", at(func(*testing.T) string { return "127.0.0.1:1" }, "%s"), "can't connect to 127.0.0.1:1: connection refused", "check the address, in --redis or SETNXLOCK_REDIS, and that the server runs there", false, "connection refused"},
		{"no such host", at(func(*testing.T) string { return "nonesuch.invalid" }, "%s"), "can't connect to nonesuch.invalid:6379: there is no host of this name", "check the address", false, "there is no host of this name"},
		{"no such socket", at(func(*testing.T) string { return "/nonesuch.sock" }, "%s"), "can't connect to /nonesuch.sock: there is no such socket", "its path is unixsocket in the server's configuration", false, "there is no such socket"},
		{"hangs", at(startPaused, "%s", "--timeout", "500ms"), "(can't connect to .*|the server does not answer): no answer( within 500ms \\(--timeout\\))?", "--timeout gives a slow server more time", false, "no answer"},
		{"protected mode", at(startProtected, "%s"), "the server refuses.*: DENIED Redis is running in protected mode", "give the server a password \\(requirepass\\), or let it listen where its clients are \\(bind\\)", false, "DENIED"},
		{"maxclients", at(func(t *testing.T) string {
			full := realredis.Start(t, "--maxclients", "1")
			must.Get(dial(t, full).Do("PING"))(t)
			return full
		}, "%s"), "the server refuses: ERR max number of clients reached", "close connections of others, or raise its maxclients", false, "ERR max number of clients reached"},
		{"TLS, unknown CA", at(secure("server"), "rediss://%s"), "can't connect to localhost:[0-9]+: its certificate is signed by an authority that is not known here", "--tls-ca FILE names the authority", false, "its certificate is signed by an authority that is not known here"},
		{"TLS, wrong name", at(func(t *testing.T) string { return strings.Replace(secure("server")(t), "localhost", "127.0.0.1", 1) }, "rediss://%s", ca...), "can't connect to 127.0.0.1:[0-9]+: its certificate is for localhost, and not for 127.0.0.1", "--tls-name NAME expects another name", false, "its certificate is for"},
		{"TLS, CN only", at(secure("named"), "rediss://%s", ca...), "can't connect to localhost:[0-9]+: its certificate has its name in the Common Name alone", "subjectAltName", false, "its certificate has its name in the Common Name alone"},
		{"TLS, client certificate wanted", at(secure("server", "--tls-auth-clients", "yes"), "rediss://%s", ca...), "can't connect to localhost:[0-9]+: it asks for a client's certificate", "--tls-cert FILE and --tls-key FILE", false, "it asks for a client's certificate"},
		{"plain to TLS", at(secure("server"), "redis://%s"), "can't connect to localhost:[0-9]+: it closed the connection", "if it speaks TLS, its address is rediss://host:port", false, "it closed the connection"},
		{"plain with a password to TLS", at(secure("server"), "redis://:pw@%s"), "can't connect to localhost:[0-9]+: it closed the connection", "if it speaks TLS, its address is rediss://host:port", false, "it closed the connection"},
		{"TLS to plain", at(real(), "rediss://%s", "--timeout", "1s"), "can't connect to 127.0.0.1:[0-9]+: no answer within 1s \\(--timeout\\)", "if it speaks no TLS, its address is redis://host:port", false, "no answer"},
		{"user before 6", at(func(t *testing.T) string { return startServer(t, "2.4") }, "redis://app:pw@%s"), "the server refuses: ERR wrong number of arguments for 'auth' command", "user names came with Redis 6: leave the user out", false, "ERR wrong number of arguments for 'auth' command"},
		{"wrong password", at(real("--requirepass", "right"), "redis://:wrong@%s"), "the server refuses.*: WRONGPASS", "give the password: --password-file FILE.*--user names another user", false, "WRONGPASS"},
		{"wrong user", at(real("--requirepass", "right"), "redis://app:wrong@%s"), "the server refuses.*: WRONGPASS", "give the password: --password-file FILE.*--user names another user", false, "WRONGPASS"},
		{"password missing", at(real("--requirepass", "right"), "%s"), "(the server refuses.*|the server does not let us in): NOAUTH Authentication required", "give the password: --password-file FILE", false, "NOAUTH"},
		{"no password set", at(real(), "redis://:pw@%s"), "the server refuses: ERR AUTH <password> called without any password configured", "this server has no password: leave it out", false, "ERR AUTH <password> called without any password configured"},
		{"no password set, before 6", at(func(t *testing.T) string { return startServer(t, "2.4") }, "redis://:pw@%s"), "the server refuses: ERR Client sent AUTH, but no password is set", "this server has no password: leave it out", false, "ERR Client sent AUTH, but no password is set"},
		{"database 99", at(real(), "redis://%s/99"), "the server refuses: ERR DB index is out of range", "this server has fewer databases", false, "ERR DB index is out of range"},
		{"a cluster", at(startNode, "%s"), "(MOVED [0-9]+ 127|a node of a cluster|one node of a cluster)", "--cluster", true, "MOVED"},
		{"no cluster", at(real(), "%s", "--cluster"), "the server refuses.*: ERR This instance has cluster support disabled", "this server is no node of a cluster: leave --cluster out", false, "ERR This instance has cluster support disabled"},
		{"no Sentinel", at(real(), "%s", "--sentinel", "SAME", "--timeout", "4s"), "the server at 127.0.0.1:[0-9]+ is no Sentinel", "--sentinel NAME@host:port has the Sentinels' addresses", false, "is no Sentinel"},
		{"no Sentinel there", at(func(*testing.T) string { return "127.0.0.1:1" }, "%s", "--sentinel", "SAME", "--timeout", "4s"), "can't connect to m, as 127.0.0.1:1 say: no master: .*: connection refused", "check the addresses of --sentinel", false, "can't connect to"},
		{"a Sentinel", at(startSentinel, "%s"), "the server at 127.0.0.1:[0-9]+ is a Sentinel, and not the master that it watches", "--sentinel NAME@127.0.0.1:[0-9]+ asks it", false, "is a Sentinel, and not the master that it watches"},
		{"HTTP", at(func(t *testing.T) string {
			l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			s := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
			go s.Serve(l) //nolint:errcheck // until it is closed
			t.Cleanup(func() { s.Close() })
			return l.Addr().String()
		}, "%s"), "the server at 127.0.0.1:[0-9]+ is not a Redis server: not a reply in RESP 2: it begins with 'H'", "another kind of server \\(a web server, say\\): check the address", false, "is not a Redis server"},
		{"BUSY", at(startBusy, "%s"), "the server refuses.*: BUSY Redis is busy running a script", "a script has run on it for too long: SCRIPT KILL, or wait", false, "BUSY"},
		{"OOM", at(real("--maxmemory", "1", "--maxmemory-policy", "noeviction"), "%s"), "the server refuses .*: OOM command not allowed", "the server is over its maxmemory: it needs room, or a higher maxmemory", true, "OOM"},
		{"READONLY", at(real("--replicaof", "127.0.0.1 1"), "%s"), "(READONLY You can't write|it is a replica: a lock taken here excludes nobody)", "its master", true, "replica"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if !regexp.MustCompile("`[^`]*" + regexp.QuoteMeta(test.page) + "[^`]*`").MatchString(page) {
				t.Errorf("docs/troubleshooting.md has no row of %q", test.page)
			}
			args := test.args(t)
			for i := range args {
				args[i] = strings.Replace(args[i], "SAME", "m@"+args[1], 1)
			}
			says, hint := regexp.MustCompile(test.says), regexp.MustCompile(test.hint)
			for _, command := range [][]string{
				{"run", "--try", "job", "--", "true"}, {"run", "--try", "--algorithm", "set:lua", "job", "--", "true"},
				{"inspect", "job"}, {"doctor"}, {"release", "--force", "--yes", "job"}, {"survey"},
			} {
				if command[0] == "survey" && slices.Contains(args, "--cluster") {
					continue // wrong usage
				}
				out, errs, status := cli(t, nil, append(slices.Clone(args), command...)...)
				if status == 0 && test.reads && command[0] != "run" {
					continue // it only reads
				}
				text := out + errs
				if command[0] == "doctor" { // whose lines are wrapped
					text = strings.Join(strings.Fields(text), " ")
				}
				if !says.MatchString(text) || status != statusUnavailable && !(test.reads && command[0] == "doctor") {
					t.Errorf("%q: %d, want %s:\n%s%s", command, status, says, errs, out)
				}
				if !strings.Contains(text, test.page) {
					t.Errorf("%q: want %q, as the page has it:\n%s%s", command, test.page, errs, out)
				}
				if !hint.MatchString(text) {
					t.Errorf("%q: want %s:\n%s", command, hint, errs)
				}
				if m := inner.FindString(errs); m != "" {
					t.Errorf("%q: %q is no user's word: %s", command, m, errs)
				}
			}
		})
	}
}

// startProtected starts a server in protected mode, and returns an address of this machine that it refuses: not the
// loopback's.
func startProtected(t *testing.T) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(realredis.Start(t, "--bind", "0.0.0.0", "--protected-mode", "yes"))
	for _, at := range must.Get(net.InterfaceAddrs())(t) {
		if n, ok := at.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return net.JoinHostPort(n.IP.String(), port)
		}
	}
	realredis.Skipped(t, "an address of this machine beside the loopback's, for protected mode")
	t.SkipNow()
	return ""
}

// startPaused starts a server that accepts connections, and answers nothing on them.
func startPaused(t *testing.T) string {
	t.Helper()
	addr := realredis.Start(t)
	must.Get(dial(t, addr).Do("CLIENT", "PAUSE", 600_000))(t)
	return addr
}

// startSentinel starts a real Sentinel that knows of nobody.
func startSentinel(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	port := freePort(t)
	must.Do(t, os.WriteFile(file, []byte("port "+port+"\nbind 127.0.0.1\n"), 0o600))
	cmd := exec.Command("redis-server", file, "--sentinel")
	cmd.Dir = filepath.Dir(file)
	must.Do(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() }) //nolint:errcheck // killed
	address := "127.0.0.1:" + port
	until(t, "the Sentinel answers", func() bool {
		c, err := redis.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return address
}

// startNode starts a cluster of two, and returns the one that has no slots.
func startNode(t *testing.T) string {
	t.Helper()
	one, two := realredis.Start(t, "--cluster-enabled", "yes"), realredis.Start(t, "--cluster-enabled", "yes")
	ask(t, one, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	host, port, _ := net.SplitHostPort(one)
	ask(t, two, "CLUSTER", "MEET", host, port)
	until(t, "the cluster is one", func() bool {
		info, err := redis.String(ask(t, two, "CLUSTER", "INFO"), nil)
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	return two
}

// startBusy starts a server that runs a script which does not end before the test.
func startBusy(t *testing.T) string {
	t.Helper()
	address := realredis.Start(t, "--busy-reply-threshold", "1")
	c := dial(t, address)
	must.Do(t, c.Send("EVAL", "while true do end", 0))
	must.Do(t, c.Flush())
	until(t, "it is busy", func() bool {
		c, err := redis.Dial("tcp", address)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = c.Do("PING")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	})
	t.Cleanup(func() { ask(t, address, "SCRIPT", "KILL") })
	return address
}
