package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/setnxlock/setnxlock/cmd/setnxlock/internal/exit"
	"github.com/setnxlock/setnxlock/compat/guard"
	"github.com/setnxlock/setnxlock/compat/probe"
	"github.com/setnxlock/setnxlock/compat/protocol"
)

// A cause is why a connection could not be made, or broke.
type cause struct {
	inner string // what Go says of it
	words string // what a user is told in its place
	hint  string // what may help
}

const (
	tlsHint     = "if it speaks TLS, its address is rediss://host:port"
	plainHint   = "if it speaks no TLS, its address is redis://host:port"
	addressWord = "check the address, in --redis or SETNXLOCK_REDIS, and that the server runs there"
)

// causeOf finds the cause of a broken connection in an error; nil: the error has another subject.
func causeOf(err error) *cause {
	dial := dialled(err)
	for _, find := range []func(error) *cause{certificateCause, alertCause, networkCause} {
		for _, e := range []error{dial, err} {
			if c := find(e); c != nil {
				return c
			}
		}
	}
	return nil
}

// certificateCause explains a server's certificate that was refused.
func certificateCause(err error) *cause {
	var unverified *tls.CertificateVerificationError
	if !errors.As(err, &unverified) {
		return nil
	}
	c := &cause{inner: unverified.Error()}
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		c.words = "its certificate is signed by an authority that is not known here"
		c.hint = "--tls-ca FILE names the authority that signed the server's certificate"
	case errors.As(err, &name) && len(name.Certificate.DNSNames)+len(name.Certificate.IPAddresses) == 0:
		c.words = "its certificate has its name in the Common Name alone, where nobody looks for it any more"
		c.hint = "the server needs a certificate with that name as its subjectAltName"
	case errors.As(err, &name):
		c.words = "its certificate is for " + strings.Join(certified(name.Certificate), ", ") + ", and not for " + name.Host
		c.hint = "--tls-name NAME expects another name in the server's certificate"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		c.words = "its certificate is not valid at this time: it is from " + invalid.Cert.NotBefore.Format(time.DateOnly) + " until " + invalid.Cert.NotAfter.Format(time.DateOnly)
		c.hint = "the server needs a new certificate, or this machine's clock is wrong"
	default:
		c.words, c.hint = "its certificate can't be trusted", "the server needs a certificate for TLS servers, and --tls-ca FILE the authority that signed it"
	}
	return c
}

// certified lists the names in a certificate.
func certified(c *x509.Certificate) []string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// alertCause explains a refusal by the server in TLS.
func alertCause(err error) *cause {
	var record tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.As(err, &record):
		return &cause{record.Error(), "it does not speak TLS", plainHint + ": redis:// in place of rediss://"}
	case !errors.As(err, &alert) || alert.Op != "remote error":
		return nil
	}
	c := &cause{alert.Error(), "it refuses the TLS connection", "see the server's log"}
	switch strings.TrimPrefix(alert.Err.Error(), "tls: ") { // which has no type that could be told
	case "certificate required", "handshake failure":
		c.words, c.hint = "it asks for a client's certificate", "--tls-cert FILE and --tls-key FILE show one"
	case "bad certificate", "unknown certificate authority", "unknown certificate", "certificate expired", "unsupported certificate":
		c.words, c.hint = "it does not accept our certificate", "--tls-cert FILE and --tls-key FILE show one that its authority has signed"
	case "protocol version not supported":
		c.words, c.hint = "it speaks another version of TLS", "it needs TLS 1.2 or later"
	}
	return c
}

// networkCause explains the end of a connection.
func networkCause(err error) *cause {
	c := &cause{hint: addressWord}
	var at *net.OpError
	var name *net.DNSError
	var errno syscall.Errno
	var late errUnanswered
	switch {
	case errors.As(err, &name):
		c.inner, c.words = name.Error(), "there is no host of this name"
		if name.IsTimeout || name.IsTemporary {
			c.words = "its name can't be looked up at the moment"
		}
	case errors.As(err, &late):
		c.inner, c.words, c.hint = late.Error(), late.Error(), "it hangs, or a firewall is in between; --timeout gives a slow server more time"
		if late.tls {
			c.hint += "; " + plainHint
		}
	case errors.As(err, &at) && errors.As(at, &errno): // and not that of a file
		c.inner, c.words = errno.Error(), errno.Error()
		switch errno {
		case syscall.ECONNREFUSED:
			c.words = "connection refused"
		case syscall.ECONNRESET, syscall.EPIPE:
			c.words, c.hint = "it closed the connection", tlsHint
		case syscall.ENOENT:
			c.words, c.hint = "there is no such socket", "its path is unixsocket in the server's configuration"
		case syscall.EACCES, syscall.EPERM:
			c.hint = "the socket may be opened by others than this user"
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		c.inner, c.words, c.hint = "EOF", "it closed the connection", tlsHint
		if errors.Is(err, io.ErrUnexpectedEOF) {
			c.inner = "unexpected EOF"
		}
	case silent(err):
		c.inner, c.words, c.hint = "i/o timeout", "no answer", "it hangs, or a firewall is in between; --timeout gives a slow server more time"
	default:
		return nil
	}
	if errors.As(err, &at) {
		c.inner = at.Error()
	}
	return c
}

// inWords strips the words of the libraries from an error's text.
func inWords(err error) string {
	text := err.Error()
	if c := causeOf(err); c != nil {
		if i := strings.LastIndex(text, c.inner); i >= 0 && strings.HasSuffix(c.inner, "EOF") { // and not what is called so
			text = text[:i] + c.words + text[i+len(c.inner):]
		} else {
			text = strings.ReplaceAll(text, c.inner, c.words)
		}
	}
	var ended *exit.Failure
	if errors.As(err, &ended) && ended.Err == nil {
		text = strings.ReplaceAll(text, ": "+ended.Error(), "")
	}
	for _, w := range [][2]string{
		{"context canceled", "interrupted"}, {"context deadline exceeded", "no answer"}, {"i/o timeout", "no answer"},
		{"probing the server: ", ""}, {"no connection: ", ""}, {"x509: ", ""},
	} {
		text = strings.ReplaceAll(text, w[0], w[1])
	}
	text = dialWords().ReplaceAllString(text, "") // of errors that are text alone by now
	return clientWords().ReplaceAllString(text, "a reply of another form")
}

var (
	clientWords = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`redigo[.:][^;)\n]*`) })
	dialWords   = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\b(?:dial|read|write) (?:tcp|unix)(?:: lookup \S+(?: on \S+)?| \S+?): (?:(?:connect|read|write): )?`)
	})
)

// answerHint tells how to mend an error reply from before the login.
func answerHint(reply redis.Error) string {
	said := string(reply)
	for _, row := range []struct{ begins, hint string }{
		{"ERR wrong number of arguments for 'auth'", "user names came with Redis 6: leave the user out, redis://:password@host, and --user"},
		{"ERR Client sent AUTH, but no password is set", noPasswordHint},
		{"ERR AUTH <password> called without any password", noPasswordHint},
		{"ERR DB index is out of range", databaseHint},
		{"ERR invalid DB index", databaseHint},
		{"ERR SELECT is not allowed in cluster mode", "a cluster has database 0 alone: leave the number out"},
		{"ERR This instance has cluster support disabled", "this server is no node of a cluster: leave --cluster out"},
		{"DENIED", "give the server a password (requirepass), or let it listen where its clients are (bind)"},
		{"ERR max number of clients", "close connections of others, or raise its maxclients; run --wait waits for one"},
		{"WRONGPASS", passwordHint + "; --user names another user than default"},
	} {
		if strings.HasPrefix(said, row.begins) {
			return row.hint
		}
	}
	return ""
}

const (
	noPasswordHint = "this server has no password: leave it out of SETNXLOCK_PASSWORD, --password-file and the URL of --redis"
	databaseHint   = "this server has fewer databases: redis://host:port/N with a smaller N, or raise its databases"
)

// overheard connects once more to hear a reply that precedes any command: too many clients, protected mode, a
// certificate wanted. A command that was sent meanwhile may have lost it. nil: there is none.
func (a *app) overheard(err error) error {
	var refused redis.Error
	closed := errors.As(err, &refused) && refused == probe.Closed || errors.Is(err, protocol.ErrUnanswered)
	if c := causeOf(err); !closed && (c == nil || c.hint != tlsHint) || a.only == nil {
		return nil
	}
	raw, err := net.DialTimeout(a.only.network, a.only.host, time.Second)
	if err != nil {
		return nil
	}
	defer raw.Close()
	raw.SetDeadline(time.Now().Add(time.Second)) //nolint:errcheck // a read says so
	c := raw
	if a.only.tls {
		config := a.tls.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(a.only.host)
		}
		c = tls.Client(raw, config)
	}
	line, err := bufio.NewReader(io.LimitReader(c, 4096)).ReadString('\n')
	if alert := alertCause(err); alert != nil {
		return err
	}
	if text, is := strings.CutPrefix(strings.TrimSpace(line), "-"); is && err == nil {
		return redis.Error(text)
	}
	return nil
}

// sentinelHere reports a Sentinel at the address: it knows no command of a lock's.
func (a *app) sentinelHere(err error) bool {
	if a.only == nil || !strings.Contains(err.Error(), "unknown command") {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.timeout)
	defer cancel()
	c, err := a.dial(ctx, *a.only, nil)
	if err != nil {
		return false
	}
	defer c.Close()
	info, err := redis.String(c.Do("INFO", "server"))
	return err == nil && strings.Contains(info, "redis_mode:sentinel")
}

// notASentinel refuses a Sentinel's address in place of its master's.
func (a *app) notASentinel() error {
	return exit.Because(statusUnavailable, errors.New("the server at "+a.only.host+" is a Sentinel, and not the master that it watches"),
		"--sentinel NAME@"+a.only.host+" asks it for the master, in place of --redis")
}

// foreignHint helps where another kind of server answers.
func foreignHint(err error) string {
	if errors.Is(err, guard.ErrNotRESP) && strings.Contains(err.Error(), `'\x15'`) { // the alert with which TLS answers plain text
		return tlsHint
	}
	return "it is another kind of server (a web server, say): " + addressWord
}
