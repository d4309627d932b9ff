//go:build unix

package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/internal/must"
)

// An endpoint takes connections in plain text or over TLS, and notes the passwords that come in each way.
type endpoint struct {
	at, port string
	names    string   // the master, as a Sentinel names it
	knows    []string // the other Sentinels, as it lists them
	id       string

	mu            sync.Mutex
	plain, secure bool // a password came so
	asked         int  // connections
}

// newEndpoint serves at 127.0.0.1. It has a certificate for cert; "": it does not speak TLS.
func newEndpoint(t *testing.T, ours *authority, cert string) *endpoint {
	t.Helper()
	p := &endpoint{}
	var config *tls.Config
	if cert != "" {
		usage := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template := &x509.Certificate{DNSNames: []string{cert}, ExtKeyUsage: usage}
		if ip := net.ParseIP(cert); ip != nil {
			template.DNSNames, template.IPAddresses = nil, []net.IP{ip}
		}
		ours.sign(cert, template, ours.cert, ours.key)
		pair := must.Get(tls.LoadX509KeyPair(ours.file(cert+".crt"), ours.file(cert+".key")))(t)
		config = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = serve(t, func(c net.Conn) { p.serve(c, config) })
	_, p.port, _ = net.SplitHostPort(p.at)
	p.id = p.at
	return p
}

// A replayed connection gives back what was read of it to look ahead.
type replayed struct {
	net.Conn
	r io.Reader
}

func (r replayed) Read(p []byte) (int, error) { return r.r.Read(p) }

func (p *endpoint) serve(c net.Conn, config *tls.Config) {
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	if err != nil {
		return
	}
	came := &p.plain
	if first[0] == 0x16 { // a handshake of TLS
		if config == nil {
			return
		}
		came = &p.secure
		t := tls.Server(replayed{c, r}, config)
		c, r = t, bufio.NewReader(t)
	}
	answersFrom(r, c, func(words []string) string {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, "s3cr3t") }) {
			p.mu.Lock()
			*came = true
			p.mu.Unlock()
		}
		return p.answer(words)
	})
}

func (p *endpoint) answer(words []string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := func(all ...string) string {
		text := fmt.Sprintf("*%d\r\n", len(all))
		for _, s := range all {
			text += bulk(s)
		}
		return text
	}
	switch strings.ToUpper(words[0]) {
	case "AUTH", "SELECT":
		return "+OK\r\n"
	case "INFO":
		return bulk("redis_version:7.0.15\r\nrun_id:" + p.id + "\r\n")
	case "CLUSTER":
		host, port, _ := net.SplitHostPort(p.names)
		return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n" + bulk(host) + ":" + port + "\r\n"
	case "SENTINEL":
		if words[1] == "sentinels" {
			text := fmt.Sprintf("*%d\r\n", len(p.knows))
			for _, at := range p.knows {
				host, port, _ := net.SplitHostPort(at)
				text += list("ip", host, "port", port)
			}
			return text
		}
		host, port, _ := net.SplitHostPort(p.names)
		return list(host, port)
	}
	return "-ERR unknown command\r\n"
}

// A password reaches the endpoints that it is for alone, and in plain text only where nothing was said of TLS.
func TestWherePasswordsGo(t *testing.T) {
	t.Parallel()
	const safe, plain = "rediss://:s3cr3t@", "redis://:s3cr3t@" // SAFE and PLAIN below, and TLS without a password
	for _, test := range []struct {
		name   string
		args   string // A has a certificate for localhost, B for 127.0.0.1, C and D have none
		names  string // what the Sentinel, or the node, names
		plain  string // the endpoints that may be told a password in plain text
		secure string // … over TLS
		status int
	}{
		{"one server", "--redis PLAINC", "", "C", "", 69},
		{"one server with TLS", "--redis SAFElocalhost:A", "", "", "A", 69},
		{"another's certificate", "--redis SAFElocalhost:B", "", "", "", 69},
		{"a cluster of both", "--cluster --redis PLAINC --redis SAFElocalhost:A", "", "", "", 64},
		{"a cluster of both, TLS first", "--cluster --redis SAFElocalhost:A --redis PLAINC", "", "", "", 64},
		{"a quorum of both", "--algorithm redlock --redis SAFElocalhost:A,PLAINC", "", "", "", 64},
		{"a quorum behind a comma",
			"--algorithm redlock --redis SAFElocalhost:A,C,D --password-file PW", "", "", "", 64},
		{"a cluster with two passwords",
			"--cluster --redis redis://:s3cr3t1@C --redis redis://:s3cr3t2@D", "", "", "", 64},
		{"a cluster, the second has the password", "--cluster --redis C --redis PLAIND", "", "CD", "", 69},
		{"a cluster's node", "--cluster --redis PLAINC", "D", "CD", "", 69},
		{"a cluster's node with the named certificate", "--cluster --redis SAFElocalhost:A", "A", "", "A", 69},
		{"a cluster's node with another's", "--cluster --redis SAFElocalhost:A", "B", "", "A", 69},
		{"a cluster's node without TLS", "--cluster --redis SAFElocalhost:A", "C", "", "A", 69},
		{"Sentinel in plain text, the master under TLS", "--redis SAFElocalhost --sentinel m@PLAINC", "A", "", "", 64},
		{"Sentinel under TLS, the master in plain text",
			"--redis PLAINx --sentinel m@SAFElocalhost:A", "C", "", "", 64},
		{"Sentinels of both", "--redis SAFElocalhost --sentinel m@SAFElocalhost:A,PLAINC", "A", "", "", 64},
		{"Sentinel as the master is", "--redis SAFElocalhost --sentinel m@C", "A", "", "", 69},
		{"Sentinel, no word of TLS", "--redis PLAINx --sentinel m@C", "D", "D", "", 69},
		{"Sentinel names the named", "--redis SAFElocalhost --sentinel m@localhost:A", "A", "", "A", 69},
		{"Sentinel names the named, by --tls-name",
			"--tls-name localhost --redis SAFEx --sentinel m@127.0.0.1:A", "A", "", "A", 69},
		{"Sentinel names another name's", "--redis SAFElocalhost --sentinel m@localhost:A", "B", "", "", 69},
		{"Sentinels alone say TLS", "--password-file PW --sentinel m@TLSlocalhost:A", "A", "", "A", 69},
		{"Sentinels alone say TLS, and name another's",
			"--password-file PW --sentinel m@TLSlocalhost:A", "B", "", "", 69},
		{"Sentinel with a database", "--redis PLAINx --sentinel m@PLAINC/3", "D", "", "", 64},
		{"a Sentinel that all given tell of", "--redis x --sentinel m@PLAINC", "D", "BC", "", 69},
		{"a Sentinel that one of two tells of", "--redis x --sentinel m@PLAINC,PLAIND", "D", "CD", "", 69},
		{"Sentinel and two servers", "--redis PLAIND,PLAINx --sentinel m@C", "D", "", "", 64},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ours := newAuthority(t)
			endpoints := map[string]*endpoint{}
			for name, cert := range map[string]string{"A": "localhost", "B": "127.0.0.1", "C": "", "D": ""} {
				endpoints[name] = newEndpoint(t, ours, cert)
			}
			for name, p := range endpoints {
				p.mu.Lock()
				if name == "C" {
					p.knows = []string{endpoints["B"].at}
				}
				if to := endpoints[test.names]; to == endpoints["B"] {
					p.names = to.at
				} else if to != nil {
					p.names = "localhost:" + to.port
				}
				p.mu.Unlock()
			}
			words := strings.NewReplacer("SAFE", safe, "PLAIN", plain, "TLS", "rediss://").Replace(test.args)
			args := strings.Fields(words)
			for i, arg := range args {
				for name, p := range endpoints {
					for _, before := range []string{"@", ",", "/"} {
						arg = strings.ReplaceAll(arg, before+name, before+p.at)
					}
					arg = strings.ReplaceAll(arg, ":"+name, ":"+p.port)
					if arg == name {
						arg = p.at
					}
				}
				if arg == "PW" {
					arg = ours.file("pw")
					must.Do(t, os.WriteFile(arg, []byte("s3cr3t\n"), 0o600))
				}
				args[i] = arg
			}
			if strings.Contains(words, "rediss:") {
				args = append(args, "--tls-ca", ours.file("ca.crt"))
			}
			args = append(append([]string{"run", "--try", "--timeout", "1s"}, args...), "job", "--", "true")
			out, errs, status := cli(t, nil, args...)
			for name, p := range endpoints {
				p.mu.Lock()
				if p.plain != strings.Contains(test.plain, name) || p.secure != strings.Contains(test.secure, name) {
					t.Errorf("%s was told a password: in plain text %t, over TLS %t", name, p.plain, p.secure)
				}
				if test.status == exit.Wrong && p.asked > 0 {
					t.Errorf("%s was connected to", name)
				}
				p.mu.Unlock()
			}
			if status != test.status || strings.Contains(out+errs, "s3cr3t") {
				t.Errorf("%d, want %d: %s%s", status, test.status, out, errs)
			}
		})
	}
}
