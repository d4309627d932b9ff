package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat/guard"
)

// secrets are the flags of logging in and of trust.
type secrets struct {
	user         string
	passwordFile string
	password     string // from passwordFile, or from SETNXLOCK_PASSWORD

	caFile, certFile, keyFile, serverName string // of TLS
	tls                                   *tls.Config
}

// passwordVariable is read once and kept from run's command.
const passwordVariable = "SETNXLOCK_PASSWORD"

// prepare reads the password, the certificates and the keys of the flags and the environment.
func (s *secrets) prepare() error {
	s.password = os.Getenv(passwordVariable)
	if s.passwordFile != "" {
		b, err := os.ReadFile(s.passwordFile)
		if err != nil {
			return exit.Because(exit.Wrong, fmt.Errorf("--password-file: %w", err), "")
		}
		s.password, _, _ = strings.Cut(string(b), "\n")
		if s.password = strings.TrimSuffix(s.password, "\r"); s.password == "" {
			return exit.Because(exit.Wrong, fmt.Errorf("--password-file: the first line of %s is empty", s.passwordFile), "")
		}
	}
	var err error
	s.tls, err = s.tlsConfig()
	return err
}

func (s *secrets) tlsConfig() (*tls.Config, error) {
	bad := func(err error) (*tls.Config, error) { return nil, exit.Because(exit.Wrong, err, "") }
	config := &tls.Config{ServerName: s.serverName}
	if s.caFile != "" {
		pem, err := os.ReadFile(s.caFile)
		if err != nil {
			return bad(fmt.Errorf("--tls-ca: %w", err))
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return bad(fmt.Errorf("--tls-ca: %s has no certificate in PEM", s.caFile))
		}
	}
	if (s.certFile == "") != (s.keyFile == "") {
		return bad(errors.New("--tls-cert and --tls-key belong together"))
	}
	if s.certFile != "" {
		pair, err := tls.LoadX509KeyPair(s.certFile, s.keyFile)
		if err != nil {
			return bad(fmt.Errorf("--tls-cert, --tls-key: %w", err))
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// fitsTLS refuses flags of TLS where no TLS is spoken.
func (s *secrets) fitsTLS(spoken bool) error {
	if !spoken && (s.caFile != "" || s.certFile != "" || s.serverName != "") {
		return exit.Misuse("the --tls- flags need a --redis with TLS", "--redis rediss://host:port")
	}
	return nil
}

// login returns an address with the user and the password to log in as: its own, if it has one.
func (s *secrets) login(at address) (address, error) {
	switch {
	case at.password == "" && s.password == "" && s.user != "":
		return at, exit.Misuse("--user needs a password", "--password-file FILE, or "+passwordVariable)
	case at.password == "" && s.password == "":
		at.user, at.password = "", at.user // redis://secret@host, as redis-cli has it
	case s.user != "" && at.user != "" && s.user != at.user:
		return at, exit.Misuse("--user and --redis name different users", "leave one of them out")
	default:
		at.user, at.password = cmp.Or(at.user, s.user), cmp.Or(at.password, s.password)
	}
	return at, nil
}

// dial connects to an address. All of it, TLS and the password included, takes
// --timeout at most.
func (a *app) dial(ctx context.Context, at address, first *firstAnswer) (redis.Conn, error) {
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var shaking atomic.Bool // hands, in vain
	netDial := func(ctx context.Context, network, host string) (net.Conn, error) {
		d := net.Dialer{KeepAlive: time.Minute}
		raw, err := d.DialContext(ctx, network, host)
		if err != nil {
			return nil, err
		}
		c := &cappedConn{Conn: raw, first: first}
		if !at.tls {
			return c, nil
		}
		config := a.tls.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(cmp.Or(at.certified, host))
		}
		t := tls.Client(c, config)
		if err := t.HandshakeContext(ctx); err != nil {
			c.Close()
			shaking.Store(true)
			return nil, err
		}
		return t, nil
	}
	conn, err := redis.DialContext(ctx, at.network, at.host,
		redis.DialContextFunc(guard.Dial(netDial)),
		redis.DialReadTimeout(a.timeout),
		redis.DialWriteTimeout(a.timeout),
		redis.DialUsername(at.user),
		redis.DialPassword(at.password),
		redis.DialDatabase(at.db),
	)
	if err != nil && (ctx.Err() != nil || silent(err)) {
		if end, ok := parent.Deadline(); ok && !time.Now().Before(end) {
			<-parent.Done() // a socket may notice the same end first
		}
		if parent.Err() == nil {
			return nil, errUnanswered{a.timeout, shaking.Load()}
		}
	}
	return conn, err
}

// errUnanswered replaces the error of a connection without an answer in time.
type errUnanswered struct {
	limit time.Duration // 0: that of --wait
	tls   bool          // it did not answer to TLS
}

func (e errUnanswered) Error() string {
	if e.limit == 0 {
		return "no answer"
	}
	return fmt.Sprintf("no answer within %v (--timeout)", e.limit)
}
func (errUnanswered) Timeout() bool   { return true }
func (errUnanswered) Temporary() bool { return true }

// A firstAnswer bounds the time to a server's first answer by --timeout, over all connections: a server that
// takes connections and says nothing is away, and not asked again by each step for itself.
type firstAnswer struct {
	limit time.Duration
	begun sync.Once
	end   time.Time
	came  atomic.Bool
}

// deadline returns when the first answer is late; zero once there was one.
func (f *firstAnswer) deadline() time.Time {
	if f == nil || f.came.Load() {
		return time.Time{}
	}
	f.begun.Do(func() { f.end = time.Now().Add(f.limit) })
	return f.end
}

// A cappedConn ends its deadlines no later than the server's first answer is due.
type cappedConn struct {
	net.Conn
	first *firstAnswer
}

func (c *cappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.first != nil {
		c.first.came.Store(true)
	}
	return n, err
}

func (c *cappedConn) earliest(t time.Time) time.Time {
	if first := c.first.deadline(); !first.IsZero() && (t.IsZero() || first.Before(t)) {
		return first
	}
	return t
}

func (c *cappedConn) SetDeadline(t time.Time) error     { return c.Conn.SetDeadline(c.earliest(t)) }
func (c *cappedConn) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.earliest(t)) }
func (c *cappedConn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(c.earliest(t))
}
